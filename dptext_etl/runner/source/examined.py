"""Examine a source before anything is drawn: check its ids, and leave out what an incremental run finds published."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

import polars as pl

from dptext_etl.errors import InputError, seam
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.progress import Listener
from dptext_etl.runner.publish.manifest import Manifest
from dptext_etl.runner.source import identity, per_subject
from dptext_etl.runner.source.incremental import continues, refuse_deletions, unpublished
from dptext_etl.runner.source.roles import Rows, Table
from dptext_etl.runner.source.table import READ_HINT

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
        nameless: Rows that are left out because they have no subject.
        known: Rows that an incremental run leaves out or takes, lazily; None where the run takes all of them.
        held: Rows of the version that an incremental run adds to.
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
    nameless: int = 0
    known: Rows | None = None
    held: int = 0

    @classmethod
    def of(  # noqa: PLR0917  (what an engine brings)
        cls,
        table: Table[Rows],
        policy: Policy,
        layout: Layout,
        check: Callable[[], tuple[int, int]],
        with_persons: Callable[[Rows], Rows],
        without: Callable[[Rows, Manifest], tuple[Rows, int]],
        at_most: Callable[[Rows, int], tuple[Rows, int, int]],
    ) -> Examined[Rows]:
        """Examine a table with what an engine brings."""
        manifest = Manifest.read(layout)
        adds = continues(policy, layout, manifest)
        total, null = check()
        nameless = null if policy.on_null_subject == "quarantine" else 0
        named, rest = with_persons(table.frame) if nameless else table.frame, total - nameless
        if policy.unlinked is not None and policy.unit == "subject":
            rows, wanted, pairs = at_most(named, policy.unlinked.per_subject)
            return cls(table, rows, total, wanted, None, 0, beyond=rest - wanted, pairs=pairs, nameless=nameless)
        if manifest is None or not adds:
            return cls(table, named, total, rest, None, 0, nameless=nameless)
        rows, wanted = without(named, manifest)
        refuse_deletions(policy, manifest, there=rest - wanted)
        first = manifest.version * _NUMBERS
        return cls(
            table, rows, total, wanted, manifest.digest, first, nameless=nameless, known=named, held=manifest.rows
        )

    @property
    def published(self) -> int:
        """Rows that an incremental run leaves out because they are published."""
        return self.total - self.wanted - self.beyond - self.nameless


def examine(
    table: Table[pl.LazyFrame], policy: Policy, layout: Layout, progress: Listener | None = None
) -> Examined[pl.LazyFrame]:
    """Examine the files of a source in this process (see `Examined.of`)."""
    return Examined.of(
        table,
        policy,
        layout,
        check=lambda: identity.check(table, policy, progress),
        with_persons=lambda rows: identity.with_persons(rows, policy),
        without=lambda rows, manifest: unpublished(rows, policy, layout, manifest),
        at_most=lambda rows, most: per_subject.at_most(rows, policy, most, layout.staging.folder),
    )


def present(source: Examined[pl.LazyFrame], ids: pl.Series) -> pl.Series:
    """Return those of the given ids that the source uses."""
    with seam("comparing canary ids with those of the source", InputError, READ_HINT):
        asked = ids.to_frame().lazy()
        used = source.table.frame.select(ids.name)
        return used.join(asked, on=ids.name, how="semi").collect(engine="streaming").to_series()
