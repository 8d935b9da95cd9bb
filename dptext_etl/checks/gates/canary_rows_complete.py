"""Gate `canary_rows_complete` requires that every planted row is in the release, marked, with other columns empty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Self

import polars as pl

from dptext_etl.checks.canaries import CanaryPlan
from dptext_etl.checks.candidate import Candidate, Stage, canary_rows, other_rows
from dptext_etl.checks.gate import Gate, Verdict
from dptext_etl.keys import canonical_series
from dptext_etl.policy import Policy


class CanaryRowsComplete(Gate):
    """Compares the marked rows with those that were planted."""

    catches = (
        "A run in which the canaries were lost, so that their silence means nothing; a canary row that would be "
        "published; a kept column that is filled from the text, such as its length or a summary."
    )
    stages = frozenset({Stage.STAGED})
    seen = ("_found", "_unmarked", "_filled")
    order = 40

    def __init__(self, policy: Policy, plans: Iterable[CanaryPlan]) -> None:
        super().__init__(policy)
        self._planned = Counter(canonical for plan in plans for canonical in canonical_series(plan.ids()))
        self._ids = pl.Series(list(self._planned), dtype=pl.String).implode()
        self._found: Counter[str] = Counter()
        self._unmarked = self._filled = 0

    @classmethod
    def over(cls, candidate: Candidate) -> Sequence[Self]:
        return (cls(candidate.policy, candidate.canaries),)

    def feed(self, batch: pl.DataFrame) -> None:
        marked = canary_rows(batch)
        self._found.update(canonical_series(marked[self.policy.id].drop_nulls()))
        self._unmarked += int(canonical_series(other_rows(batch)[self.policy.id].drop_nulls()).is_in(self._ids).sum())
        kept = [name for name in self.policy.keep if name in batch.columns]
        self._filled += sum(marked[name].len() - marked[name].null_count() for name in kept)

    def verdict(self) -> Verdict:
        counts = {
            "planted": self._planned.total(),
            "missing": (self._planned - self._found).total(),
            "unplanned": (self._found - self._planned).total(),
            "unmarked": self._unmarked,
            "filled_cells": self._filled,
        }
        wrong = {name: count for name, count in counts.items() if count and name != "planted"}
        passed = bool(self._planned) and not wrong
        message = f"all {counts['planted']} canary rows came through"
        if not passed:
            problems = ", ".join(f"{count} {name}" for name, count in wrong.items()) or "none planted"
            message = f"of {counts['planted']} canary rows: {problems}"
        return self.outcome(counts, message, passed=passed)
