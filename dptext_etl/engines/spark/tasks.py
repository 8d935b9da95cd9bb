"""Compute the rows of an executor shard by shard: reserve, compute, stage, commit; return only counts and hashes.

Everything here can happen twice, because a task is retried or runs on two machines at once. The ledger charges a record
once, attempts stage under names of their own, and the driver gets only the records of the attempt that Spark counts.

A refusal is not a failure of a machine. It returns as data, with the message for the user, and no task is retried. All
other errors leave the worker without the message of the library, because this may quote a text.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import Any, Literal

import polars as pl
import pyarrow as pa

from dptext_etl import errors
from dptext_etl.checks.canaries import CANARY
from dptext_etl.engines.spark.shards import pieces
from dptext_etl.engines.spark.task_messages import TaskMessages
from dptext_etl.engines.spark.worker_policy import WorkerPolicy, for_workers
from dptext_etl.errors import DPTextError, bare, seam
from dptext_etl.ledger import Ledger, ReleaseRef
from dptext_etl.ledger.retrying import patient
from dptext_etl.policy import ColumnPolicy, Policy
from dptext_etl.runner.anchoring import take_in
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.preflight import Expected, Preview, ledger_of
from dptext_etl.runner.progress import Checkpoint
from dptext_etl.runner.shard.charging import Column
from dptext_etl.runner.shard.results import Phase, ShardResult
from dptext_etl.runner.shard.shard import Shards
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.storage import Storage

SCHEMA = "record string"
AGAIN = (
    "see the executors' logs. Every record is charged once: run it again, and it continues after the committed shards"
)
_DEFECT = "this is a defect; its message is not repeated, because it may quote a text. Nothing was published"


@dataclass(frozen=True)
class TaskConfig:
    """The instructions for tasks: names, places, references and hashes, but no key and no text."""

    policy: str  # the run's policy as JSON, without storage options
    columns: tuple[str, ...]  # the policies of its text columns, each in the JSON of `WorkerPolicy`
    names: tuple[str, ...]  # the columns of a row, in their order
    refs: Mapping[str, ReleaseRef]  # pinned release of each text column
    job: str  # name of the attempt in the ledger
    staging: Storage  # the run's staging
    memory: Storage  # what all releases and partitions share
    step: int  # number of shards of the run
    most: int  # largest number of rows that are computed together, canary rows included
    phase: Phase | Literal["look"]  # what is done with the rows; "look" charges nothing
    checkpoint: Checkpoint  # called after every step, for tests

    @property
    def messages(self) -> TaskMessages:
        """Return the messages of the phase."""
        return TaskMessages(self.staging, f"{self.job}-{self.phase}")


def written(policy: Policy) -> str:
    """Write a policy for a worker, without storage options: a worker's `Storage` brings its own."""
    sent = policy.model_copy(update={"ledger": for_workers(policy.ledger)})
    return json.dumps(sent.model_dump(mode="json", by_alias=True, exclude={"storage_options"}))


def task(config: TaskConfig) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function that `mapInArrow` sends to the executors."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for record in records(config, batches):
            yield pa.RecordBatch.from_pydict({"record": [record]})

    return work


@bare
def records(config: TaskConfig, batches: Iterator[pa.RecordBatch]) -> Iterator[str]:
    """Compute the rows of a task, and yield the result of every shard as JSON."""
    _take_gpus()
    work = _look if config.phase == "look" else _work
    yield from carried(config.messages, (asdict(done) for done in work(config, batches)))


def carried(messages: TaskMessages, done: Iterator[Mapping[str, Any]]) -> Iterator[str]:
    """Write what a task does as JSON, its refusal included; other errors lose the message of the library."""
    os.environ.setdefault("DPTEXT_THREADS", "1")
    try:
        with seam("computing on an executor", DPTextError, _DEFECT):
            for facts in done:
                yield json.dumps({"done": facts})
    except DPTextError as error:
        if type(error) is DPTextError:  # this is not a refusal of ours, so another attempt may succeed
            raise
        with suppress(DPTextError):  # a machine that does not reach the messages says why all the same
            messages.stop()
        yield json.dumps({"refused": [type(error).__name__, error.message, error.hint]})


def refused_first(record: str) -> tuple[bool, str]:
    """Return a sort key that puts a refusal before all other records."""
    return not record.startswith('{"refused"'), record


def read(record: str) -> dict[str, Any]:
    """Return what a task did, or raise what it refused."""
    facts = json.loads(record)
    if "refused" in facts:
        name, message, hint = facts["refused"]
        raise getattr(errors, name, DPTextError)(message, hint)
    return dict(facts["done"])


def remember_tasks(policy: Policy, layout: Layout, job: str) -> None:
    """Remember the ledger's head in the place of what each task wrote into a store."""
    if layout.memory.remote:
        with Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False) as ledger:
            take_in(ledger, layout.memory, policy, job)


def _take_gpus() -> None:
    """Let models see only the GPUs that Spark gave this task; a process that uses one already keeps it."""
    try:
        from pyspark import TaskContext
    except ImportError:  # this is no worker; tests call this function, too
        return
    context = TaskContext.get()
    given = context.resources().get("gpu") if context is not None else None
    if given is not None:
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", ",".join(given.addresses))


def _work(config: TaskConfig, batches: Iterator[pa.RecordBatch]) -> Iterator[ShardResult]:
    shards: Shards | None = None
    with ExitStack() as held:
        for number, planted in pieces(batches, config.names, config.most, config.step):
            if shards is None:
                config.messages.require()
                storages = [held.enter_context(item.with_own_copies()) for item in (config.staging, config.memory)]
                shards = patient(partial(_shards, config, *storages), lambda: config.messages.stopped)
                held.callback(shards.ledger.close)
            if config.messages.stopped:
                return
            phase: Phase = "reserve" if config.phase == "reserve" else "release"
            call = partial(ShardResult.of, shards, planted, number, phase)
            done = patient(call, lambda: config.messages.stopped)
            config.messages.done(number, done.rows)
            yield done


def _look(config: TaskConfig, batches: Iterator[pa.RecordBatch]) -> Iterator[Expected]:
    """Look at the rows of a task before anything is charged; those of a person are all in one task under a cap."""
    preview: Preview | None = None
    with ExitStack() as held:
        for number, planted in pieces(batches, config.names, config.most, config.step):
            if preview is None:
                config.messages.require()
                preview = patient(partial(_preview, config, held), lambda: config.messages.stopped)
            if config.messages.stopped:
                return
            own = planted.filter(~pl.col(CANARY)).drop(CANARY)
            patient(partial(preview.add, own), lambda: config.messages.stopped)
            config.messages.done(number, planted.height)
        if preview is not None:
            yield preview.expected()


def _preview(config: TaskConfig, held: ExitStack) -> Preview:
    policy, columns = policies(config.policy, config.columns)
    staging = Staging(held.enter_context(config.staging.with_own_copies()), tag=secrets.token_hex(8))
    ledger = held.enter_context(ledger_of(policy))
    return Preview(policy, Column.all(columns, config.refs), ledger, staging.changed)


def _shards(config: TaskConfig, storage: Storage, memory: Storage) -> Shards:
    policy, columns = policies(config.policy, config.columns)
    ledger = Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False)
    staging = Staging(storage, tag=secrets.token_hex(8))
    made = Column.all(columns, config.refs)
    shards = Shards(policy, made, ledger, config.job, staging, memory, config.checkpoint)
    shards.computed = True  # a task knows nothing of other tasks, so only the driver gives reservations back
    return shards


@lru_cache(maxsize=8)
def policies(written: str, carried: tuple[str, ...]) -> tuple[Policy, list[ColumnPolicy]]:
    """Read policies once per worker process; verify artifacts and resolve references."""
    columns = [WorkerPolicy.model_validate_json(column).column_policy() for column in carried]
    return Policy.parse(json.loads(written)), columns
