"""Gate `canary_words_replaced` requires that vocabulary words do not come back more often than the mechanism allows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from dptext_etl.checks.canaries import CanaryPlan
from dptext_etl.checks.candidate import word_columns
from dptext_etl.checks.chance import (
    FALSE_ALARM,
    ROUNDING,
    InVocabularyGate,
    Trials,
    drawn_and_released,
    known_words,
    least_suspicious,
    powerless,
    round_up,
    upper_bound,
)
from dptext_etl.checks.gate import Verdict
from dptext_etl.errors import PolicyError
from dptext_etl.families.by_word import Simulated, WordByWord
from dptext_etl.families.words import WordMechanism, sample_many
from dptext_etl.mechanism import PAD
from dptext_etl.policy import Policy

SAMPLES = 256
PAD_SAMPLES = 2_048
"""Draws behind an estimated chance: for a word, and for the padding, which stands at most positions."""
TRIALS = 2_048
"""Draws behind the simulated survival of a word."""


class CanaryWordsReplaced(InVocabularyGate):
    """Counts the vocabulary words of canary rows that came back.

    Under the mechanism, word i survives with known probability p_i, in a Bernoulli trial independent of all others. So
    the count of a column is Poisson-binomial. It is compared once per shard and once over the run. Each column and each
    comparison has its share of `FALSE_ALARM`, so a correct run fails with probability at most 1e-9, whatever the data.
    Only too many survivors are a leak; too few do not concern privacy. Where the mechanism itself copies almost
    everything (large epsilon), no count is suspicious, and the verdict says that the gate had no power.

    Where the length is hidden, released words have no places. Then a released word counts if it is any word of its row,
    and each of the text's positions, padding included, is a trial (`Chances`).
    """

    catches = (
        "Known words that pass through unchanged: the original as fallback after a failure or a lost mask, a mechanism "
        "that was skipped for some rows or shards, noise of a far too large epsilon, one that returns its input."
    )
    order = 50

    def __init__(self, policy: Policy, plans: Collection[CanaryPlan]) -> None:
        self._columns = word_columns(policy)
        super().__init__(policy, plans, self._columns)
        self._shards = len(plans)

    def verdict(self) -> Verdict:
        counts: dict[str, int | float] = {"rows": len(self._released)}
        counts |= dict.fromkeys(("words", "survived", "misaligned", "suspicious"), 0)
        without_power = []
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
                without_power.append(column.name)
        counts["false_alarm"] = FALSE_ALARM
        passed = not (counts["suspicious"] or counts["misaligned"])
        message = f"{counts['survived']} of {counts['words']} vocabulary words came back as themselves"
        message += ", within chance" if passed else ", beyond chance (or rows of another length than was planted)"
        message += powerless(without_power)
        if not self._columns:
            message = "not applicable: no column replaces words one by one"
        return self.outcome(counts, message, passed=passed)

    def _survivors(self) -> Iterable[_Survivors]:
        """Count the words that survived in the canary rows, column by column."""
        for name, mechanism in self._columns.items():
            column = _Survivors(name, mechanism)
            for canonical, texts in self._released.items():
                if name in texts:
                    shard, row = self._planted[canonical]
                    column.feed(shard, row.words[name], texts[name])
            yield column


class _Survivors:
    """Holds the counts of one column, by shard."""

    def __init__(self, name: str, mechanism: WordByWord) -> None:
        self.name = name
        self.survived: dict[int, int] = defaultdict(int)  # words that came back, by shard
        self.misaligned = 0  # rows whose number of words is not what was planted
        self.at_most = 0  # the largest number of words that could come back
        self._mechanism = mechanism
        self._known = known_words(mechanism)
        self._texts: dict[int, list[tuple[str, ...]]] = defaultdict(list)

    def feed(self, shard: int, words: tuple[str, ...], text: Any) -> None:
        """Count the words of one canary row that came back."""
        words, outputs = drawn_and_released(self._mechanism, self._known, words, text)
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
        """Return the trials whose successes were counted, by shard, and what is left of the false alarms."""
        trials: dict[int, Trials] = {shard: Counter() for shard in self._texts}
        chances = Chances(self._mechanism, {word for texts in self._texts.values() for text in texts for word in text})
        estimates = sum(len({*text, PAD}) for texts in self._texts.values() for text in texts)
        share = alarm / 2 / max(1, estimates)
        left = alarm if chances.exact else alarm / 2
        if not self._mechanism.hides_length:
            for shard, texts in self._texts.items():
                trials[shard].update(chances.survival(word, share) for text in texts for word in text)
            return trials, left
        for shard, texts in self._texts.items():
            for text in texts:
                targets = frozenset(text)
                for word, times in Counter(text).items():
                    trials[shard][chances.within(word, targets, share)] += times
                trials[shard][chances.within(PAD, targets, share)] += self._mechanism.n_max - len(text)
        return trials, left


class Chances:
    """Computes upper bounds of the chances of one column's canary words, each of them once."""

    def __init__(self, mechanism: WordByWord, words: Iterable[str]) -> None:
        self._mechanism = mechanism
        self._words = frozenset(words)
        self._survival: dict[str, tuple[float, int | None]] = {}
        self._distributions: dict[str, dict[str, float]] = {}
        self._samples: dict[str, Counter[str]] = {}
        self._contextual = not isinstance(mechanism, WordMechanism) or mechanism.allocation is not None
        self.exact = True  # whether no chance has to be estimated
        if self._words and not self._contextual:
            try:
                self._distribution(min(self._words))
            except PolicyError:
                self.exact = False

    def survival(self, word: str, alarm: float) -> float:
        """Bound the probability that `word` comes back; a simulated bound is wrong with probability `alarm`."""
        if word not in self._survival:
            survivors = None
            if not self.exact and isinstance(self._mechanism, Simulated):
                survivors = self._mechanism.simulated_survivals(word, TRIALS)
            self._survival[word] = round_up(self._mechanism.survival(word)), survivors
        bound, survivors = self._survival[word]
        return bound if survivors is None else min(bound, upper_bound(survivors, TRIALS, alarm))

    def within(self, word: str, targets: frozenset[str], alarm: float) -> float:
        """Bound the probability that one draw for `word`, or for `PAD`, gives one of `targets`.

        Where no fractions express the output distribution, the mechanism draws samples under a key that is thrown away.
        They bound the chance of the other targets, at a confidence of 1 - `alarm`. The chance that `word` itself comes
        back is never estimated from the code that is under suspicion: it has a bound, or a simulation of its own.
        """
        if self._contextual:
            return min(1.0, len(targets) * self._mechanism.largest_probability() * ROUNDING)
        if self.exact:
            return min(1.0, sum(self._distribution(word).get(target, 0.0) for target in targets) * ROUNDING)
        samples = self._sampled(word)
        hits = sum(samples[target] for target in targets - {word})
        itself = self.survival(word, alarm / 2) if word in targets else 0.0
        return min(1.0, itself + upper_bound(hits, samples.total(), alarm / 2))

    def _distribution(self, word: str) -> dict[str, float]:
        if word not in self._distributions:
            distribution = zip(*self._mechanism.transition(word), strict=True)
            self._distributions[word] = {
                output: round_up(chance) for output, chance in distribution if output in self._words
            }
        return self._distributions[word]

    def _sampled(self, word: str) -> Counter[str]:
        if word not in self._samples:
            count = PAD_SAMPLES if word == PAD else SAMPLES
            draws = sample_many(self._mechanism, word, count) if isinstance(self._mechanism, WordMechanism) else ()
            self._samples[word] = Counter(draws)
        return self._samples[word]
