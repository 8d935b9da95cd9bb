"""Compute a run on the executors of Spark; the driver gets counts and hashes, but no rows.

Driver and executors share storage under one path for staging and sink, or an object store for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from dptext_etl.checks import Candidate, Verdict
from dptext_etl.checks.canaries import CanaryPlan
from dptext_etl.engines.engine import Engine, Work
from dptext_etl.engines.spark.examine import examine, open_table, present
from dptext_etl.engines.spark.judging import judge
from dptext_etl.engines.spark.session import require_workers
from dptext_etl.engines.spark.shards import numbers, planted
from dptext_etl.engines.spark.synthetic import SparkRecords
from dptext_etl.engines.spark.task_messages import watched
from dptext_etl.engines.spark.tasks import (
    AGAIN,
    SCHEMA,
    TaskConfig,
    read,
    refused_first,
    remember_tasks,
    task,
    written,
)
from dptext_etl.engines.spark.worker_policy import is_local, require_reach, worker_columns
from dptext_etl.engines.spark.writing import write, write_to_store
from dptext_etl.errors import DPTextError, PolicyError, seam
from dptext_etl.ledger import Ledger
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.preflight import Expected
from dptext_etl.runner.progress import Listener, Meter, nothing
from dptext_etl.runner.publish.parts import Writer
from dptext_etl.runner.shard.attempt import Attempt
from dptext_etl.runner.shard.canaries import canary_sets
from dptext_etl.runner.shard.charging import Column
from dptext_etl.runner.shard.records import StagedShard
from dptext_etl.runner.shard.results import Phase, ShardResult
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.source.examine import Examined
from dptext_etl.runner.source.roles import Table, wanted_columns
from dptext_etl.runner.staged import StagedRun
from dptext_etl.runner.synthetic.attempt import SyntheticAttempt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class SparkEngine(Engine["DataFrame"]):
    """Compute shards on the executors of a Spark session, classic or Connect."""

    def __init__(self, df: DataFrame, gpus_per_task: int = 0, check_workers: bool | None = None) -> None:
        self._frame = df
        self._gpus = gpus_per_task
        self._check_workers = check_workers

    def open(self, policy: Policy, layout: Layout) -> Table[DataFrame]:
        """Check the columns of the frame, and that the executors can compute and can reach the ledger."""
        spark = self._frame.sparkSession
        if layout.staging.remote and not layout.remote_sink:
            msg = "staging is in an object store and the sink is not: executors may share nothing else with the driver"
            raise PolicyError(msg, 'write a sink of the same store: sink = "s3://…"; or a folder as staging')
        require_reach(spark, policy.ledger.url)
        gpu_profile(spark, self._gpus)
        if not is_local(spark) if self._check_workers is None else self._check_workers:
            columns = [] if policy.synthetic is not None else policy.column_policies()
            parts = [part for column in columns for part in (column.mechanism, *column.postprocess)]
            require_workers(spark, ["dptext_etl.engines.spark.tasks", "dptext_etl.engines.spark.synthetic"], parts)
        return open_table(self._frame, policy, layout)

    def examine(
        self,
        table: Table[DataFrame],
        policy: Policy,
        layout: Layout,
        progress: Listener | None,
    ) -> Examined[DataFrame]:
        """Check the ids by aggregation on the executors."""
        meter = Meter("ids", None, progress)
        found = examine(table, policy, layout)
        meter.add(found.total)
        meter.end()
        return found

    def records(self, attempt: SyntheticAttempt, table: Table[DataFrame], progress: Listener | None) -> SparkRecords:
        """Check the ids by aggregation on the executors."""
        meter = Meter("ids", None, progress)
        found = SparkRecords(attempt, table)
        meter.add(found.total)
        meter.end()
        return found

    def present(self, source: Examined[DataFrame], ids: pl.Series) -> pl.Series:
        """Look the ids up on the executors."""
        return present(source, ids)

    def canary_sets(self, source: Examined[DataFrame], policy: Policy) -> range:
        """Plan a set for each shard at least; rows are spread over shards by their ids."""
        return canary_sets(source.first, source.wanted, len(numbers(source, policy)))

    def look(  # noqa: PLR0917
        self,
        attempt: Attempt,
        source: Examined[DataFrame],
        plans: Sequence[CanaryPlan],
        staging: Staging,
        meter: Meter,
        columns: list[Column],
        ledger: Ledger | None,  # noqa: ARG002  (tasks open it themselves)
        rows: DataFrame,
    ) -> Expected:
        """Let the executors look at the rows, those of a shard in the order in which it will charge them."""
        if not plans and rows is source.rows:  # there are no new rows, and published ones may have changed
            return Expected()
        refs = {item.name: item.ref for item in columns}
        work = Work(replace(attempt, job=f"{attempt.job}-look"), source, plans, refs, staging, nothing)
        found = _records(work, "look", rows, meter, None)
        return Expected.total(Expected(**facts) for facts in found)

    def compute(self, work: Work[DataFrame], phase: Phase, meter: Meter) -> list[ShardResult]:
        """Let the executors take the shards through the phase."""
        return _compute(work, phase, meter, gpu_profile(self._frame.sparkSession, self._gpus))

    def judge(self, staged: StagedRun, candidate: Candidate, seen: Callable[[int], object]) -> tuple[Verdict, ...]:
        """Let the executors show the staged rows to the gates."""
        return judge(self._frame.sparkSession, staged, candidate, seen)

    def write(self, writer: Writer, shards: Iterable[StagedShard], each: Callable[[int], object]) -> None:
        """Let the executors write the parts."""
        if writer.staging.remote:
            write_to_store(self._frame.sparkSession, writer, shards, each)
        else:
            write(self._frame.sparkSession, writer, shards, each)


def _compute(work: Work[DataFrame], phase: Phase, meter: Meter, profile: Any) -> list[ShardResult]:
    """Take all shards through a phase (see `Engine.compute`)."""
    found = _records(work, phase, work.source.rows, meter, None if phase == "reserve" else profile)
    remember_tasks(work.attempt.policy, work.attempt.layout, work.attempt.job)
    return [ShardResult(**facts) for facts in found]


def _records(
    work: Work[DataFrame], phase: Phase | Literal["look"], rows: DataFrame, meter: Meter, profile: Any
) -> list[dict[str, Any]]:
    """Let tasks take rows through a phase, and return what they say."""
    config = _task_config(work, phase)
    shards = _shards(work)
    placed = planted(rows, work.plans, shards, work.attempt.policy)
    made = placed.mapInArrow(task(config), SCHEMA, **({} if profile is None else {"profile": profile}))
    with watched(config.messages, meter.add), seam("computing on Spark", DPTextError, AGAIN):
        found = [row[0] for row in made.collect()]
    return [read(record) for record in sorted(found, key=refused_first)]


def _shards(work: Work[DataFrame]) -> range:
    """Return the numbers of the shards; published rows that are looked at have one where no row is new."""
    return numbers(work.source, work.attempt.policy) or range(work.source.first, work.source.first + 1)


def _task_config(work: Work[DataFrame], phase: Phase | Literal["look"]) -> TaskConfig:
    attempt, spark = work.attempt, work.source.table.frame.sparkSession
    policy = attempt.policy
    shards = len(_shards(work))
    planted_rows = -(-len(work.plans) // shards) * max((len(plan.rows) for plan in work.plans), default=0)
    return TaskConfig(
        policy=written(policy),
        columns=worker_columns(spark, attempt.columns),
        names=wanted_columns(policy),
        refs=work.refs,
        job=attempt.job,
        staging=attempt.layout.staging.absolute(),
        memory=attempt.layout.memory.absolute(),
        step=shards,
        most=policy.shard_rows + planted_rows,
        phase=phase,
        checkpoint=work.checkpoint,
    )


def gpu_profile(spark: Any, gpus: int) -> Any:
    """Return the resource profile that gives every task `gpus` GPUs, or None for 0."""
    if not gpus:
        return None
    if isinstance(gpus, bool) or not isinstance(gpus, int) or gpus < 0:
        raise PolicyError("gpus_per_task is a whole number, 0 or more")
    if is_local(spark):
        msg = "a local master hands out no GPUs: tasks that request one would wait for ever"
        raise PolicyError(msg, "leave gpus_per_task out: a local run uses the device that its mechanism finds")
    try:
        from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests
    except ImportError:
        made = None
    else:
        with seam("asking Spark for GPUs", PolicyError, "executors need spark.executor.resource.gpu.amount"):
            wanted = TaskResourceRequests().cpus(1).resource("gpu", gpus)
            made = ResourceProfileBuilder().require(wanted).build
    if made is None or not _takes_profiles():
        raise PolicyError("gpus_per_task needs Spark 4.0 or newer", "set spark.task.resource.gpu.amount instead")
    return made


def _takes_profiles() -> bool:
    from pyspark.sql import DataFrame

    return "profile" in signature(DataFrame.mapInArrow).parameters
