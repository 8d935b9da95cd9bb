"""Compute a run on the executors of Spark; the driver gets counts and hashes, but no rows.

Driver and executors share storage under one path for staging and sink, or an object store for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, Self

import polars as pl

from dptext_etl.checks import Candidate, Verdict
from dptext_etl.engines.engine import Engine, Work
from dptext_etl.engines.spark.frames import examine, numbers, open_table, planted, present, traced
from dptext_etl.engines.spark.judging import judge
from dptext_etl.engines.spark.session import read_source, require_workers, session
from dptext_etl.engines.spark.tasks import TaskConfig, keyed_order, policy_json, remember_tasks, run_tasks
from dptext_etl.engines.spark.worker_policy import is_local, require_reach, worker_columns
from dptext_etl.engines.spark.writing import write
from dptext_etl.errors import PolicyError, seam
from dptext_etl.ledger import Ledger
from dptext_etl.ledger.anchor_files import place_of
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.preview import Expected
from dptext_etl.runner.progress import Listener, Meter
from dptext_etl.runner.publish.parts import Writer
from dptext_etl.runner.shard.canaries import canary_sets
from dptext_etl.runner.shard.charging import Column
from dptext_etl.runner.shard.records import StagedShard
from dptext_etl.runner.shard.results import Phase, ShardResult
from dptext_etl.runner.source.examine import Examined
from dptext_etl.runner.source.kept_types import keeps_spelling
from dptext_etl.runner.source.roles import Table, wanted_columns
from dptext_etl.runner.source.table import Files
from dptext_etl.runner.staged import StagedRun

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class SparkEngine(Engine["DataFrame"]):
    """Compute shards on the executors of a Spark session, classic or Connect."""

    def __init__(
        self,
        df: DataFrame,
        gpus_per_task: float = 0,
        check_workers: bool | None = None,
        source: Files | None = None,
    ) -> None:
        self._frame = df
        self._source = source  # where the frame was read from, if a command did so
        self._gpus = gpus_per_task
        self._check_workers = check_workers

    @classmethod
    @contextmanager
    def started(cls, policy: Policy, partition: str | None) -> Iterator[Self]:
        """Use the Spark that is configured here, or otherwise all cores of this machine."""
        with session() as spark:
            source = Files.find(Layout.of(policy, partition))
            yield cls(read_source(spark, policy, partition, source), source=source)

    def open(self, policy: Policy, layout: Layout) -> Table[DataFrame]:
        """Check the columns of the frame, and that the executors can compute and can reach the ledger."""
        spark = self._frame.sparkSession
        if layout.staging.remote and not layout.remote_sink:
            msg = "staging is in an object store and the sink is not: executors may share nothing else with the driver"
            raise PolicyError(msg, 'write a sink of the same store: sink = "s3://…"; or a folder as staging')
        if place_of(policy.ledger.anchors).remote and policy.storage_options and not layout.staging.remote:
            msg = "executors get the options of a store only with staging in a store, and heads of the ledger go there"
            raise PolicyError(msg, 'write staging = "s3://…", or give all machines a role and no storage_options')
        require_reach(spark, policy.ledger.url)
        gpu_profile(spark, self._gpus)
        if not is_local(spark) if self._check_workers is None else self._check_workers:
            columns = [] if policy.synthetic is not None else policy.column_policies()
            parts = [part for column in columns for part in (column.mechanism, *column.postprocess)]
            require_workers(spark, ["dptext_etl.engines.spark.tasks"], parts, [policy.key])
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
        if policy.unlinked is None and policy.records_per_subject is not None:
            columns = worker_columns(self._frame.sparkSession, policy.charged_columns())
            order = partial(keyed_order, policy_json(policy), columns)
        source = examine(table, policy, layout, order)
        meter = Meter("ids", None, progress)
        meter.add(source.total)
        meter.end()
        return source

    def present(self, source: Examined[DataFrame], ids: pl.Series) -> pl.Series:
        return present(source, ids)

    def canary_sets(self, source: Examined[DataFrame], policy: Policy) -> range:
        """Plan a set for each shard at least; rows are spread over shards by their ids."""
        return canary_sets(source.first, source.wanted, len(numbers(source, policy)))

    trace = staticmethod(traced)

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
        if rows is source.known:
            source = replace(source, rows=rows, wanted=source.total - source.nameless)
        if not source.wanted:
            return Expected()
        attempt = replace(work.attempt, job=f"{work.attempt.job}-look")
        refs = {item.name: item.ref for item in columns}
        work = replace(work, attempt=attempt, source=source, plans=(), refs=refs)
        return Expected.total(Expected(**facts) for facts in _run(work, "look", meter, None))

    def compute(self, work: Work[DataFrame], phase: Phase, meter: Meter) -> list[ShardResult]:
        profile = gpu_profile(self._frame.sparkSession, self._gpus)
        found = _run(work, phase, meter, None if phase == "reserve" else profile)
        remember_tasks(work.attempt.policy, work.attempt.layout, work.attempt.job)
        return [ShardResult(**facts) for facts in found]

    def judge(self, staged: StagedRun, candidate: Candidate, seen: Callable[[int], object]) -> tuple[Verdict, ...]:
        if staged.policy.synthetic is not None:  # one small table
            return super().judge(staged, candidate, seen)
        return judge(self._frame.sparkSession, staged, candidate, seen)

    def write(self, writer: Writer, shards: Iterable[StagedShard], each: Callable[[int], object]) -> None:
        write(self._frame.sparkSession, writer, shards, each)


def _run(work: Work[DataFrame], phase: Phase | Literal["look"], meter: Meter, profile: Any) -> list[dict[str, Any]]:
    attempt, policy = work.attempt, work.attempt.policy
    shards = numbers(work.source, policy)
    canary_rows = -(-len(work.plans) // len(shards)) * max((len(plan.rows) for plan in work.plans), default=0)
    config = TaskConfig(
        policy=policy_json(policy),
        columns=worker_columns(work.source.table.frame.sparkSession, attempt.columns),
        names=wanted_columns(policy),
        refs=work.refs,
        job=attempt.job,
        staging=attempt.layout.staging.absolute(),
        memory=attempt.layout.memory.absolute(),
        step=len(shards),
        most=policy.shard_rows + canary_rows,
        phase=phase,
        known=work.source.rows is work.source.known,
        checkpoint=work.checkpoint,
        digest=work.digest,
    )
    return run_tasks(planted(work.source.rows, work.plans, shards, policy), config, meter.add, profile)


def gpu_profile(spark: Any, gpus: float) -> Any:
    """Return the resource profile that gives every task `gpus` GPUs, or None for 0."""
    if not gpus:
        return None
    if isinstance(gpus, bool) or not isinstance(gpus, int | float) or not (0 < gpus <= 0.5 or gpus == gpus // 1 > 0):
        raise PolicyError("gpus_per_task is a whole number, 0 or more, or a fraction of at most 0.5, as Spark has it")
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
