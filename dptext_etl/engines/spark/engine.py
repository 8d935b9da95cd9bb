"""Compute a run on the executors of Spark; the driver gets counts and hashes, but no rows.

Driver and executors share storage under one path for staging and sink, or an object store for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import polars as pl

from dptext_etl.checks import Candidate, Verdict
from dptext_etl.engines.engine import Engine, Work
from dptext_etl.engines.spark.asking import require_workers
from dptext_etl.engines.spark.compute import compute
from dptext_etl.engines.spark.examine import examine, open_table, present
from dptext_etl.engines.spark.judging import judge
from dptext_etl.engines.spark.ledger_url import require_reach
from dptext_etl.engines.spark.profile import gpu_profile
from dptext_etl.engines.spark.shards import numbers
from dptext_etl.engines.spark.shipping import is_local
from dptext_etl.engines.spark.store_parts import write_to_store
from dptext_etl.engines.spark.writing import write
from dptext_etl.errors import PolicyError
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.progress import Listener, Meter
from dptext_etl.runner.publish.parts import Writer
from dptext_etl.runner.shard.done import Done, Phase
from dptext_etl.runner.shard.planting import canary_sets
from dptext_etl.runner.shard.records import StagedShard
from dptext_etl.runner.source.examined import Examined
from dptext_etl.runner.source.roles import Table
from dptext_etl.runner.staged import StagedRun

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
        if layout.inside.remote and not layout.remote_sink:
            msg = "staging is in an object store and the sink is not: executors may share nothing else with the driver"
            raise PolicyError(msg, 'write a sink of the same store: sink = "s3://…"; or a folder as staging')
        require_reach(spark, policy.ledger.url)
        gpu_profile(spark, self._gpus)
        if not is_local(spark) if self._check_workers is None else self._check_workers:
            columns = policy.column_policies()
            parts = [part for column in columns for part in (column.mechanism, *column.postprocess)]
            require_workers(spark, ["dptext_etl.engines.spark.tasks"], parts)
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

    def present(self, source: Examined[DataFrame], ids: pl.Series) -> pl.Series:
        """Look the ids up on the executors."""
        return present(source, ids)

    def canary_sets(self, source: Examined[DataFrame], policy: Policy) -> range:
        """Plan a set for each shard at least; rows are spread over shards by their ids."""
        return canary_sets(source.first, source.wanted, len(numbers(source, policy)))

    def compute(self, work: Work[DataFrame], phase: Phase, meter: Meter) -> list[Done]:
        """Let the executors take the shards through the phase."""
        return compute(work, phase, meter, gpu_profile(self._frame.sparkSession, self._gpus))

    def judge(self, staged: StagedRun, candidate: Candidate, seen: Callable[[int], object]) -> tuple[Verdict, ...]:
        """Let the executors show the staged rows to the gates."""
        return judge(self._frame.sparkSession, staged, candidate, seen)

    def write(self, writer: Writer, shards: Iterable[StagedShard], each: Callable[[int], object]) -> None:
        """Let the executors write the parts."""
        if writer.inside.remote:
            write_to_store(self._frame.sparkSession, writer, shards, each)
        else:
            write(self._frame.sparkSession, writer, shards, each)
