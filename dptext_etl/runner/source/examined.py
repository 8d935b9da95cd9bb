"""Examine a source before anything is drawn: check its ids, and leave out what an incremental run finds published."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

import polars as pl

from dptext_etl.policy import Policy
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.progress import Listener
from dptext_etl.runner.publish.manifest import Manifest
from dptext_etl.runner.source import identity, per_subject
from dptext_etl.runner.source.incremental import continues, refuse_deletions, unpublished
from dptext_etl.runner.source.roles import Rows, Table

_NUMBERS = 1 << 16
"""Numbers of shards, and so of their canary rows, that a version of an incremental table takes for itself."""


@dataclass(frozen=True)
class Examined(Generic[Rows]):
    """A checked source.

    Attributes:
        table: The source, projected to the columns of the policy.
        rows: The rows that the run takes, lazily.
        total: Rows of the source.
        wanted: Rows that the run takes; fewer where an incremental run finds some published.
        base: Digest of the manifest that an incremental run adds to, or None.
        first: Number of the first shard; an incremental run counts on, so that its canary rows are new, too.
        shards: How many shards there are, where someone has counted them already.
        beyond: Rows that an unlinked release leaves out, because their persons have more than take part.
        pairs: Sum of digests of records with their persons, where these were chosen by person; None otherwise.
    """

    table: Table[Rows]
    rows: Rows
    total: int
    wanted: int
    base: str | None
    first: int
    shards: int | None = None
    beyond: int = 0
    pairs: int | None = None

    @classmethod
    def of(  # noqa: PLR0917  (what an engine brings)
        cls,
        table: Table[Rows],
        policy: Policy,
        layout: Layout,
        check: Callable[[], int],
        without: Callable[[Manifest], tuple[Rows, int]],
        at_most: Callable[[int], tuple[Rows, int, int]],
    ) -> Examined[Rows]:
        """Examine a table with what an engine brings."""
        manifest = Manifest.read(layout)
        adds = continues(policy, layout, manifest)
        total = check()
        if policy.unlinked is not None and policy.unit == "subject":
            rows, wanted, pairs = at_most(policy.unlinked.per_subject)
            return cls(table, rows, total, wanted, None, 0, beyond=total - wanted, pairs=pairs)
        if manifest is None or not adds:
            return cls(table, table.frame, total, total, None, 0)
        rows, wanted = without(manifest)
        refuse_deletions(policy, manifest, there=total - wanted)
        return cls(table, rows, total, wanted, manifest.digest, manifest.version * _NUMBERS)


def examine(
    table: Table[pl.LazyFrame], policy: Policy, layout: Layout, progress: Listener | None = None
) -> Examined[pl.LazyFrame]:
    """Examine the files of a source in this process (see `Examined.of`)."""
    return Examined.of(
        table,
        policy,
        layout,
        check=lambda: identity.check(table, policy, progress),
        without=lambda manifest: unpublished(table.frame, policy, layout, manifest),
        at_most=lambda most: per_subject.at_most(table.frame, policy, most, layout.staging),
    )
