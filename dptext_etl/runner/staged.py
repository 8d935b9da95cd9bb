"""Describe a run that is computed, staged and committed, and not yet judged or published."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from dptext_etl.checks.canaries.rows import CanaryPlan
from dptext_etl.ledger import ReleaseRef
from dptext_etl.policy import Policy
from dptext_etl.runner.computed import Places, together
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.profile import Profile
from dptext_etl.runner.shard.records import StagedShard
from dptext_etl.runner.shard.staging import Staging


@dataclass(frozen=True)
class StagedRun:
    """A run whose rows are computed, staged and committed, but not yet judged or published.

    It holds paths, counts and public facts; `runner.reload` writes it as JSON for another process.

    Attributes:
        policy: The policy of the run.
        partition: Name of the partition, or None.
        shards: The staged shards, in order; none if there was nothing new.
        canaries: The sets of canary rows.
        refs: The pinned release of each text column.
        rows: Row counts: read, already_published, over_contribution (if any), new, resumed, replayed, quarantined,
            forgotten (if any), released, null (texts).
        dropped: Columns of the source that the policy does not name, by place: "column 3".
        base: Digest of the manifest that an incremental run adds to, or None.
        seconds: The duration of staging.
        origin: Which version of a table of Delta Lake or Iceberg was read; None for anything else.
        profile: What the stages of the run took so far.
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
    origin: dict[str, str] | None = None
    profile: Profile = field(default_factory=Profile, repr=False, compare=False)

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

    @property
    def rewritten(self) -> tuple[Path, ...]:
        """The files of what post-processing made of them, canary rows included; none where there is none."""
        staging = Staging(self.layout.staging)
        return tuple(staging.post(shard) for shard in self.shards if shard.post)
