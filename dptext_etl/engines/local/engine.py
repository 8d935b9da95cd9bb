"""Compute a run in this process: read the files with Polars, and take shards side by side."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from dptext_etl.checks.canaries import CanaryPlan
from dptext_etl.device import threads
from dptext_etl.engines.engine import Engine, Work
from dptext_etl.engines.local.compute import compute
from dptext_etl.ledger import Ledger
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import Layout, is_remote
from dptext_etl.runner.preflight import Expected, Preview, preview_rows
from dptext_etl.runner.progress import Listener, Meter
from dptext_etl.runner.shard.attempt import Attempt
from dptext_etl.runner.shard.canaries import canary_sets
from dptext_etl.runner.shard.charging import Column
from dptext_etl.runner.shard.results import Phase, ShardResult
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.source import cutting
from dptext_etl.runner.source.examine import Examined, examine, present
from dptext_etl.runner.source.roles import Table, open_table
from dptext_etl.runner.source.table import Files

if TYPE_CHECKING:
    from dptext_etl.engines.local.synthetic import LocalRecords
    from dptext_etl.runner.synthetic.attempt import SyntheticAttempt


class LocalEngine(Engine[pl.LazyFrame]):
    """This process."""

    def open(self, policy: Policy, layout: Layout) -> Table[pl.LazyFrame]:
        """Scan the files of the source."""
        return open_table(policy, layout)

    def files(self, layout: Layout) -> Files | None:
        """Find plain files in folders; objects of a store, and tables with a log of their own, are read as they are."""
        found = Files.find(layout)
        return found if found.version is None and not is_remote(layout.source) else None

    def examine(
        self, table: Table[pl.LazyFrame], policy: Policy, layout: Layout, progress: Listener | None
    ) -> Examined[pl.LazyFrame]:
        """Check the ids in bounded memory, and count the shards; rows of a small source are read once, and kept."""
        leaves = policy.on_null_subject == "quarantine" and policy.unit == "subject"
        fewer = policy.incremental or policy.unlinked is not None or leaves  # which rows it takes must be known first
        later = fewer or threads() == 1
        with ThreadPoolExecutor(1, thread_name_prefix="dptext-count") as beside:
            counting = None if later else beside.submit(cutting.counted, table.frame, policy)
            found = examine(table, policy, layout, progress)
            shards, rows = cutting.counted(found.rows, policy) if counting is None else counting.result()
        return replace(found, rows=rows, shards=shards)

    def records(self, attempt: SyntheticAttempt, table: Table[pl.LazyFrame], progress: Listener | None) -> LocalRecords:
        """Check the ids in bounded memory."""
        from dptext_etl.engines.local.synthetic import LocalRecords

        return LocalRecords(attempt, table, progress)

    def present(self, source: Examined[pl.LazyFrame], ids: pl.Series) -> pl.Series:
        """Look the ids up in the files."""
        return present(source, ids)

    def canary_sets(self, source: Examined[pl.LazyFrame], policy: Policy) -> range:
        """Plan a set for each shard that the rows would fill if texts took no room, at least."""
        return canary_sets(source.first, source.wanted, -(-source.wanted // policy.shard_rows))

    def look(  # noqa: PLR0917
        self,
        attempt: Attempt,
        source: Examined[pl.LazyFrame],  # noqa: ARG002  (Spark's shards need it)
        plans: Sequence[CanaryPlan],  # noqa: ARG002
        staging: Staging,
        meter: Meter,
        columns: list[Column],
        ledger: Ledger | None,
        rows: pl.LazyFrame,
    ) -> Expected:
        """Take the rows one frame after the other."""
        return preview_rows(Preview(attempt.policy, columns, ledger, staging.changed), rows, meter)

    def compute(self, work: Work[pl.LazyFrame], phase: Phase, meter: Meter) -> list[ShardResult]:
        """Take the shards through the phase, side by side where mechanisms allow it."""
        return compute(work, phase, meter)
