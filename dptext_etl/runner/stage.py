"""From a raw table to staged and committed shards: everything of a run that happens before its gates."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from dptext_etl._kernel import Secret
from dptext_etl.checks.canaries import CanaryPlan
from dptext_etl.errors import BudgetError, InputError, KeyReferenceError
from dptext_etl.ledger import Ledger, Outcome, ReleaseRef
from dptext_etl.policy import ColumnPolicy, Policy
from dptext_etl.runner import durable
from dptext_etl.runner.charging import Column
from dptext_etl.runner.claims import register
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.opening import open_source
from dptext_etl.runner.planting import plan_canaries
from dptext_etl.runner.progress import Listener, Meter
from dptext_etl.runner.roles import Table
from dptext_etl.runner.shards import Checkpoint, Shards
from dptext_etl.runner.source import batches
from dptext_etl.runner.staging import StagedShard, Staging

log = logging.getLogger("dptext_etl.runner")


@dataclass(frozen=True)
class StagedRun:
    """A run whose rows are computed, staged and committed, but neither judged nor published.

    Holds paths, counts and public facts; `runner.reload` writes it as JSON for another process.

    Attributes:
        policy: The run's policy.
        partition: Name of the partition, or None.
        shards: The staged shards, in order; none if there was nothing new.
        canaries: The canary rows of each shard.
        refs: Registered release of each text column.
        rows: Row counts: read, already_published, new, resumed, replayed, quarantined, released, null (texts).
        dropped: Columns of the source that nothing names.
        base: Digest of the manifest that an incremental run adds to, or None.
        seconds: How long staging took.
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
        """The run's places."""
        return Layout.of(self.policy, self.partition)

    @property
    def parts(self) -> tuple[Path, ...]:
        """The staged files, canary rows included."""
        staging = Staging(self.layout.staging)
        return tuple(staging.path(shard.index) for shard in self.shards)


def nothing(_: str) -> None:
    """The checkpoint of real runs."""


def stage(
    policy: Policy, *, partition: str | None = None, progress: Listener | None = None, checkpoint: Checkpoint = nothing
) -> StagedRun:
    """Check a source, then charge, compute, stage and commit it shard by shard.

    Killed at any point and called again, it goes on where it was: nothing is charged or drawn twice.

    Args:
        policy: What to do.
        partition: Which partition, where the policy has a place for one.
        progress: Called with counts, rate and what is left.
        checkpoint: Called after every step, for tests.

    Raises:
        InputError: The source is not as the policy says; nothing was spent.
        BudgetError: Records over the cap with on_cap = "refuse"; nothing was computed, what was reserved is given back.
        LedgerError: The ledger contradicts the policy, is locked, or holds other bytes for a record.
    """
    began = time.monotonic()
    layout = Layout.of(policy, partition)
    columns = policy.column_policies()
    secret = _usable_secret(policy, columns[0])
    table = Table.open(policy, layout)
    staging = Staging(layout.staging)
    staging.prepare()
    if not layout.remote_sink:
        durable.require_writable(Path(layout.sink))
    with durable.alone(staging.folder, "of this release is under way"):
        source = open_source(policy, layout, table, progress)
        checkpoint("checked")
        frame, wanted = source.frame, source.wanted
        numbers = range(source.first, source.first - (-wanted // policy.shard_rows))
        plans = plan_canaries(policy, table, secret, numbers, partition)
        with Ledger.open(policy.ledger.url, policy.ledger.id_key) as ledger:
            refs = {item.column or "": register(ledger, policy, item, table.id_type) for item in columns}
            checkpoint("registered")
            charged = [Column(item, refs[item.column or ""], item.release_key()) for item in columns]
            shards = Shards(policy, charged, ledger, uuid.uuid4().hex, staging, checkpoint)
            refusing = policy.on_cap == "refuse" and policy.cap is not None
            if refusing:
                _reserve_all(shards, _shards(frame, plans, policy, wanted), Meter("reserve", wanted, progress))
            meter = Meter("release", wanted, progress)
            staged = []
            for raw, plan in _shards(frame, plans, policy, wanted):
                staged.append(shards.release(raw, plan, count=not refusing))
                meter.add(raw.height)
        staging.keep_only(numbers)
    rows = {"read": source.total, "already_published": source.total - wanted, **_counts(shards, staged)}
    log.info("staged: %s", rows)
    seconds = time.monotonic() - began
    return StagedRun(policy, partition, tuple(staged), tuple(plans), refs, rows, table.dropped, source.base, seconds)


def _shards(
    frame: pl.LazyFrame, plans: list[CanaryPlan], policy: Policy, wanted: int
) -> Iterator[tuple[pl.DataFrame, CanaryPlan]]:
    """Read the shards with their canary rows; a source that changes meanwhile is refused before more of it is used."""
    seen = 0
    for index, raw in enumerate(batches(frame, policy.shard_rows)):
        seen += raw.height
        if seen > wanted:
            break
        yield raw, plans[index]
    if seen != wanted:
        then = "more" if seen > wanted else str(seen)
        msg = f"the source changed while it was read: {wanted} rows were checked, then there were {then}"
        raise InputError(msg, "run again when nobody writes to it; what is charged is not charged twice")


def _reserve_all(shards: Shards, raw: Iterator[tuple[pl.DataFrame, CanaryPlan]], meter: Meter) -> None:
    """Charge a whole run before any of it is computed, or give everything back."""
    for frame, plan in raw:
        shards.reserve(frame, plan)
        meter.add(frame.height)
    over = shards.outcomes[Outcome.OVER_CAP.name]
    if over:
        shards.give_back()
        msg = f'{over} records would exceed the cap, and on_cap is "refuse"; nothing was computed or charged'
        hint = '`dptext plan` and `dptext ledger remaining` say more; on_cap = "quarantine" leaves such records out'
        raise BudgetError(msg, hint)


def _counts(shards: Shards, staged: list[StagedShard]) -> dict[str, int]:
    said = shards.outcomes
    return {
        "new": said[Outcome.RESERVED.name],
        "resumed": said[Outcome.PENDING.name],
        "replayed": said[Outcome.COMMITTED.name],
        "quarantined": said[Outcome.OVER_CAP.name],
        "released": sum(shard.counts["rows"] for shard in staged),
        "null": sum(shard.counts["null"] for shard in staged),
    }


def _usable_secret(policy: Policy, column: ColumnPolicy) -> Secret:
    secret = column.secret
    if policy.publish and secret.published:
        msg = "the key is printed in documents, so anyone can undo what is released under it"
        raise KeyReferenceError(msg, 'run `dptext key new PATH` and write key = "file:PATH"')
    return secret
