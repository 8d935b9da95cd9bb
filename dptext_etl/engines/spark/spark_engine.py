"""Compute a run on the executors of Spark and write its parts there; the driver gets counts and hashes, but no rows.

In a folder, the driver puts the parts in place. In a store, parts are drafted among the files of staging first, because
the name of a version follows from their hashes. Objects of the sink are written when the ledger has recorded the
publication. No row passes the driver.

Gates judge a staged run there, too: each task shows a staged shard to every gate, and compares its cells with the
ledger. The states of the gates come back, with digests that other tasks count.

Driver and executors share storage under one path for staging and sink, or an object store for both.
"""

from __future__ import annotations

import json
import pickle
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import polars as pl

from dptext_etl.checks import Verdict
from dptext_etl.checks.canaries import plans_as_dicts, plans_of
from dptext_etl.checks.comparison import Counted, Repeats
from dptext_etl.checks.gate import (
    Candidate,
    Gate,
    batches,
    count,
    feed,
    feed_rewritten,
    merge,
    portable_state,
    staged_gates,
    values_of,
    verdicts_of,
)
from dptext_etl.device import drops_with_gpu, threads
from dptext_etl.engines.engine import Engine, Work
from dptext_etl.engines.spark.frames import examine, numbers, open_table, planted
from dptext_etl.engines.spark.session import bounds_batches, read_source, require_workers, session, unreadable
from dptext_etl.engines.spark.tasks import (
    BUNDLE,
    Pack,
    TaskConfig,
    TaskMessages,
    bundled,
    collected,
    exchanged,
    facts_pack,
    keyed_order,
    over_items,
    packed,
    policies,
    policy_json,
    read,
    run_tasks,
    totals,
    watched,
)
from dptext_etl.engines.spark.worker_policy import for_workers, is_local, require_reach, worker_columns
from dptext_etl.errors import GateError, InputError, PolicyError, seam
from dptext_etl.files import literal, sha256
from dptext_etl.ledger import Ledger, ReleaseRef
from dptext_etl.ledger.anchor_files import place_of
from dptext_etl.ledger.storage.store import wait_for_ledger
from dptext_etl.parallel import map_in_order
from dptext_etl.policy import Policy
from dptext_etl.policy.terms import FASTEST, TABLE, Compression
from dptext_etl.runner.forecast import Expected
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.progress import Listener, Meter
from dptext_etl.runner.publish.parts import HiddenIds, Writer, rows_of, write_part
from dptext_etl.runner.shard.charging import Column
from dptext_etl.runner.shard.shard import Phase, ShardResult
from dptext_etl.runner.shard.staging import StagedRun, StagedShard, Staging
from dptext_etl.runner.source.column_types import HELD, keeps_spelling
from dptext_etl.runner.source.examine import Examined
from dptext_etl.runner.source.roles import Table, wanted_columns
from dptext_etl.runner.source.table import Files, naming_file
from dptext_etl.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_HINT = "nothing was published, and no gate has fired; the executors' logs say more"
AGAIN = "see the executors' logs. Readers still see the version before; run the same policy again"


def _written(frame: DataFrame, config: WriteConfig, on_rows: Callable[[int], object], wanted: int) -> list[Pack]:
    """Let executors compute a frame, and return a pack for every part, in their order."""
    with watched(config.messages, on_rows, idle=True), seam("writing a version on Spark", InputError, AGAIN):
        packs = collected(frame)
    if len(packs) != wanted:
        raise InputError(f"executors wrote {len(packs):,} of {wanted:,} parts", AGAIN)
    return sorted(packs, key=lambda pack: pack.bucket)


@dataclass(frozen=True)
class WriteConfig:
    staging: Storage  # the staged shards
    sink: Storage  # the published table
    folder: Path | None  # the folder for drafts; None where they lie among the files of staging
    file_format: str
    hidden: HiddenIds | None
    messages: TaskMessages
    compression: Compression = FASTEST

    @classmethod
    def of(cls, writer: Writer, folder: Path | None = None) -> WriteConfig:
        staging = writer.staging.absolute()
        messages = TaskMessages(staging, f"{secrets.token_hex(16)}-publish")
        hidden = None if writer.hidden is None else replace(writer.hidden, ledger=for_workers(writer.hidden.ledger))
        return cls(staging, writer.published, folder, writer.format, hidden, messages, writer.compression)


def draft(config: WriteConfig, place: int, shard: StagedShard) -> Iterator[Pack]:
    """Draft the part of a shard, unless no one waits for it any more."""
    if config.messages.stopped:
        return
    with config.staging.with_own_copies() as storage:
        if config.folder is None:
            path = storage.folder / f"draft-{shard.index:05d}-{secrets.token_hex(8)}"
        else:
            path = config.folder / f"{place:05d}-{secrets.token_hex(8)}"
        rows, form, hidden = rows_of(Staging(storage), shard), config.file_format, config.hidden
        facts: list[Any] = [*write_part(rows, path, form, storage, hidden, compression=config.compression)]
        if config.folder is None:
            storage.put(path.name, path)
            facts.append(path.stat().st_size)
    config.messages.done(place, facts[0])
    yield facts_pack("part", facts, path.name, place)


def move(config: WriteConfig, place: int, part: tuple[str, str, str]) -> Iterator[Pack]:
    """Move a part from the store of staging to the store of the sink, and check the result there."""
    if config.messages.stopped:
        return
    name, target, digest = part
    sink, missing = config.sink, 0
    if sink.sha256(target) != digest:
        missing = 1
        with config.staging.with_own_copies() as storage, seam("reading staged files", InputError, AGAIN):
            path = storage.local_path(name)
            if sha256(path) != digest:
                raise InputError(f"the staged file {name} has changed since it was staged", AGAIN)
            sink.put(target, path)
        if sink.sha256(target) != digest:
            raise InputError(f"the object store does not hold {target} as it was written", AGAIN)
    config.messages.done(place, missing)
    yield facts_pack("moved", missing, name, place)


@dataclass(frozen=True)
class GateTaskConfig:
    """Instructions for executors that make the gates of a run: names, places, and references, but no key."""

    policy: str  # the run's policy as JSON, without storage options
    columns: tuple[str, ...]  # the policies of its text columns, each in the JSON of `WorkerPolicy`
    refs: tuple[tuple[str, ReleaseRef], ...]  # pinned release of each text column, by name
    partition: str | None  # name of the partition, or None
    staging: Storage
    messages: TaskMessages
    canaries: str  # the canary rows of all shards, as `plans_as_dicts` writes them, in JSON
    id_type: pl.DataType
    rows: int  # rows of all shards, canary rows included


def keyed(gates: Iterable[Gate]) -> dict[str, Gate]:
    """Name gates, so that a gate of one process finds its equal in another."""
    by_key: dict[str, Gate] = {}
    for gate in gates:
        by_key[f"{gate.name}/{sum(name.partition('/')[0] == gate.name for name in by_key)}"] = gate
    return by_key


def all_repeats(gates: dict[str, Gate]) -> dict[str, Repeats]:
    """Return the digests that gates hold for others to count, by the names of gate and digests."""
    return {
        f"{name}:{what}": repeats for name, gate in gates.items() for what, repeats in values_of(gate, Repeats).items()
    }


def show(config: GateTaskConfig, place: int, shard: StagedShard) -> Iterator[Pack]:
    with config.staging.with_own_copies() as storage:
        gates, states = wait_for_ledger(partial(_fed, config, shard, Staging(storage)))
    yield Pack(STATES, "", place, 0, pickle.dumps(states))
    for name, repeats in all_repeats(gates).items():
        for rows in repeats.drain():
            yield from packed(name, rows)


def _fed(
    config: GateTaskConfig, shard: StagedShard, staging: Staging
) -> tuple[dict[str, Gate], dict[str, dict[str, Any]]]:
    run = _candidate(config)
    staging.require(shard)
    part = staging.path(shard)
    columns = pl.Schema(pl.read_parquet_schema(literal(part)))
    spec = run.policy.ledger
    with Ledger.open(spec.url, spec.id_key, create=False) as ledger:
        gates = keyed(staged_gates(replace(run, parts=(part,), ledger=ledger), [columns]))
        feed(gates.values(), batches(part))
        if shard.post:
            feed_rewritten(gates.values(), staging.post(shard))
        states = {name: portable_state(gate) for name, gate in gates.items()}
    config.messages.done(shard.index, count(part))
    return gates, states


@drops_with_gpu
@lru_cache(maxsize=2)
def _candidate(config: GateTaskConfig) -> Candidate:  # planning the canary rows again is slow
    policy, columns = policies(config.policy, config.columns)
    policy = policy.placed(columns)
    canaries = plans_of(json.loads(config.canaries), policy, config.partition, config.id_type)
    return Candidate(policy, (), canaries, None, dict(config.refs), counted=config.rows)


STATES = "states"
"""The kind of packs that hold states of gates."""


class SparkEngine(Engine["DataFrame"]):
    """Compute shards on the executors of a Spark session, classic or Connect."""

    def __init__(
        self, df: DataFrame, gpus_per_task: float = 0, check_workers: bool | None = None, source: Files | None = None
    ) -> None:
        self._frame = df
        self._source = source  # where the frame was read from, if a command did so
        self._gpus = gpus_per_task
        self._check_workers = check_workers
        self._kept: DataFrame | None = None  # rows of all shards, which executors keep between the phases

    @classmethod
    @contextmanager
    def started(cls, policy: Policy, partition: str | None) -> Iterator[Self]:
        """Use the Spark that is configured here, or otherwise all cores of this machine."""
        with session() as spark:
            layout = Layout.of(policy, partition)
            if layout.source.startswith(TABLE) and not layout.catalog:
                with seam("reading the table of the source", InputError, "is its name right, and may Spark read it?"):
                    frame = spark.table(layout.source.removeprefix(TABLE))
                yield cls(frame)
                return
            source = Files.find(layout)
            with naming_file(lambda: source, wanted_columns(policy), partial(unreadable, spark, policy)):
                yield cls(read_source(spark, policy, partition, source), source=source)

    def open(self, policy: Policy, layout: Layout) -> Table[DataFrame]:
        """Check the columns of the frame, and that the executors can compute and can reach the ledger."""
        spark = self._frame.sparkSession
        if layout.staging.remote and not layout.remote_sink:
            msg = "staging is in an object store and the sink is not: executors may share nothing else with the driver"
            raise PolicyError(msg, 'write a sink of the same store: sink = "s3://…"; or a folder as staging')
        if place_of(policy.ledger.anchors).remote and policy.storage_options and not layout.staging.remote:
            msg = "executors get the options of a store only with staging in a store, and anchors of the ledger"
            hint = 'write staging = "s3://…", or give all machines a role and no storage_options'
            raise PolicyError(f"{msg} go there", hint)
        require_reach(spark, policy.ledger.url)
        gpu_profile(spark, self._gpus)
        if not is_local(spark) if self._check_workers is None else self._check_workers:
            columns = [] if policy.synthetic is not None else policy.column_policies()
            parts = [part for column in columns for part in (column.mechanism, *column.postprocess)]
            library = ["pyiceberg"] if self._source is not None and self._source.format == "iceberg" else []
            require_workers(spark, ["dptext_etl.engines.spark.tasks", *library], parts, [policy.key])
        table = open_table(self._frame, policy, layout)
        if self._source is None:
            return table
        exact = keeps_spelling(self._source, policy, layout, table.schema)
        return replace(table, origin=self._source.origin, exact=exact)

    def files(self, layout: Layout) -> Files | None:  # noqa: ARG002  (the frame is read already)
        """Return the version of a table with a log that the frame is, if it is one."""
        return None if self._source is None or self._source.version is None else self._source

    def examine(
        self, table: Table[DataFrame], policy: Policy, layout: Layout, progress: Listener | None
    ) -> Examined[DataFrame]:
        order = None
        if policy.shuffled is None and policy.records_per_subject is not None:
            columns = worker_columns(self._frame.sparkSession, policy.charged_columns())
            order = partial(keyed_order, policy_json(policy), columns)
        source = examine(table, policy, layout, order)
        Meter("ids", None, progress).add(source.total, last=True)
        return source

    def look(
        self,
        work: Work[DataFrame],
        meter: Meter,
        columns: list[Column],
        ledger: Ledger | None,  # noqa: ARG002  (tasks open their own)
        rows: DataFrame,
    ) -> Expected:
        """Look at the rows of a shard in the order in which it will charge them."""
        source = work.source
        if rows is source.every_row:
            source = replace(source, rows=rows, wanted=source.total - source.nameless)
        elif rows is not source.rows:  # the same rows, with marks
            source = replace(source, rows=rows)
        if not source.wanted:
            return Expected()
        attempt = replace(work.attempt, job=f"{work.attempt.job}-look")
        refs = {item.name: item.ref for item in columns}
        work = replace(work, attempt=attempt, source=source, refs=refs)
        preview = Expected.total(Expected(**facts) for facts in self._run(work, "look", meter))
        return replace(preview, spellings=source.spellings) if source.spellings else preview

    def compute(self, work: Work[DataFrame], phase: Phase, meter: Meter) -> list[ShardResult]:
        profile = gpu_profile(self._frame.sparkSession, self._gpus)
        results = self._run(work, phase, meter, None if phase == "reserve" else profile)
        if phase == "release":
            self.close()
        return [*map(ShardResult.of_json, results)]

    def close(self) -> None:
        """Let executors remove the rows that they keep; if the executors are gone, the rows are gone, too."""
        kept, self._kept = self._kept, None
        if kept is not None:
            with suppress(Exception):
                kept.unpersist(blocking=True)

    def _rows(self, work: Work[DataFrame], phase: Phase | Literal["look"], shards: range) -> DataFrame:
        """Return the rows of all shards, canary rows included.

        From their first use on, executors keep the rows of a run. They lie where the files of Spark's exchanges lie,
        and are gone after the last phase.
        """
        source = work.source
        published = source.rows is source.every_row
        once = published or HELD in source.rows.columns
        if once or self._kept is None:
            rows = planted(source.rows, () if published else work.plans, shards, work.attempt.policy)
            if once or phase == "release" or not bounds_batches(work.source.table.frame.sparkSession):
                return rows  # used once, or bundles would come all at once
            from pyspark import StorageLevel

            rows = rows.mapInArrow(bundled, f"{BUNDLE} binary")
            self._kept = rows.persist(StorageLevel.MEMORY_AND_DISK)
        return self._kept

    def _run(
        self, work: Work[DataFrame], phase: Phase | Literal["look"], meter: Meter, profile: Any = None
    ) -> list[dict[str, Any]]:
        attempt, policy = work.attempt, work.attempt.policy
        shards = numbers(work.source, policy)
        canary_rows = -(-len(work.plans) // len(shards)) * max((len(plan.rows) for plan in work.plans), default=0)
        rows = self._rows(work, phase, shards)
        config = TaskConfig(
            policy=policy_json(policy),
            columns=worker_columns(work.source.table.frame.sparkSession, attempt.columns),
            names=(*wanted_columns(policy), *([HELD] if HELD in work.source.rows.columns else [])),
            refs=work.refs,
            job=attempt.job,
            staging=attempt.layout.staging.absolute(),
            step=len(shards),
            most=policy.shard_rows + canary_rows,
            phase=phase,
            published=work.source.rows is work.source.every_row,
            checkpoint=work.checkpoint,
            digest=work.digest,
            pairs=work.pairs or None,
            bundled=rows is self._kept,
            zones={
                name: dtype.time_zone
                for name, dtype in work.source.table.schema.items()
                if isinstance(dtype, pl.Datetime) and dtype.time_zone not in {None, "UTC"}
            },
        )
        return run_tasks(rows, config, meter.add, profile)

    def judge(self, staged: StagedRun, candidate: Candidate, seen: Callable[[int], object]) -> tuple[Verdict, ...]:
        if staged.policy.synthetic is not None:  # one small table
            return super().judge(staged, candidate, seen)
        spark = self._frame.sparkSession
        policy, staging, staging_there = staged.policy, Staging(staged.layout.staging), staged.layout.staging.absolute()
        with seam("reading staged files", InputError, _HINT):
            footers = [*map_in_order(staging.footer, staged.shards, threads())]
        config = GateTaskConfig(
            policy=policy_json(policy),
            columns=worker_columns(spark, policy.column_policies()),
            refs=tuple(staged.refs.items()),
            partition=staged.partition,
            staging=staging_there,
            messages=TaskMessages(staging_there, f"{secrets.token_hex(16)}-gates"),
            canaries=json.dumps(plans_as_dicts(staged.canaries)),
            id_type=staged.canaries[0].id_dtype,
            rows=sum(rows for _, rows in footers),
        )
        candidate = replace(candidate, counted=config.rows)
        with seam("evaluating the gates", GateError, _HINT):
            gates = keyed(staged_gates(candidate, [schema for schema, _ in footers]))
            staged.profile.count("gates", rows=sum(shard.counts["rows"] for shard in staged.shards))
            with watched(config.messages, seen):
                tasks = over_items(spark, staged.shards, partial(show, config))
                packs = collected(exchanged(tasks))
            states = {pack.bucket: pickle.loads(pack.cells) for pack in packs if pack.kind == STATES}  # noqa: S301  (ours)
            for place in range(len(staged.shards)):
                for name, gate in gates.items():
                    merge(gate, states[place].get(name, {}))
            digests = totals(packs)
            for name, repeats in all_repeats(gates).items():
                repeats.add_counted(Counted(*digests.get(name, ())))
            return tuple(verdict for gate in gates.values() for verdict in verdicts_of(gate))

    def write(self, writer: Writer, shards: Iterable[StagedShard], on_rows: Callable[[int], object]) -> None:
        """Write parts on the executors.

        An attempt drafts a part under a unique name. The driver uses the one that Spark counts; the others go.
        """
        spark, shards = self._frame.sparkSession, list(shards)
        if not shards:
            return

        def moved(parts: Sequence[tuple[str, str, str]], on_part: Callable[[], object]) -> int:
            """Move parts, and return how many were missing in the sink or held other bytes."""
            config = WriteConfig.of(writer)
            frame = over_items(spark, parts, partial(move, config))
            return sum(map(read, _written(frame, config, lambda _: on_part(), len(parts))))

        folder = None if writer.staging.remote else writer.elsewhere()
        config = WriteConfig.of(writer, folder)
        packs = _written(over_items(spark, shards, partial(draft, config)), config, on_rows, len(shards))
        parts = [(pack.name, *read(pack)) for pack in packs]
        if folder is None:
            writer.take_objects(parts, moved)
            return
        for name, *facts in parts:
            writer.take(folder / name, *facts)


def gpu_profile(spark: Any, gpus: float) -> Any:
    """Return the resource profile that gives every task `gpus` GPUs, or None for 0."""
    if not gpus:
        return None
    if isinstance(gpus, bool) or not isinstance(gpus, int | float) or not (0 < gpus <= 0.5 or gpus == gpus // 1 > 0):
        msg = "gpus_per_task must be an integer of 0 or more, or a fraction of at most 0.5"
        raise PolicyError(msg, "for example 1, or 0.5 for two tasks on one GPU")
    if is_local(spark):
        msg = "a local master hands out no GPUs: tasks that request one would wait for ever"
        raise PolicyError(msg, "leave gpus_per_task out: a local run uses the device that its mechanism finds")
    from pyspark.sql import DataFrame

    if "profile" not in signature(DataFrame.mapInArrow).parameters:
        raise PolicyError("gpus_per_task needs Spark 4.0 or newer", "set spark.task.resource.gpu.amount instead")
    from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

    with seam("asking Spark for GPUs", PolicyError, "executors need spark.executor.resource.gpu.amount"):
        wanted = TaskResourceRequests().cpus(1).resource("gpu", gpus)
        return ResourceProfileBuilder().require(wanted).build
