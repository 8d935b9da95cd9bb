"""Gate `canaries_native`: vocabulary words do not come back more often than the mechanism's own table allows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import polars as pl

from dptext_etl.checks.canaries import CANARY, CanaryPlan, CanaryRow
from dptext_etl.checks.canary_words import survival
from dptext_etl.checks.tails import round_up, threshold
from dptext_etl.checks.verdict import Verdict
from dptext_etl.families.table import TableMechanism
from dptext_etl.keys import canonical_ids
from dptext_etl.policy import ColumnPolicy, Policy

FALSE_ALARM = 1e-9
"""Bound of the probability that a correct run fails this gate, over all its columns and shards."""


class NativeGate:
    """Counts the vocabulary words of canary rows that came back as themselves.

    Under the mechanism the survival of word i is a coin of exact probability p_i, independent of all others, so the
    count of a column is Poisson-binomial. It is compared once per shard and once over the run, each column and each
    comparison with its share of `FALSE_ALARM`: a correct run fails with probability at most 1e-9, whatever the data.
    Only too many survivors are a leak; too few are no concern of privacy. Where the mechanism itself copies almost
    everything (large epsilon) no count is suspicious, and the verdict says that it had no power.

    Args:
        policy: The run's policy.
        plans: What was planted.
    """

    name = "canaries_native"
    catches = (
        "Known words that pass through unchanged: the original as fallback after a failure or a lost mask, a mechanism "
        "that was skipped for some rows or shards, noise of a far too large epsilon, one that returns its input."
    )

    def __init__(self, policy: Policy, plans: Iterable[CanaryPlan]) -> None:
        self._id = policy.id
        self._rows: dict[str, tuple[int, CanaryRow]] = {}
        self._shards = 0
        for plan in plans:
            self._shards += 1
            natives = [row for row in plan.rows if row.kind == "native"]
            self._rows.update(zip(_canonical(plan.ids("native")), ((plan.shard, row) for row in natives), strict=True))
        self._columns = [
            _Survivors(item) for item in policy.column_policies() if isinstance(item.mechanism, TableMechanism)
        ]
        self._seen: set[str] = set()

    def feed(self, batch: pl.DataFrame) -> None:
        """Look at a batch of rows with their marker."""
        marked = batch.filter(pl.col(CANARY) & pl.col(self._id).is_not_null())
        for place, canonical in enumerate(_canonical(marked[self._id])):
            if canonical not in self._rows or canonical in self._seen:
                continue
            self._seen.add(canonical)
            shard, row = self._rows[canonical]
            for column in self._columns:
                if column.name in marked.columns:
                    column.feed(shard, row.words[column.name], marked[column.name][place])

    def verdict(self) -> Verdict:
        """Compare the counts with what chance allows."""
        counts: dict[str, int | float] = {
            "rows": len(self._seen),
            "words": 0,
            "survived": 0,
            "misaligned": 0,
            "suspicious": 0,
        }
        powerless = []
        for column in self._columns:
            alarm = FALSE_ALARM / len(self._columns) / 2
            limit = threshold([chance for chances in column.chances.values() for chance in chances], alarm)
            by_shard = {
                shard: threshold(chances, alarm / max(1, self._shards)) for shard, chances in column.chances.items()
            }
            tested = sum(map(len, column.chances.values()))
            survived = sum(column.survived.values())
            counts["words"] += tested
            counts["survived"] += survived
            counts["misaligned"] += column.misaligned
            counts["suspicious"] += survived >= limit
            counts["suspicious"] += sum(column.survived[shard] >= limit for shard, limit in by_shard.items())
            counts[f"allowed {column.name}"] = limit - 1
            if limit > tested:
                powerless.append(column.name)
        counts["false_alarm"] = FALSE_ALARM
        passed = not (counts["suspicious"] or counts["misaligned"])
        said = f"{counts['survived']} of {counts['words']} vocabulary words came back as themselves"
        said += ", within chance" if passed else ", beyond chance (or rows of another length than was planted)"
        if powerless:
            said += f"; no count would be suspicious in {', '.join(map(repr, powerless))}"
        if not self._columns:
            said = "not applicable: no column has a table of exact probabilities"
        return Verdict(self.name, passed, counts, said, self.catches)


class _Survivors:
    """Counts of one column, by shard."""

    def __init__(self, policy: ColumnPolicy) -> None:
        self.name = policy.column or ""
        self.chances: dict[int, list[float]] = defaultdict(list)
        self.survived: dict[int, int] = defaultdict(int)
        self.misaligned = 0
        self._mechanism = policy.mechanism
        self._chance: dict[str, float] = {}

    def feed(self, shard: int, words: tuple[str, ...], text: Any) -> None:
        words = words[: self._mechanism.n_max]
        outputs = text.split(" ") if isinstance(text, str) else []
        if len(outputs) != len(words):
            self.misaligned += 1
            return
        self.survived[shard] += sum(output == word for output, word in zip(outputs, words, strict=True))
        self.chances[shard] += [self._survival(word) for word in words]

    def _survival(self, word: str) -> float:
        if word not in self._chance:
            self._chance[word] = round_up(survival(self._mechanism, word))
        return self._chance[word]


def _canonical(ids: pl.Series) -> pl.Series:
    return pl.Series(canonical_ids(ids.to_arrow()), dtype=pl.String)
