"""Compute a phase for the rows of an executor, and pass messages to the driver: only counts and hashes.

They prove that the executors reach staging, count finished rows, and ask tasks to stop. A task that outlives its run
finds no messages and stops.

Results travel as packs: cells of one kind, name, and bucket, or anything else for the driver. Digests of one bucket and
name meet in one task, so the counts of all tasks add up (`checks.comparison`).

Everything here can happen twice, because a task is retried or runs on two machines at once. The ledger charges a record
once, attempts stage under unique names, and the driver gets only the records of the attempt that Spark counts.

A refusal is not a failure of a machine. It returns as data, with the message for the user, and no task is retried. If a
retry can help (`DPTextError.transient`), Spark tries the task again, perhaps on another machine, before it becomes a
refusal. All other errors leave the worker without the message of the library, because this may quote a text.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from itertools import groupby, pairwise
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np
import polars as pl
import pyarrow as pa

from dptext_etl import device, errors, keys
from dptext_etl.checks.canaries import CANARY
from dptext_etl.checks.comparison import ByteRows, Counted, counted
from dptext_etl.data_types import by_name, in_zone
from dptext_etl.engines.spark.worker_policy import WorkerPolicy, WorkerStatistic, for_workers, require_cfg, take_gpu
from dptext_etl.errors import DPTextError, InputError, bare, seam
from dptext_etl.ledger import Ledger, ReleaseRef
from dptext_etl.ledger.storage.store import wait_for_ledger
from dptext_etl.policy import ColumnPolicy, Policy
from dptext_etl.runner.forecast import Expected, Preview, ledger_of
from dptext_etl.runner.preflight import require_models
from dptext_etl.runner.progress import Checkpoint
from dptext_etl.runner.shard.charging import Column
from dptext_etl.runner.shard.shard import Phase, ShardResult, Shards
from dptext_etl.runner.shard.staging import Staging, staging_key
from dptext_etl.runner.source.examine import FEW, order_of
from dptext_etl.runner.source.roles import coarsened
from dptext_etl.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_FOLDER = "messages"
_RUNNING = "running"
_STOP = b"stop"


@dataclass(frozen=True)
class TaskMessages:
    """Small files in staging, whose names hold counts, but no id and no text."""

    staging: Storage
    name: str

    @property
    def _files(self) -> Storage:
        return self.staging.child(_FOLDER).child(self.name)

    def create(self) -> None:
        """Make the messages, and remove the messages of runs that were killed."""
        with suppress(OSError):
            self.staging.delete_folder(_FOLDER)
        self._files.prepare()
        self._files.put(_RUNNING, b"")

    def remove(self) -> None:
        """Remove the messages, first the one that tasks look for: those that still run stop at their next shard."""
        with suppress(OSError, InputError):  # remaining files are removed when the next messages are made
            self._files.delete(_RUNNING)
            self.staging.delete_folder(_FOLDER)

    def require(self) -> None:
        """Refuse a machine that cannot read and write the messages."""
        problem = None
        try:
            if self._files.read(_RUNNING) is not None:
                self._files.put("seen", b"")
                return
        except DPTextError as refused:
            problem = refused.message
        msg = f"an executor cannot use the staging folder {self.staging.url}"
        if not self.staging.remote:
            hint = "staging must lie on storage that driver and executors share under one path, owned by their user: "
            msg = f"{msg} ({problem or 'it is not there'})"
            raise InputError(msg, hint + 'write staging = "/shared/folder" into the policy')
        if problem is None:
            raise InputError(f"{msg}: its run is over", "run the same policy again")
        hint = "give executors a role, or the variables of storage_options: spark.executorEnv.NAME"
        raise InputError(f"{msg}: {problem}", hint)

    def done(self, number: int, rows: int) -> None:
        """Report a shard as done, unless the run is over; reporting it twice changes nothing."""
        with suppress(InputError):
            self._files.put(f"{number}-{rows}", b"")

    def rows_done(self) -> int:
        """Count the rows of the shards that are done."""
        return sum(int(name.partition("-")[2]) for name in self._files.glob("[0-9]*-*"))

    def stop(self) -> None:
        """Ask all tasks to stop before their next shard."""
        if self._files.read(_RUNNING) is not None:
            self._files.put(_RUNNING, _STOP)

    @property
    def stopped(self) -> bool:
        """Whether tasks shall stop: they were asked to, or their run is over."""
        return self._files.read(_RUNNING) in {None, _STOP}


@contextmanager
def watched(messages: TaskMessages, report: Callable[[int], object], *, idle: bool = False) -> Iterator[None]:
    """Make messages for the block, and report the rows that tasks finish, from a separate thread."""
    over, failures = Event(), list[DPTextError]()

    def watch() -> None:
        seen = 0
        while True:
            last = over.wait(3.0 if messages.staging.remote else 0.5)
            try:
                now = messages.rows_done()
            except InputError:  # the store cannot be reached: keep the last count
                now = seen
            if now > seen or idle:
                try:
                    report(now - seen)
                except DPTextError as failure:
                    failures.append(failure)
                    messages.stop()
                    return
                seen = now
            if last:
                return

    thread = Thread(target=watch, name="dptext-progress", daemon=True)
    messages.create()
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        messages.remove()
        if failures:
            raise failures[0]


SCHEMA = "kind string, name string, bucket int, width int, cells binary"
_ARROW = pa.schema(
    {"kind": pa.string(), "name": pa.string(), "bucket": pa.int32(), "width": pa.int32(), "cells": pa.binary()}
)
REFUSED = "refused"
"""The kind of packs that hold refusals of tasks."""
_BATCH_BYTES, _PACK_BYTES = 1 << 20, 128
"""Approximate bytes of packs in a batch, and of a pack without its cells."""
_AGAIN = "the executors' logs say more; run the same policy again"


class Pack(NamedTuple):
    kind: str  # how it is processed; a task passes on unknown kinds
    name: str
    bucket: int  # common to all its cells, such as their first bits; any number for other packs
    width: int  # bytes per cell; any number for other packs
    cells: bytes


def facts_pack(kind: str, facts: object, name: str = "", bucket: int = -1) -> Pack:
    return Pack(kind, name, bucket, 0, json.dumps(facts).encode())


def batches_of(packs: Iterable[Pack]) -> Iterator[pa.RecordBatch]:
    """Put packs into batches of about `_BATCH_BYTES`: Spark is slow to start each batch, however small it is."""
    waiting = iter(packs)
    while (pack := next(waiting, None)) is not None:
        pending, size = [pack], len(pack.cells) + _PACK_BYTES
        while size < _BATCH_BYTES and (pack := next(waiting, None)) is not None:
            pending.append(pack)
            size += len(pack.cells) + _PACK_BYTES
        yield pa.RecordBatch.from_arrays([*map(pa.array, zip(*pending, strict=True), _ARROW.types)], schema=_ARROW)


def computed(
    action: str, packs: Iterable[Pack], hint: str = _AGAIN, messages: TaskMessages | None = None, attempts: int = 1
) -> Iterator[Pack]:
    """Compute packs on an executor, with one thread; a refusal goes to the driver as a pack.

    Spark tries a task `attempts` times; after a refusal, other tasks stop at the next look at their messages.
    """
    os.environ.setdefault("DPTEXT_THREADS", "1")
    try:
        with seam(action, DPTextError, hint):
            yield from packs
    except DPTextError as error:
        if error.transient and attempt_number() + 1 < attempts:
            raise
        refusal = facts_pack(REFUSED, refused(error))
        with suppress(DPTextError):  # a machine that does not reach the messages says why all the same
            if messages is not None:
                messages.stop()
        yield refusal


def collected(frame: DataFrame) -> list[Pack]:
    """Collect packs, and raise the refusal of a task."""
    packs = [Pack(row[0], row[1], row[2], row[3], bytes(row[4])) for row in frame.collect()]
    for pack in packs:
        if pack.kind == REFUSED:
            read(pack)
    return packs


def read(pack: Pack) -> Any:
    """Return the facts of a pack, or raise the refusal of a task."""
    facts = json.loads(pack.cells)
    if pack.kind == REFUSED:
        name, message, hint, fields = facts
        raise getattr(errors, name)(message, hint, fields)
    return facts


DIGESTS, COUNTS, SIZES, SINGLED_OUT = "digests", "counts", "sizes", "singled out"
"""Kinds of packs: digests to count, counts of them; hashes of 8 bytes, counts of the rare ones."""


def packed(name: str, rows: ByteRows, kind: str = DIGESTS) -> Iterator[Pack]:
    """Pack digests by their first byte."""
    order = np.argsort(rows[:, 0], kind="stable")
    ordered, buckets = rows[order], rows[order, 0]
    edges = [0, *(np.flatnonzero(np.diff(buckets)) + 1).tolist(), len(rows)]
    for begin, end in pairwise(edges):
        if begin < end:
            yield Pack(kind, name, int(buckets[begin]), rows.shape[1], ordered[begin:end].tobytes())


def exchanged(frame: DataFrame) -> DataFrame:
    """Bring the packs of a bucket together in one task, which counts digests."""
    return frame.repartition("bucket").sortWithinPartitions("kind", "name", "bucket").mapInArrow(exchange, SCHEMA)


def totals(packs: Iterable[Pack], kind: str = COUNTS) -> dict[str, Any]:
    """Add up the counts in packs of a kind, by name: of digests, or of rows whose hash no other or few rows have."""
    total = dict[str, Any]()
    for pack in packs:
        if pack.kind == kind:
            counts = json.loads(pack.cells)
            total[pack.name] = tuple(map(sum, zip(counts, total.get(pack.name, [0] * len(counts)), strict=True)))
    return total


def exchange(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches_of(_counted_packs(Pack(**row) for batch in batches for row in batch.to_pylist()))


def _counted_packs(packs: Iterable[Pack]) -> Iterator[Pack]:
    for (kind, name), group in groupby(packs, key=lambda pack: pack[:2]):
        if kind == SIZES:
            hashed = np.frombuffer(b"".join(pack.cells for pack in group), "<u8")
            _, sizes = np.unique(hashed, return_counts=True)
            few = int(sizes[sizes < FEW].sum())
            yield facts_pack(SINGLED_OUT, [int((sizes == 1).sum()), few], name)
        else:
            yield from [_counted(name, group)] if kind == DIGESTS else group  # noqa: B031  (only one of them)


def _counted(name: str, packs: Iterable[Pack]) -> Pack:
    total = Counted()
    for (_, width), group in groupby(packs, key=lambda pack: pack[2:4]):
        total = total.plus(counted(np.frombuffer(b"".join(pack.cells for pack in group), np.uint8).reshape(-1, width)))
    return facts_pack(COUNTS, total, name)


Item = TypeVar("Item")


def over_items(spark: SparkSession, items: Sequence[Item], do: Callable[[int, Item], Iterable[Pack]]) -> DataFrame:
    """Do something with each item and its place in a task; items travel with the function: nothing is exchanged."""
    return spark.range(0, len(items), 1, len(items)).mapInArrow(partial(_done, do, items), SCHEMA)


@bare
def _done(
    do: Callable[[int, Item], Iterable[Pack]], items: Sequence[Item], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    places = (place for batch in batches for place in batch.column(0).to_pylist())
    packs = (pack for place in places for pack in do(place, items[place]))
    yield from batches_of(computed("reading staged rows on an executor", packs))


AGAIN = (
    "see the executors' logs. Every record is charged once: run it again, and it continues after the committed shards"
)
_DEFECT = "this is a defect; its message is not repeated, because it may quote a text. Nothing was published"

Worker = tuple[Callable[[pl.DataFrame, int], ShardResult | None], Callable[[], ShardResult | Expected | None]]
"""Computes a shard of a task, and finishes the task; results hold only plain data."""


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """The instructions for tasks: names, places, references and hashes, but no key and no text."""

    policy: str  # the run's policy, as `policy_json` writes it
    columns: tuple[str, ...]  # the policies of its text columns, as `worker_columns` writes them
    names: tuple[str, ...]  # the columns of a row, in their order
    refs: Mapping[str, ReleaseRef]  # pinned release of each text column
    job: str  # name of the attempt in the ledger
    staging: Storage  # the run's staging
    step: int  # number of shards of the run
    most: int  # largest number of rows that are computed together, canary rows included
    phase: Phase | Literal["look"]
    checkpoint: Checkpoint  # called after every step, for tests
    published: bool = False  # whether the rows may be published: then only the ledger's answers are counted
    digest: str = ""  # of the synthetic table that records are compared and committed with
    pairs: Mapping[str, int] | None = None  # sums of records with their persons by shard, if they were previewed
    bundled: bool = False  # whether batches hold bundles of rows
    zones: Mapping[str, str] = field(default_factory=dict)  # of moments that are published in another zone than UTC

    @property
    def messages(self) -> TaskMessages:
        return TaskMessages(self.staging, f"{self.job}-{self.phase}")

    def open(self, stack: ExitStack) -> Worker:
        """Open the ledger, the staging, and the columns that the phase needs."""
        policy, columns = policies(self.policy, self.columns)
        storage = stack.enter_context(self.staging.with_own_copies())
        key = staging_key(keys.resolve(policy.key), policy.dataset, storage)
        staging = Staging(storage, key, tag=secrets.token_hex(8))
        if self.phase == "look":
            ledger, text_columns = stack.enter_context(ledger_of(policy)), Column.all(columns, self.refs)
            preview = Preview(policy, text_columns, ledger, staging.changed, published=self.published)

            def finish() -> Expected:
                expected = preview.expected()
                require_models(columns, expected)
                return expected

            # under a cap, all rows of a person are in one task
            return lambda rows, number: preview.add(rows.filter(~pl.col(CANARY)).drop(CANARY), str(number)), finish
        ledger = stack.enter_context(Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False))
        for ref in self.refs.values():  # a reference may name another key on this machine
            ledger.releases.require_key(ref, keys.resolve(policy.key))
        released = Column.all(columns, self.refs)
        shards = Shards(policy, released, ledger, self.job, staging, self.checkpoint, pairs=self.pairs)
        shards.computed = True  # a task knows nothing of other tasks, so only the driver gives reservations back
        if policy.synthetic is None:
            return lambda rows, number: next(shards.results([(number, rows)], self.phase, 1)), lambda: None
        from dptext_etl.runner.shard.summing import Summing

        summing = Summing(shards, self.phase, self.digest)
        return summing.take, summing.finish


def run_tasks(frame: DataFrame, config: TaskConfig, report: Callable[[int], object], profile: Any = None) -> list[Any]:
    """Let executors compute the shards of a frame in a phase, and return their facts, or raise the refusal of one."""
    options = {} if profile is None else {"profile": profile}
    tasks = frame.mapInArrow(partial(_record_batches, config, _attempts(frame.sparkSession)), SCHEMA, **options)
    with watched(config.messages, report), seam("computing on Spark", DPTextError, AGAIN):
        return [*map(read, collected(tasks))]


def _attempts(spark: Any) -> int:
    """Return how often Spark tries a task: on a local master once, unless the name of the master gives a number."""
    master = str(spark.conf.get("spark.master", None))
    if master == "local" or master.startswith("local["):
        tries = re.fullmatch(r"local\[.*,\s*(\d+)\s*\]", master)
        return 1 if tries is None else int(tries[1])
    return int(spark.conf.get("spark.task.maxFailures", "4"))


def _record_batches(config: TaskConfig, attempts: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches_of(records(config, batches, attempts))


@bare
def records(config: TaskConfig, batches: Iterator[pa.RecordBatch], attempts: int = 1) -> Iterator[Pack]:
    """Compute the rows of a task in a phase, and yield the results of each shard; Spark tries a task often."""
    yield from computed("computing on an executor", _results(config, batches), _DEFECT, config.messages, attempts)


def attempt_number() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()


def _results(config: TaskConfig, batches: Iterator[pa.RecordBatch]) -> Iterator[Pack]:
    def stopped() -> bool:
        return config.messages.stopped

    take_gpu()
    with ExitStack() as stack:
        worker: Worker | None = None
        rows = unbundled(batches) if config.bundled else batches
        for number, frame in pieces(rows, config.names, config.most, config.step):
            if worker is None:
                config.messages.require()
                worker = wait_for_ledger(partial(config.open, stack), stopped)
            if stopped():
                return
            frame = in_zones(frame, config.zones)  # noqa: PLW2901
            frame = coarsened(frame.lazy(), frame.schema, policies(config.policy, config.columns)[0]).collect()  # noqa: PLW2901
            result = wait_for_ledger(partial(worker[0], frame, number), stopped)
            config.messages.done(number, int((~frame[CANARY]).sum()))
            if result is not None:
                yield facts_pack("done", asdict(result))
        if worker is not None and (last := worker[1]()) is not None:
            yield facts_pack("done", asdict(last))


def in_zones(frame: pl.DataFrame, zones: Mapping[str, str]) -> pl.DataFrame:
    """Return a frame of moments in UTC, or in other zones by column: a batch has the zone of the Spark session."""
    types = {name: in_zone(dtype, zones.get(name, "UTC")) for name, dtype in frame.schema.items()}
    return frame.with_columns(by_name(name).cast(dtype) for name, dtype in types.items() if dtype != frame.schema[name])


SHARD = "__dptext_shard"
"""Column that holds the number of a row's shard for the tasks."""


_BUNDLE_BYTES = 1 << 23


@bare
def bundled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put many rows into one cell, as a stream of Arrow: Spark keeps and passes on a cell at little cost."""
    with seam("keeping rows on an executor", DPTextError, _DEFECT):
        for batch in batches:
            step = max(1, batch.num_rows * _BUNDLE_BYTES // max(1, batch.nbytes))
            for begin in range(0, batch.num_rows, step):
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, batch.schema) as stream:
                    stream.write_batch(batch.slice(begin, step))
                yield pa.RecordBatch.from_arrays([pa.array([sink.getvalue().to_pybytes()], pa.binary())], [BUNDLE])


def unbundled(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for cell in batch.column(0):
            yield from pa.ipc.open_stream(pa.py_buffer(cell.as_py()))  # a copy, which begins where Arrow wants it


BUNDLE = "rows"


def pieces(
    batches: Iterable[pa.RecordBatch], names: tuple[str, ...], most: int, step: int
) -> Iterator[tuple[int, pl.DataFrame]]:
    """Cut the rows of a task, which come shard by shard, into numbered frames that are computed together."""
    frames: list[pl.DataFrame] = []
    count, shard, number = 0, -1, -1
    for batch in batches:
        table = pl.DataFrame(batch)
        table.columns = [*names, CANARY, SHARD]
        for part in table.partition_by(SHARD, maintain_order=True):
            if part[SHARD][0] != shard:
                if count:
                    yield number, pl.concat(frames).rechunk()
                frames, count = [], 0
                number = shard = part[SHARD][0]
            frames.append(part.drop(SHARD))
            count += part.height
            while count > most:
                rows = pl.concat(frames).rechunk()
                yield number, rows.head(most)
                frames, count, number = [rows.slice(most)], count - most, number + step
    if count:
        yield number, pl.concat(frames).rechunk()


def refused(error: DPTextError) -> list[Any]:
    """Return a dptext_etl error as plain data; raise any other error, because another attempt may succeed."""
    if type(error) is DPTextError:
        raise error
    name = next(kind.__name__ for kind in type(error).__mro__ if hasattr(errors, kind.__name__))
    return [name, error.message, error.hint, error.fields]


def policy_json(policy: Policy) -> str:
    """Write a policy for a worker, without storage options: a worker's `Storage` brings its own."""
    sent = policy.model_copy(update={"ledger": for_workers(policy.ledger)})
    return json.dumps(sent.model_dump(mode="json", by_alias=True, exclude={"storage_options"}))


@device.drops_with_gpu
@lru_cache(maxsize=8)
def policies(policy: str, columns: tuple[str, ...]) -> tuple[Policy, list[ColumnPolicy]]:
    """Read policies once per worker process; verify artifacts and resolve references."""
    facts = json.loads(policy)
    if facts.get("synthetic") is None:
        column_policies = [WorkerPolicy.model_validate_json(column).column_policy() for column in columns]
        return Policy.parse(facts), column_policies
    (statistic,) = map(WorkerStatistic.model_validate_json, columns)
    facts["synthetic"]["mechanism"]["corpus"] = str(statistic.corpus.find().path)
    facts["synthetic"]["pool"] = None  # only the driver draws rows
    whole = Policy.parse(facts)
    require_cfg("the synthetic table", whole.statistic.cfg(), statistic.cfg)
    return whole, whole.charged_columns()


def keyed_order(policy: str, columns: tuple[str, ...], ids: pa.Array) -> pl.Series:
    """Return the place of every canonical id among the records of a person."""
    return order_of(policies(policy, columns)[0])(ids)
