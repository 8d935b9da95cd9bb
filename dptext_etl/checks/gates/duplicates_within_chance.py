"""Gate `duplicates_within_chance` requires that different records do not share draws; equal releases would show it.

It looks in two ways, both without a real text: at paired canaries, which are rows of equal text, and at long common
prefixes of any two released texts. Short equal texts of real records prove nothing, since their originals may be equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import polars as pl

from dptext_etl.checks.canaries.paired import PairedCanaries
from dptext_etl.checks.canaries.rows import CanaryPlan
from dptext_etl.checks.candidate import Candidate, Stage
from dptext_etl.checks.common_prefixes import CommonPrefixes
from dptext_etl.checks.gate import Gate
from dptext_etl.checks.repeats import Repeats
from dptext_etl.checks.staged_rows import canary_rows, with_id
from dptext_etl.checks.verdict import Verdict
from dptext_etl.families.by_word import by_word
from dptext_etl.keys import canonical_ids
from dptext_etl.policy import Policy

FALSE_ALARM = 1e-9
"""Bound of the probability that a correct run fails this gate, over all its columns."""


class _Planted(NamedTuple):
    place: tuple[int, int, int]
    words: dict[str, tuple[str, ...]]


class DuplicatesWithinChance(Gate):
    """Counts agreements that independent draws do not make."""

    catches = (
        "Draws that records share: one seed for every row, shard or worker, a generator copied into forked processes, "
        "samples kept for equal texts or equal words, duplicates dropped before the mechanism and joined back after, a "
        "key without the record id."
    )
    stages = frozenset({Stage.STAGED})
    seen = ("_released",)
    order = 60

    def __init__(self, policy: Policy, plans: Iterable[CanaryPlan], rows: int, scratch: Path | None = None) -> None:
        super().__init__(policy)
        self._planted = dict(_planted(plans))
        found = ((item.column or "", by_word(item.mechanism)) for item in policy.column_policies())
        columns = [(name, mechanism) for name, mechanism in found if mechanism is not None]
        self._alarm = FALSE_ALARM / 2 / max(1, len(columns))
        self._columns = columns
        self._prefixes = [CommonPrefixes(*column, rows, self._alarm, scratch) for column in columns]
        self._released: dict[str, dict[str, Any]] = {}

    @classmethod
    def over(cls, candidate: Candidate) -> Sequence[Self]:
        """Look at the canary rows and at all released texts of the run."""
        return (cls(candidate.policy, candidate.canaries, candidate.rows, candidate.scratch),)

    def repeats(self) -> Mapping[str, Repeats]:
        """Compare the prefixes of each column."""
        return {prefixes.name: prefixes.repeats for prefixes in self._prefixes}

    def feed(self, batch: pl.DataFrame) -> None:
        """Take the prefixes of a batch, and the releases of its canary rows; each row counts once."""
        for prefixes in self._prefixes:
            if prefixes.name in batch.columns:
                prefixes.feed(batch[prefixes.name])
        marked = with_id(canary_rows(batch), self.policy.id)
        there = [name for name, _ in self._columns if name in marked.columns]
        for at, canonical in enumerate(canonical_ids(marked[self.policy.id].to_arrow()).to_pylist()):
            if canonical in self._planted and canonical not in self._released:
                self._released[canonical] = {name: marked[name][at] for name in there}

    def verdict(self) -> Verdict:
        """Pass if no comparison of canary rows is suspicious and no long prefix is shared.

        The stored names of counts say "heads" for prefixes.
        """
        counts: dict[str, int | float] = {"rows": len(self._released), "compared": 0, "equal": 0, "heads": 0}
        counts |= {"equal_heads": 0, "suspicious": 0}
        powerless = []
        for pairs, prefixes in zip(self._paired(), self._prefixes, strict=True):
            power = False
            for found in pairs.comparisons(self._alarm):
                counts["compared"] += found.compared
                counts["equal"] += found.equal
                counts["suspicious"] += found.beyond_chance
                power |= found.limit <= found.compared
            compared, equal = prefixes.counts()
            counts["heads"] += compared
            counts["equal_heads"] += equal
            counts["suspicious"] += equal > 0
            if prefixes.words is not None:
                counts[f"head words {prefixes.name}"] = prefixes.words
            if not (power or compared > 1):
                powerless.append(prefixes.name)
        counts["false_alarm"] = FALSE_ALARM
        passed = not counts["suspicious"]
        said = f"{counts['equal']} of {counts['compared']} pairs agree among canary rows of equal text, "
        said += f"{counts['equal_heads']} of {counts['heads']} long beginnings are shared, "
        said += "within chance" if passed else "beyond chance"
        if powerless:
            said += f"; no count would be suspicious in {', '.join(map(repr, powerless))}"
        if not self._columns:
            said = "not applicable: no column replaces words one by one"
        return self.outcome(counts, said, passed=passed)

    def _paired(self) -> Iterable[PairedCanaries]:
        """Put together the releases of canary rows, column by column."""
        for name, mechanism in self._columns:
            pairs = PairedCanaries(name, mechanism)
            for canonical, texts in self._released.items():
                if name in texts:
                    row = self._planted[canonical]
                    pairs.feed(row.place, row.words[name], texts[name])
            yield pairs


def _planted(plans: Iterable[CanaryPlan]) -> Iterable[tuple[str, _Planted]]:
    for plan in plans:
        seen: set[int] = set()
        for row, canonical in zip(plan.rows, canonical_ids(plan.ids().to_arrow()).to_pylist(), strict=True):
            if row.pair is not None:
                yield canonical, _Planted((row.pair, plan.shard, int(row.pair in seen)), dict(row.words))
                seen.add(row.pair)
