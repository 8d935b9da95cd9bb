"""Stage and commit the shards of a raw table: all steps of a run before its gates."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from dptext_etl.checks.canaries.rows import CanaryPlan, plant
from dptext_etl.ledger import Ledger, Outcome, ReleaseRef
from dptext_etl.policy import Policy, PolicyLike, resolve
from dptext_etl.runner.computed import Places, together
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.progress import Listener, Meter
from dptext_etl.runner.shard.attempt import Attempt, refuse_other_rows, refuse_over_cap, row_counts, shards_of
from dptext_etl.runner.shard.planting import plan_canaries, present_in
from dptext_etl.runner.shard.shard import Checkpoint, Shards
from dptext_etl.runner.shard.staging import StagedShard, Staging
from dptext_etl.runner.source.open import Opened, open_source
from dptext_etl.runner.source.roles import Table
from dptext_etl.runner.source.table import batches

log = logging.getLogger("dptext_etl.runner")


@dataclass(frozen=True)
class StagedRun:
    """A run whose rows are computed, staged and committed, but not yet judged or published.

    It holds paths, counts and public facts; `runner.reload` writes it as JSON for another process.

    Attributes:
        policy: The policy of the run.
        partition: Name of the partition, or None.
        shards: The staged shards, in order; none if there was nothing new.
        canaries: The canary rows of each shard.
        refs: The pinned release of each text column.
        rows: Row counts: read, already_published, new, resumed, replayed, quarantined, released, null (texts).
        dropped: Columns of the source that the policy does not name.
        base: Digest of the manifest that an incremental run adds to, or None.
        seconds: The duration of staging.
    """

    policy: Policy
    partition: str | None
    shards: tuple[StagedShard, ...]
    canaries: tuple[CanaryPlan, ...] = field(repr=False)
    refs: dict[str, ReleaseRef]
    rows: dict[str, int]
    dropped: tuple[str, ...]
    base: str | None
    seconds: float

    @property
    def layout(self) -> Layout:
        """The places of the run."""
        return Layout.of(self.policy, self.partition)

    @property
    def computed(self) -> Places:
        """Where and in what models computed, by text column."""
        return together(shard.computed for shard in self.shards)

    @property
    def parts(self) -> tuple[Path, ...]:
        """The staged files, canary rows included."""
        staging = Staging(self.layout.staging)
        return tuple(staging.path(shard) for shard in self.shards)


def nothing(_: str) -> None:
    """Do nothing: the checkpoint of real runs."""


def stage(
    policy: PolicyLike,
    *,
    partition: str | None = None,
    progress: Listener | None = None,
    checkpoint: Checkpoint = nothing,
) -> StagedRun:
    """Check a source, then charge, compute, stage and commit it shard by shard.

    A run that was killed at any point goes on where it stopped: nothing is charged or drawn twice.

    Args:
        policy: The policy, or the path of its file.
        partition: Name of the partition, where the policy has a place for one.
        progress: Called with counts, rate and the time that is left.
        checkpoint: Called after every step, for tests.

    Raises:
        InputError: The source does not fit the policy; nothing was spent.
        BudgetError: With on_cap = "refuse", records are over the cap; nothing was computed, reservations are given
            back.
        LedgerError: The ledger contradicts the policy, is locked, or holds other bytes for a record.
    """
    policy = resolve(policy)
    attempt = Attempt.of(policy, partition)
    table = Table.open(policy, attempt.layout)
    with attempt.alone() as staging:
        source = open_source(policy, attempt.layout, table, progress)
        checkpoint("checked")
        numbers = attempt.numbers(source.first, source.wanted)
        dtype, present = table.schema[policy.id], present_in(table, policy.id)
        plans = plan_canaries(policy, dtype, present, attempt.secret, numbers, partition)
        with Ledger.open(policy.ledger.url, policy.ledger.id_key) as ledger:
            refs = attempt.register(ledger, table.id_type)
            checkpoint("registered")
            shards = shards_of(policy, attempt.columns, refs, ledger, attempt.job, staging, checkpoint)
            if attempt.refusing:
                _reserve_all(
                    shards, _planted(source, plans, policy, checkpoint), Meter("reserve", source.wanted, progress)
                )
            meter = Meter("release", source.wanted, progress)
            staged = []
            for raw, plan in _planted(source, plans, policy, checkpoint):
                staged.append(shards.release(raw, plan.shard, count=not attempt.refusing))
                meter.add(raw.height - len(plan.rows))
        staging.keep_only(staged)
    rows = row_counts(source.total, source.wanted, shards.outcomes, staged)
    log.info("staged: %s", rows)
    seconds = time.monotonic() - attempt.began
    return StagedRun(policy, partition, tuple(staged), tuple(plans), refs, rows, table.dropped, source.base, seconds)


def _planted(
    source: Opened, plans: list[CanaryPlan], policy: Policy, checkpoint: Checkpoint
) -> Iterator[tuple[pl.DataFrame, CanaryPlan]]:
    """Read the shards and plant their canary rows; refuse a source that changes before more of it is used."""
    seen = 0
    for index, raw in enumerate(batches(source.frame, policy.shard_rows)):
        seen += raw.height
        if seen > source.wanted:
            break
        planted = plant(raw, plans[index], policy)
        checkpoint("planted")
        yield planted, plans[index]
    refuse_other_rows(source.wanted, seen)


def _reserve_all(shards: Shards, raw: Iterator[tuple[pl.DataFrame, CanaryPlan]], meter: Meter) -> None:
    """Charge a whole run before any of it is computed, or give everything back."""
    for frame, plan in raw:
        shards.reserve(frame)
        meter.add(frame.height - len(plan.rows))
    refuse_over_cap(shards.outcomes[Outcome.OVER_CAP.name], shards.give_back)
