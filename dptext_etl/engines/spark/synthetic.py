"""Charge, sum, and commit the records of a synthetic table on executors: a partial sum per task comes back, and no row.

Every phase reads the rows again, so every evaluation of the frame must give the same rows: the table that is committed
is compared with the one that was pinned. A task that is retried finds its records reserved, and its sums count once. No
plan holds a key: workers resolve the reference, and find the corpus by its hash.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl
import pyarrow as pa

from dptext_etl import _kernel, keys
from dptext_etl.engines.spark.examine import at_most, check, with_persons
from dptext_etl.engines.spark.shards import pieces, spread
from dptext_etl.engines.spark.task_messages import TaskMessages, watched
from dptext_etl.engines.spark.tasks import AGAIN, SCHEMA, carried, read, refused_first, remember_tasks, written
from dptext_etl.engines.spark.worker_policy import Location, ship
from dptext_etl.errors import DPTextError, InputError, PolicyError, bare, seam
from dptext_etl.families.aggregate import Partial, added
from dptext_etl.ledger import Ledger, ReleaseRef
from dptext_etl.ledger.retrying import patient
from dptext_etl.policy import Policy
from dptext_etl.runner.progress import Checkpoint, Meter
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.source.roles import Table, wanted_columns
from dptext_etl.runner.synthetic.attempt import SyntheticAttempt, order, release_key
from dptext_etl.runner.synthetic.charging import Charged, Frames, refuse_crowded
from dptext_etl.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TASKS = 256
"""Tasks at most: the driver holds a partial sum of each."""

Phase = Literal["charge", "agree", "commit"]


@dataclass(frozen=True)
class WorkerTable:
    """What makes a policy and its key again on a worker: names, references and hashes, but no key and no text."""

    policy: str  # the run's policy as JSON, without storage options
    corpus: str  # the corpus, in the JSON of `Location`
    cfg: str  # configuration hash that the worker must compute as well


@dataclass(frozen=True)
class SumConfig:
    """The instructions for tasks."""

    table: WorkerTable
    names: tuple[str, ...]  # the columns of a row, in their order
    ref: ReleaseRef
    job: str  # name of the attempt in the ledger
    staging: Storage  # the run's staging
    memory: Storage  # what all releases share
    step: int  # number of shards of the run
    phase: Phase
    digest: str  # of the table that is compared or committed
    checkpoint: Checkpoint  # called after every step, for tests

    @property
    def messages(self) -> TaskMessages:
        """Return the messages of the phase."""
        return TaskMessages(self.staging, f"{self.job}-{self.phase}")


class SparkRecords:
    """Records of a frame (`runner.synthetic.charging.Records`)."""

    def __init__(self, attempt: SyntheticAttempt, table: Table[DataFrame]) -> None:
        self._attempt, self._spark = attempt, table.frame.sparkSession
        policy, corpus = attempt.policy, attempt.statistic.corpus.artifact
        location = ship(self._spark, {"corpus": corpus})["corpus"]
        self._table = WorkerTable(written(policy), location.model_dump_json(), attempt.statistic.cfg())
        self.total, self.nameless = check(table.frame, policy)
        self.wanted = self.total - self.nameless
        rows = with_persons(table.frame, policy) if self.nameless else table.frame
        if policy.unit == "subject":
            rows, self.wanted, _ = at_most(rows, policy, attempt.synthetic.per_subject, partial(_placed, self._table))
        attempt.refuse_too_many(self.wanted)
        self._shards = range(max(1, min(_TASKS, -(-self.wanted // policy.shard_rows))))
        self._rows = spread(rows, self._shards, policy)

    def charge(self, frames: Frames, meter: Meter) -> Charged:
        """Let the executors charge and sum; partial sums are added in the order in which they come."""
        done = self._done(frames, "charge", "", meter.add)
        partial, answers = Partial.zero(frames.statistic), Counter[str]()
        for facts in done:
            partial += Partial.unpacked(frames.statistic, base64.b64decode(facts["sums"]))
            answers.update(facts["answers"])
        return Charged(partial, sum(facts["rows"] for facts in done), answers)

    def agree(self, frames: Frames, digest: str) -> bool:
        """Let the executors compare the records that the release holds with the ledger."""
        return all(facts["agrees"] for facts in self._done(frames, "agree", digest))

    def commit(self, frames: Frames, digest: str, charged: Charged) -> None:
        """Let the executors commit; what they committed must be what was summed."""
        done = self._done(frames, "commit", digest)
        records = added(*(base64.b64decode(facts["records"]) for facts in done))
        if (sum(facts["rows"] for facts in done), records) != (charged.rows, charged.partial.digest):
            msg = "the source changed while it was read, or records were forgotten meanwhile; nothing was published"
            raise InputError(msg, "run again when no one writes to it; what is charged is not charged twice")

    def _done(
        self, frames: Frames, phase: Phase, digest: str, seen: Callable[[int], object] = lambda _: None
    ) -> list[dict[str, Any]]:
        """Take all rows through a phase, and return what tasks did."""
        layout = self._attempt.layout
        config = SumConfig(
            self._table,
            wanted_columns(frames.policy),
            frames.ref,
            frames.job,
            layout.staging.absolute(),
            layout.memory.absolute(),
            len(self._shards),
            phase,
            digest,
            frames.checkpoint,
        )
        with watched(config.messages, seen), seam("computing on Spark", DPTextError, AGAIN):
            found = [row[0] for row in self._rows.mapInArrow(_task(config), SCHEMA).collect()]
        remember_tasks(frames.policy, layout, frames.job)
        return [read(record) for record in sorted(found, key=refused_first)]


def _task(config: SumConfig) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function that `mapInArrow` sends to the executors."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for record in records(config, batches):
            yield pa.RecordBatch.from_pydict({"record": [record]})

    return work


@bare
def records(config: SumConfig, batches: Iterator[pa.RecordBatch]) -> Iterator[str]:
    """Take the rows of a task through a phase, and yield what it did as JSON, once."""
    yield from carried(config.messages, _work(config, batches))


def _work(config: SumConfig, batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    with ExitStack() as held:
        phase: _Charging | _Agreeing | _Committing | None = None
        policy, _ = _opened(config.table)
        for number, marked in pieces(batches, config.names, policy.shard_rows, config.step):
            if phase is None:
                config.messages.require()
                storages = [held.enter_context(item.with_own_copies()) for item in (config.staging, config.memory)]
                frames = patient(partial(_frames, config, *storages), lambda: config.messages.stopped)
                held.callback(frames.ledger.close)
                phase = _PHASES[config.phase](frames, config.digest)
            if config.messages.stopped:
                return
            frame = marked.select(config.names)
            patient(partial(phase.take, frame, number), lambda: config.messages.stopped)
            config.messages.done(number, frame.height)
        if phase is not None:
            yield phase.done()


def _frames(config: SumConfig, storage: Storage, memory: Storage) -> Frames:
    policy, key = _opened(config.table)
    ledger = Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False)
    staging = Staging(storage, tag=secrets.token_hex(8))
    return Frames(policy, key, ledger, config.ref, config.job, staging, memory, config.checkpoint)


@lru_cache(maxsize=4)
def _opened(table: WorkerTable) -> tuple[Policy, _kernel.ReleaseKey]:
    """Make the policy and the release key once per worker process; verify the corpus, and resolve the reference."""
    facts = json.loads(table.policy)
    facts["synthetic"]["mechanism"]["corpus"] = str(Location.model_validate_json(table.corpus).find().path)
    policy = Policy.parse(facts)
    if policy.statistic.cfg() != table.cfg:
        msg = "the configuration of the synthetic table has another hash here than on the driver"
        raise PolicyError(msg, "install the same version of dptext-etl on every machine of the cluster")
    return policy, release_key(policy, keys.resolve(policy.key))


def _placed(table: WorkerTable, ids: pa.Array) -> pl.Series:
    return order(_opened(table)[1], ids)


class _Charging:
    """Charge and sum the records of a task."""

    def __init__(self, frames: Frames, _: str) -> None:
        self._frames = frames
        self._sums, self._rows, self._answers = Partial.zero(frames.statistic), 0, Counter[str]()
        self._persons = [np.zeros(0, np.uint64)]

    def take(self, frame: pl.DataFrame, index: int) -> None:
        summed = self._frames.charge(frame, index)
        self._sums += summed.partial
        self._rows += len(summed.ids)
        self._answers.update(summed.answers)
        self._persons.append(summed.persons)

    def done(self) -> dict[str, Any]:
        most = self._frames.policy.synthetic.per_subject if self._frames.policy.synthetic is not None else 1
        refuse_crowded(np.concatenate(self._persons), most)  # all records of a person are in one task
        packed = base64.b64encode(self._sums.packed()).decode()
        return {"rows": self._rows, "answers": dict(self._answers), "sums": packed}


class _Agreeing:
    """Compare the records of a task with what the ledger holds of them."""

    def __init__(self, frames: Frames, digest: str) -> None:
        self._frames, self._digest, self._agrees = frames, digest, True

    def take(self, frame: pl.DataFrame, index: int) -> None:  # noqa: ARG002
        ids, _ = self._frames.identified(frame)
        self._agrees &= self._frames.agree(ids, self._digest)

    def done(self) -> dict[str, Any]:
        return {"agrees": self._agrees}


class _Committing:
    """Commit the records of a task that the release holds, and digest them again."""

    def __init__(self, frames: Frames, digest: str) -> None:
        self._frames, self._digest, self._rows, self._records = frames, digest, 0, [bytes(32)]

    def take(self, frame: pl.DataFrame, index: int) -> None:  # noqa: ARG002
        ids, _ = self._frames.identified(frame)
        known = frame.filter(pl.Series(self._frames.ledger.known(self._frames.ref, ids)))
        self._frames.commit(*self._frames.identified(known), self._digest)
        self._rows += known.height
        self._records.append(self._frames.digest(known))

    def done(self) -> dict[str, Any]:
        return {"rows": self._rows, "records": base64.b64encode(added(*self._records)).decode()}


_PHASES: dict[Phase, Callable[[Frames, str], _Charging | _Agreeing | _Committing]] = {
    "charge": _Charging,
    "agree": _Agreeing,
    "commit": _Committing,
}
