"""Gate `canaries_present`: every planted row came through, marked, with nothing in its other columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import polars as pl

from dptext_etl.checks.canaries.rows import CANARY, CanaryPlan
from dptext_etl.checks.verdict import Verdict
from dptext_etl.keys import canonical_ids
from dptext_etl.policy import Policy


class PresentGate:
    """Compares the marked rows with what was planted.

    Args:
        policy: The run's policy.
        plans: What was planted.
    """

    name = "canaries_present"
    catches = (
        "A run in which the canaries were lost, so that their silence means nothing; a canary row that would be "
        "published; a kept column that is filled from the text, such as its length or a summary."
    )

    def __init__(self, policy: Policy, plans: Iterable[CanaryPlan]) -> None:
        self._policy = policy
        self._planned = Counter(canonical for plan in plans for canonical in _canonical(plan.ids()))
        self._found: Counter[str] = Counter()
        self._unmarked = self._filled = 0

    def feed(self, batch: pl.DataFrame) -> None:
        """Look at a batch of rows with their marker."""
        marked = batch.filter(pl.col(CANARY))
        self._found.update(_canonical(marked[self._policy.id]))
        others = _canonical(batch.filter(~pl.col(CANARY).fill_null(value=False))[self._policy.id])
        self._unmarked += int(others.is_in(pl.Series(list(self._planned), dtype=pl.String).implode()).sum())
        kept = [name for name in self._policy.keep if name in batch.columns]
        self._filled += sum(marked[name].len() - marked[name].null_count() for name in kept)

    def verdict(self) -> Verdict:
        """Say what was found."""
        counts = {
            "planted": self._planned.total(),
            "missing": (self._planned - self._found).total(),
            "unplanned": (self._found - self._planned).total(),
            "unmarked": self._unmarked,
            "filled_cells": self._filled,
        }
        wrong = {name: count for name, count in counts.items() if count and name != "planted"}
        passed = bool(self._planned) and not wrong
        said = f"all {counts['planted']} canary rows came through"
        if not passed:
            listed = ", ".join(f"{count} {name}" for name, count in wrong.items()) or "none planted"
            said = f"of {counts['planted']} canary rows: {listed}"
        return Verdict(self.name, passed, counts, said, self.catches)


def _canonical(ids: pl.Series) -> pl.Series:
    return pl.Series(canonical_ids(ids.drop_nulls().to_arrow()), dtype=pl.String)
