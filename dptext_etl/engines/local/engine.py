"""Compute a run in this process: read the files with Polars, and take one shard after the other."""

from __future__ import annotations

import polars as pl

from dptext_etl.engines.engine import Engine, Work
from dptext_etl.engines.local.compute import compute
from dptext_etl.engines.local.examine import present
from dptext_etl.engines.local.shards import numbers
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import Layout, is_remote
from dptext_etl.runner.progress import Listener, Meter
from dptext_etl.runner.shard.done import Done, Phase
from dptext_etl.runner.source.examined import Examined, examine
from dptext_etl.runner.source.roles import Table, open_table
from dptext_etl.runner.source.table import Files


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
        """Check the ids in bounded memory.

        Args:
            table: The opened table.
            policy: The policy of the run.
            layout: The places of the run.
            progress: Called with counts and rate.
        """
        return examine(table, policy, layout, progress)

    def present(self, source: Examined[pl.LazyFrame], ids: pl.Series) -> pl.Series:
        """Look the ids up in the files."""
        return present(source, ids)

    def shards(self, source: Examined[pl.LazyFrame], policy: Policy) -> range:
        """Cut the rows in their order; a shard ends where its rows or their bytes are enough."""
        return numbers(source, policy)

    def compute(self, work: Work[pl.LazyFrame], phase: Phase, meter: Meter) -> list[Done]:
        """Take one shard after the other through the phase.

        Args:
            work: The shards.
            phase: "reserve" charges only; "release" charges, computes, stages and commits.
            meter: Counts finished rows.
        """
        return compute(work, phase, meter)
