"""Say what an engine does for a run: it examines the raw table, numbers its shards, and computes them.

Everything else of a run (keys, canary rows, ledger, gates, publication) is the same for all engines. The rooms `local`
and `spark` have files of the same names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

import polars as pl

from dptext_etl.checks.canaries.rows import CanaryPlan
from dptext_etl.ledger import ReleaseRef
from dptext_etl.policy import Policy
from dptext_etl.runner.checkpoint import Checkpoint
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.progress import Listener, Meter
from dptext_etl.runner.shard.attempt import Attempt
from dptext_etl.runner.shard.done import Done, Phase
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.source.examined import Examined
from dptext_etl.runner.source.roles import Rows, Table


@dataclass(frozen=True)
class Work(Generic[Rows]):
    """The shards that an engine computes, and what it needs for them.

    Attributes:
        attempt: The attempt at the run: policy, places, columns, its name in the ledger.
        source: The checked source.
        plans: The canary rows of each shard, in the order of the shards.
        refs: The pinned release of each text column.
        staging: Where results wait for the gates.
        checkpoint: Called after every step.
    """

    attempt: Attempt
    source: Examined[Rows]
    plans: Sequence[CanaryPlan]
    refs: Mapping[str, ReleaseRef]
    staging: Staging
    checkpoint: Checkpoint


class Engine(ABC, Generic[Rows]):
    """What computes the shards of a run. One engine serves one run at a time."""

    @abstractmethod
    def open(self, policy: Policy, layout: Layout) -> Table[Rows]:
        """Open the raw table and check its columns. Nothing is made or charged before.

        Args:
            policy: The policy of the run.
            layout: The places of the run.

        Raises:
            InputError: Columns are missing, unnamed (strict_columns) or of a wrong type.
            LedgerError: This engine does not reach the ledger.
        """

    @abstractmethod
    def examine(self, table: Table[Rows], policy: Policy, layout: Layout, progress: Listener | None) -> Examined[Rows]:
        """Check ids and subjects, and leave out what an incremental run finds published.

        Args:
            table: The opened table.
            policy: The policy of the run.
            layout: The places of the run.
            progress: Called with counts and rate.

        Raises:
            InputError: No rows; null or repeated ids; null subjects where caps are per subject.
            PolicyError: The sink holds something that the run does not fit.
        """

    @abstractmethod
    def present(self, source: Examined[Rows], ids: pl.Series) -> pl.Series:
        """Return which of these ids, of the type of the source, the source uses."""

    @abstractmethod
    def shards(self, source: Examined[Rows], policy: Policy) -> range:
        """Number the shards of a source; every attempt at a run gets the same numbers."""

    @abstractmethod
    def compute(self, work: Work[Rows], phase: Phase, meter: Meter) -> list[Done]:
        """Take all shards through a phase.

        Args:
            work: The shards.
            phase: "reserve" charges only; "release" charges, computes, stages and commits.
            meter: Counts finished rows.

        Returns:
            What became of each shard, in any order.

        Raises:
            InputError: The source changed, or there is no room to stage.
            BudgetError: With on_cap = "refuse", a record is over the cap that was not there before.
            LedgerError: The ledger is out of reach, or holds other bytes for a record.
        """
