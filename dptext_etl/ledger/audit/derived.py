"""Hold what the tables of a ledger must hold, as `derive` finds it in the journal."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from dptext_etl.ledger.terms import I64, U8


@dataclass
class SealedBatch:
    """A reserved batch, as the journal states it."""

    release: int
    nonce: int
    scope: int
    job: str
    states: U8
    attached: bool = False

    def holds(self, facts: dict[str, Any], rows: I64) -> bool:
        """Return whether these rows belong to the batch and to the release that an event names."""
        return (self.release, self.nonce) == (facts["release"], facts["nonce"]) and int(rows.max()) < len(self.states)


@dataclass
class Derived:
    """What the tables of a ledger must hold, and the problems that were found."""

    problems: list[str] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)
    sealed: dict[int, set[str]] = field(default_factory=dict)
    releases: dict[int, dict[str, Any]] = field(default_factory=dict)
    revoked: dict[tuple[str, str], int] = field(default_factory=dict)
    frozen: dict[str, int] = field(default_factory=dict)
    frozen_groups: dict[str, list[str]] = field(default_factory=dict)
    forms: dict[str, str] = field(default_factory=dict)
    scopes: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    caps: dict[int, list[tuple[int, str, list[int]]]] = field(default_factory=dict)
    members: set[tuple[int, str]] = field(default_factory=set)
    batches: dict[int, SealedBatch] = field(default_factory=dict)
    again: set[int] = field(default_factory=set)
    aborted: dict[int, list[tuple[int, I64]]] = field(default_factory=dict)
    settled: dict[int, list[tuple[int, I64, I64]]] = field(default_factory=dict)
    commit_parts: set[tuple[int, int]] = field(default_factory=set)
    tallies: dict[tuple[int, int], Counter[str]] = field(default_factory=dict)
    publications: dict[tuple[int, int, str], tuple[str, int]] = field(default_factory=dict)
    posts: dict[int, list[int]] = field(default_factory=dict)
    rewritten: dict[tuple[int, str], list[I64]] = field(default_factory=dict)
    accepted: dict[str, str] = field(default_factory=dict)
    forgotten: dict[str, list[int]] = field(default_factory=dict)
    tables: dict[tuple[int, int], str] = field(default_factory=dict)

    def note(self, problem: str) -> None:
        """Add a problem, unless it is there."""
        if problem not in self.problems:
            self.problems.append(problem)

    def rows(self, batches: list[int]) -> int:
        """Count the rows of batches."""
        return sum(len(self.batches[seq].states) for seq in batches)

    def name(self, release: int) -> str:
        """Name a release in words."""
        facts = self.releases.get(release)
        if facts is None:
            return f"release {release}"
        return f"{facts['dataset']}.{facts['column']}, release {facts['release']!r}"

    def tally(self, facts: dict[str, Any]) -> Counter[str]:
        """Return the counts of the release that an event names."""
        return self.tallies.setdefault((facts["release"], facts["nonce"]), Counter())
