"""Gate `duplicates_beyond_chance`: records do not share draws, as equal releases of different records would show.

Two ways, both without any real text: canary rows of equal text (`twins`), and long equal beginnings among all released
texts (`heads`). Short equal texts of real records prove nothing, since their originals may be equal, and are let be.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import polars as pl

from dptext_etl.checks.canaries.paired import Twins
from dptext_etl.checks.canaries.rows import CANARY, CanaryPlan
from dptext_etl.checks.common_prefixes import Heads
from dptext_etl.checks.verdict import Verdict
from dptext_etl.families.by_word import by_word
from dptext_etl.keys import canonical_ids
from dptext_etl.policy import Policy

FALSE_ALARM = 1e-9
"""Bound of the probability that a correct run fails this gate, over all its columns."""


class _Planted(NamedTuple):
    place: tuple[int, int, int]
    words: dict[str, tuple[str, ...]]


class DuplicatesGate:
    """Counts agreements that independent draws do not make.

    Args:
        policy: The run's policy.
        plans: What was planted.
        rows: How many rows there are, canary rows included.
    """

    name = "duplicates_beyond_chance"
    catches = (
        "Draws that records share: one seed for every row, shard or worker, a generator copied into forked processes, "
        "samples kept for equal texts or equal words, duplicates dropped before the mechanism and joined back after, a "
        "key without the record id."
    )

    def __init__(self, policy: Policy, plans: Iterable[CanaryPlan], rows: int) -> None:
        self._id = policy.id
        self._planted = dict(_planted(plans))
        found = ((item.column or "", by_word(item.mechanism)) for item in policy.column_policies())
        columns = [(name, mechanism) for name, mechanism in found if mechanism is not None]
        self._alarm = FALSE_ALARM / 2 / max(1, len(columns))
        self._twins = [Twins(*column) for column in columns]
        self._heads = [Heads(*column, rows, self._alarm) for column in columns]
        self._seen: set[str] = set()

    def feed(self, batch: pl.DataFrame) -> None:
        """Look at a batch of rows with their marker."""
        for heads in self._heads:
            if heads.name in batch.columns:
                heads.feed(batch[heads.name])
        marked = batch.filter(pl.col(CANARY) & pl.col(self._id).is_not_null())
        for at, canonical in enumerate(canonical_ids(marked[self._id].to_arrow()).to_pylist()):
            if canonical in self._planted and canonical not in self._seen:
                self._seen.add(canonical)
                row = self._planted[canonical]
                for twins in self._twins:
                    if twins.name in marked.columns:
                        twins.feed(row.place, row.words[twins.name], marked[twins.name][at])

    def verdict(self) -> Verdict:
        """Compare the counts with what chance allows."""
        counts: dict[str, int | float] = {"rows": len(self._seen), "compared": 0, "equal": 0, "heads": 0}
        counts |= {"equal_heads": 0, "suspicious": 0}
        powerless = []
        for twins, heads in zip(self._twins, self._heads, strict=True):
            power = False
            for found in twins.comparisons(self._alarm):
                counts["compared"] += found.compared
                counts["equal"] += found.equal
                counts["suspicious"] += found.beyond_chance
                power |= found.limit <= found.compared
            compared, equal = heads.counts()
            counts["heads"] += compared
            counts["equal_heads"] += equal
            counts["suspicious"] += equal > 0
            if heads.words is not None:
                counts[f"head words {heads.name}"] = heads.words
            if not (power or compared > 1):
                powerless.append(heads.name)
        counts["false_alarm"] = FALSE_ALARM
        passed = not counts["suspicious"]
        said = f"{counts['equal']} of {counts['compared']} pairs agree among canary rows of equal text, "
        said += f"{counts['equal_heads']} of {counts['heads']} long beginnings are shared, "
        said += "within chance" if passed else "beyond chance"
        if powerless:
            said += f"; no count would be suspicious in {', '.join(map(repr, powerless))}"
        if not self._twins:
            said = "not applicable: no column replaces words one by one"
        return Verdict(self.name, passed, counts, said, self.catches)


def _planted(plans: Iterable[CanaryPlan]) -> Iterable[tuple[str, _Planted]]:
    for plan in plans:
        seen: set[int] = set()
        for row, canonical in zip(plan.rows, canonical_ids(plan.ids().to_arrow()).to_pylist(), strict=True):
            if row.twin is not None:
                yield canonical, _Planted((row.twin, plan.shard, int(row.twin in seen)), dict(row.words))
                seen.add(row.twin)
