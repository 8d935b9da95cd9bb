"""Describe the release that gates judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from dptext_etl.checks.canaries.rows import CanaryPlan
from dptext_etl.checks.canaries.words import policy_tokens
from dptext_etl.checks.lineage import Lineage
from dptext_etl.checks.staged_rows import count
from dptext_etl.policy import Policy

if TYPE_CHECKING:
    from dptext_etl.checks.manifest import PublishedManifest
    from dptext_etl.checks.reports.copies import CopyCount
    from dptext_etl.ledger import Ledger
    from dptext_etl.ledger.terms import ReleaseRef


class Stage(StrEnum):
    """When a release is judged."""

    STAGED = "staged"
    """Before publication: the rows stand in the staging folder, canary rows among them."""
    PUBLISHED = "published"
    """After publication: no canary rows, no staging, no raw data."""


@dataclass(frozen=True)
class Candidate:
    """A release, as gates see it.

    Attributes:
        policy: Its policy.
        parts: Staged Parquet files, with their marked canary rows (`staged_rows`); none where a published table is
            judged.
        canaries: The canary rows that were planted, one plan per shard; none after publication.
        quarantined: Records that were left out over the cap.
        ledger: The ledger, open; None where nothing is looked up.
        refs: Registered release of each text column.
        texts: Other files to search for canaries: the manifest or its draft, logs.
        lineage: What the run did to columns; None where it did what the policy declares.
        copies: Copy counts of the whole run by text column; they decide only where the policy sets
            `copy_gate_false_alarm`.
        recomputed: Canary rows of the whole run that were computed twice, and those that agree, by text column.
        stage: When it is judged.
        manifest: The manifest of a published folder; None for anything else.
        scratch: Folder where gates may keep digests that do not fit into memory; None for the system's folder of
            temporary files.
        rewritten: Files of what post-processing made of the parts, as it is to be published, canary rows included.
        counted: Rows of all parts, where someone has counted them; None counts them in the files.
        looked_up_elsewhere: Gates look nothing up in the ledger: anyone who runs them does that (`Gate.lookups`).
    """

    policy: Policy
    parts: tuple[Path, ...]
    canaries: tuple[CanaryPlan, ...]
    quarantined: int
    ledger: Ledger | None
    refs: Mapping[str, ReleaseRef]
    texts: tuple[Path | bytes, ...] = ()
    lineage: Lineage | None = None
    copies: Mapping[str, CopyCount] = field(default_factory=dict)
    recomputed: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    stage: Stage = Stage.STAGED
    manifest: PublishedManifest | None = None
    scratch: Path | None = None
    counted: int | None = None
    rewritten: tuple[Path, ...] = ()
    looked_up_elsewhere: bool = False

    @classmethod
    def published(
        cls,
        policy: Policy,
        ledger: Ledger | None = None,
        refs: Mapping[str, ReleaseRef] | None = None,
        manifest: PublishedManifest | None = None,
    ) -> Candidate:
        """Describe a published table.

        Args:
            policy: The policy that it was published under.
            ledger: Its ledger, open; None where nothing is looked up.
            refs: Registered release of each text column; None for none.
            manifest: The manifest, where a whole folder is judged.
        """
        texts = () if manifest is None else (manifest.content,)
        return cls(policy, (), (), 0, ledger, refs or {}, texts, stage=Stage.PUBLISHED, manifest=manifest)

    @property
    def rows(self) -> int:
        """Rows of all parts, canary rows included."""
        if self.counted is not None:
            return self.counted
        return sum(map(count, self.parts))

    def pseudo_words(self) -> dict[str, frozenset[str]]:
        """Return the words of out-of-vocabulary canaries, by text column.

        Those that were planted, for a staged run. After publication, all that follow from the policy's key.

        Raises:
            KeyReferenceError: The key of the policy of a published table cannot be resolved.
        """
        if self.stage is Stage.PUBLISHED:
            tokens = policy_tokens(self.policy, self.policy.column_policies()[0].secret)
            return {name: frozenset(words) for name, words in tokens.items()}
        planted = [row for plan in self.canaries for row in plan.rows if row.kind == "out_of_vocabulary"]
        return {
            item.name: frozenset(word for row in planted for word in row.words[item.name])
            for item in self.policy.columns
        }


def as_released(batch: pl.DataFrame, policy: Policy) -> pl.DataFrame:
    """Return published rows as mechanisms released them, as far as a policy keeps that next to what was made of it."""
    made = [item.name for item in policy.columns if item.postprocess and item.name in batch.columns]
    kept = {item.intermediate: item.name for item in policy.columns if item.intermediate in batch.columns}
    return batch.drop(made).rename({str(name): column for name, column in kept.items()})
