"""Gate `canary_words_replaced` requires that vocabulary words do not come back more often than the mechanism allows.

The stored name says "native" for in-vocabulary.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import polars as pl

from dptext_etl.checks.canaries.rows import CanaryPlan, CanaryRow
from dptext_etl.checks.candidate import Candidate, Stage, canary_rows, with_id
from dptext_etl.checks.gate import Gate, Verdict
from dptext_etl.checks.poisson_binomial import Chances, Trials, least_suspicious
from dptext_etl.families.by_word import WordByWord, by_word
from dptext_etl.keys import canonical_ids
from dptext_etl.mechanism import PAD
from dptext_etl.policy import Policy

FALSE_ALARM = 1e-9
"""Bound of the probability that a correct run fails this gate, over all its columns and shards."""


class CanaryWordsReplaced(Gate):
    """Counts the vocabulary words of canary rows that came back.

    Under the mechanism, word i survives with known probability p_i, in a Bernoulli trial independent of all others. So
    the count of a column is Poisson-binomial. It is compared once per shard and once over the run. Each column and each
    comparison has its share of `FALSE_ALARM`, so a correct run fails with probability at most 1e-9, whatever the data.
    Only too many survivors are a leak; too few do not concern privacy. Where the mechanism itself copies almost
    everything (large epsilon), no count is suspicious, and the verdict says that the gate had no power.

    Where the length is hidden, released words have no places. Then a released word counts if it is any word of its row,
    and each of the text's positions, padding included, is a trial (`poisson_binomial.Chances`).
    """

    catches = (
        "Known words that pass through unchanged: the original as fallback after a failure or a lost mask, a mechanism "
        "that was skipped for some rows or shards, noise of a far too large epsilon, one that returns its input."
    )
    stages = frozenset({Stage.STAGED})
    seen = ("_released",)
    order = 50

    def __init__(self, policy: Policy, plans: Iterable[CanaryPlan]) -> None:
        super().__init__(policy)
        self._rows: dict[str, tuple[int, CanaryRow]] = {}
        self._shards = 0
        for plan in plans:
            self._shards += 1
            rows = [(plan.shard, row) for row in plan.rows if row.kind == "in_vocabulary"]
            self._rows.update(zip(_canonical(plan.ids("in_vocabulary")), rows, strict=True))
        found = ((item.column or "", by_word(item.mechanism)) for item in policy.column_policies())
        self._columns = [(name, mechanism) for name, mechanism in found if mechanism is not None]
        self._released: dict[str, dict[str, Any]] = {}

    @classmethod
    def over(cls, candidate: Candidate) -> Sequence[Self]:
        """Look at the canary rows of the run."""
        return (cls(candidate.policy, candidate.canaries),)

    def feed(self, batch: pl.DataFrame) -> None:
        """Take the releases of the canary rows of a batch; each row counts once."""
        marked = with_id(canary_rows(batch), self.policy.id)
        there = [name for name, _ in self._columns if name in marked.columns]
        for place, canonical in enumerate(_canonical(marked[self.policy.id])):
            if canonical in self._rows and canonical not in self._released:
                self._released[canonical] = {name: marked[name][place] for name in there}

    def verdict(self) -> Verdict:
        """Pass if no count is suspicious and every row has as many words as were planted."""
        counts: dict[str, int | float] = {"rows": len(self._released)}
        counts |= dict.fromkeys(("words", "survived", "misaligned", "suspicious"), 0)
        powerless = []
        for column in self._survivors():
            chances, alarm = column.chances(FALSE_ALARM / len(self._columns))
            total: Trials = sum(chances.values(), Counter())
            limit = least_suspicious(total, alarm / 2)
            survived = sum(column.survived.values())
            counts["words"] += total.total()
            counts["survived"] += survived
            counts["misaligned"] += column.misaligned
            counts["suspicious"] += survived >= limit
            counts["suspicious"] += sum(
                column.survived[shard] >= least_suspicious(trials, alarm / 2 / max(1, self._shards))
                for shard, trials in chances.items()
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
        return self.outcome(counts, said, passed=passed)

    def _survivors(self) -> Iterable[_Survivors]:
        """Count the words that survived in the canary rows, column by column."""
        for name, mechanism in self._columns:
            column = _Survivors(name, mechanism)
            for canonical, texts in self._released.items():
                if name in texts:
                    shard, row = self._rows[canonical]
                    column.feed(shard, row.words[name], texts[name])
            yield column


def _canonical(ids: pl.Series) -> pl.Series:
    return pl.Series(canonical_ids(ids.to_arrow()), dtype=pl.String)


class _Survivors:
    """Holds the counts of one column, by shard."""

    def __init__(self, name: str, mechanism: WordByWord) -> None:
        self.name = name
        self.survived: dict[int, int] = defaultdict(int)  # words that came back, by shard
        self.misaligned = 0  # rows whose number of words is not what was planted
        self.at_most = 0  # the largest number of words that could come back
        self._mechanism = mechanism
        self._known = frozenset(mechanism.input_words()) if mechanism.input_policy()["oov"] == "drop" else None
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

    def chances(self, alarm: float) -> tuple[Mapping[int, Trials], float]:
        """Return the trials whose successes were counted."""
        found: dict[int, Trials] = {shard: Counter() for shard in self._texts}
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
