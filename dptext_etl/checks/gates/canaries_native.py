"""Gate `canaries_native`: vocabulary words do not come back more often than the mechanism's own law allows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from dptext_etl.checks.canaries.chances import Chances
from dptext_etl.checks.canaries.rows import CANARY, CanaryPlan, CanaryRow
from dptext_etl.checks.poisson_binomial import grouped_threshold
from dptext_etl.checks.verdict import Verdict
from dptext_etl.families.by_word import WordByWord, by_word
from dptext_etl.keys import canonical_ids
from dptext_etl.mechanism import PAD
from dptext_etl.policy import Policy

FALSE_ALARM = 1e-9
"""Bound of the probability that a correct run fails this gate, over all its columns and shards."""


class NativeGate:
    """Counts the vocabulary words of canary rows that came back.

    Under the mechanism the survival of word i is a coin of known probability p_i, independent of all others, so the
    count of a column is Poisson-binomial. It is compared once per shard and once over the run, each column and each
    comparison with its share of `FALSE_ALARM`: a correct run fails with probability at most 1e-9, whatever the data.
    Only too many survivors are a leak; too few are no concern of privacy. Where the mechanism itself copies almost
    everything (large epsilon) no count is suspicious, and the verdict says that it had no power.

    Where the length is hidden, released words have no places; then those count that are any word of their row, and
    each of the text's positions, padding included, is a coin (`canary_chances`).

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
        found = ((item.column or "", by_word(item.mechanism)) for item in policy.column_policies())
        self._columns = [_Survivors(name, mechanism) for name, mechanism in found if mechanism is not None]
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
            alarm = FALSE_ALARM / len(self._columns)
            chances, alarm = column.chances(alarm)
            total = sum(chances.values(), Counter[float]())
            limit = _limit(total, alarm / 2)
            tested = total.total()
            survived = sum(column.survived.values())
            counts["words"] += tested
            counts["survived"] += survived
            counts["misaligned"] += column.misaligned
            counts["suspicious"] += survived >= limit
            counts["suspicious"] += sum(
                column.survived[shard] >= _limit(coins, alarm / 2 / max(1, self._shards))
                for shard, coins in chances.items()
            )
            counts[f"allowed {column.name}"] = limit - 1
            if limit > column.at_most:
                powerless.append(column.name)
        counts["false_alarm"] = FALSE_ALARM
        passed = not (counts["suspicious"] or counts["misaligned"])
        said = f"{counts['survived']} of {counts['words']} vocabulary words came back as themselves"
        said += ", within chance" if passed else ", beyond chance (or rows of another length than was planted)"
        if powerless:
            said += f"; no count would be suspicious in {', '.join(map(repr, powerless))}"
        if not self._columns:
            said = "not applicable: no column replaces words one by one"
        return Verdict(self.name, passed, counts, said, self.catches)


class _Survivors:
    """Counts of one column, by shard."""

    def __init__(self, name: str, mechanism: WordByWord) -> None:
        self.name = name
        self.survived: dict[int, int] = defaultdict(int)
        self.misaligned = 0
        self.at_most = 0
        self._mechanism = mechanism
        self._known = frozenset(mechanism.input_words()) if mechanism.unknown == "drop" else None
        self._texts: dict[int, list[tuple[str, ...]]] = defaultdict(list)

    def feed(self, shard: int, words: tuple[str, ...], text: Any) -> None:
        """Count the words of one canary row that came back."""
        words = tuple(word for word in words[: self._mechanism.n_max] if self._known is None or word in self._known)
        outputs = text.split(" ") if isinstance(text, str) and text else []
        if self._mechanism.hides_length:
            fits = len(outputs) <= self._mechanism.n_max
            survived = sum(output in words for output in outputs)
        else:
            fits = len(outputs) == len(words)
            survived = sum(output == word for output, word in zip(outputs, words, strict=False))
        if not fits:
            self.misaligned += 1
            return
        self.survived[shard] += survived
        self.at_most += len(words)
        self._texts[shard].append(words)

    def chances(self, alarm: float) -> tuple[Mapping[int, Counter[float]], float]:
        """Return how many coins of which chance each shard's count adds up, and what is left of `alarm` for counting.

        Half of it goes to estimated chances, where there are any.
        """
        found: dict[int, Counter[float]] = {shard: Counter() for shard in self._texts}
        chances = Chances(self._mechanism, {word for texts in self._texts.values() for text in texts for word in text})
        estimates = sum(len({*text, PAD}) for texts in self._texts.values() for text in texts)
        share = alarm / 2 / max(1, estimates)
        left = alarm if chances.exact else alarm / 2
        if not self._mechanism.hides_length:
            for shard, texts in self._texts.items():
                found[shard].update(chances.survival(word, share) for text in texts for word in text)
            return found, left
        for shard, texts in self._texts.items():
            for text in texts:
                targets = frozenset(text)
                for word, times in Counter(text).items():
                    found[shard][chances.within(word, targets, share)] += times
                found[shard][chances.within(PAD, targets, share)] += self._mechanism.n_max - len(text)
        return found, left


def _limit(coins: Counter[float], alarm: float) -> int:
    """The least count of successes that is suspicious."""
    return grouped_threshold(list(coins), list(coins.values()), alarm)


def _canonical(ids: pl.Series) -> pl.Series:
    return pl.Series(canonical_ids(ids.to_arrow()), dtype=pl.String)
