"""Bound how likely canary words come back under a word mechanism.

The bounds are exact where the mechanism's output distribution is known, and estimated where it is not. Where a text
keeps its length, word i of the release comes from word i of the text, and the chance that matters is `survival`. Where
the length is hidden, padding vanishes and words have no places. Then a released word counts if it is any word of the
row, and the chance is that of a draw which gives one of them, for every position, padding included (`within`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from dptext_etl.checks.poisson_binomial import round_up
from dptext_etl.errors import PolicyError
from dptext_etl.families.by_word import Simulated, WordByWord
from dptext_etl.families.words import WordMechanism, sample_many
from dptext_etl.mechanism import PAD

SAMPLES = 256
PAD_SAMPLES = 2_048
"""Draws behind an estimated chance: for a word, and for the padding, which stands at most positions."""
TRIALS = 2_048
"""Draws behind the simulated survival of a word."""

_ROUNDING = 1 + 1e-12


class Chances:
    """Computes upper bounds of the chances of one column's canary words, each of them once.

    Attributes:
        exact: Whether no chance has to be estimated.
    """

    def __init__(self, mechanism: WordByWord, words: Iterable[str]) -> None:
        self._mechanism = mechanism
        self._words = frozenset(words)
        self._survival: dict[str, float] = {}
        self._survivors: dict[str, int | None] = {}
        self._distributions: dict[str, dict[str, float]] = {}
        self._samples: dict[str, Counter[str]] = {}
        self._contextual = not isinstance(mechanism, WordMechanism) or mechanism.allocation is not None
        self.exact = self._is_exact()

    def survival(self, word: str, alarm: float) -> float:
        """Bound the probability that `word` comes back; a simulated bound is wrong with probability `alarm`."""
        if word not in self._survival:
            self._survival[word] = round_up(self._mechanism.survival(word))
            self._survivors[word] = None
            if not self.exact and isinstance(self._mechanism, Simulated):
                self._survivors[word] = self._mechanism.simulated_survivals(word, TRIALS)
        survivors = self._survivors[word]
        simulated = 1.0 if survivors is None else upper_bound(survivors, TRIALS, alarm)
        return min(self._survival[word], simulated)

    def within(self, word: str, targets: frozenset[str], alarm: float) -> float:
        """Bound the probability that one draw for `word`, or for `PAD`, gives one of `targets`.

        Where no fractions express the output distribution, the mechanism draws samples under a key that is thrown away.
        They bound the chance of the other targets, at a confidence of 1 - `alarm`. The chance that `word` itself comes
        back is never estimated from the code that is under suspicion: it has a bound, or a simulation of its own.
        """
        if self._contextual:
            return min(1.0, len(targets) * self._mechanism.largest_probability() * _ROUNDING)
        if self.exact:
            distribution = self._distribution(word)
            return min(1.0, sum(distribution.get(target, 0.0) for target in targets) * _ROUNDING)
        samples = self._sampled(word)
        hits = sum(samples[target] for target in targets - {word})
        itself = self.survival(word, alarm / 2) if word in targets else 0.0
        return min(1.0, itself + upper_bound(hits, samples.total(), alarm / 2))

    def _is_exact(self) -> bool:
        """Say whether nothing has to be estimated."""
        if self._contextual:
            return True
        try:
            for word in sorted(self._words)[:1]:
                self._distribution(word)
        except PolicyError:
            return False
        return True

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
            known = self._mechanism
            drawn = sample_many(known, word, count) if isinstance(known, WordMechanism) else ()
            self._samples[word] = Counter(drawn)
        return self._samples[word]


def upper_bound(hits: int, trials: int, alarm: float) -> float:
    """Return a chance p such that under any larger one `hits` or fewer successes come with probability at most `alarm`.

    Chernoff: with h = hits / trials <= p, P[X <= hits] <= exp(-trials * KL(h || p)).

    Args:
        hits: Successes that were counted.
        trials: Bernoulli trials that were made, at least 1.
        alarm: Probability with which the bound may be wrong, in (0, 1).

    >>> round(upper_bound(0, 100, 1e-3), 4), upper_bound(100, 100, 1e-3)
    (0.0667, 1.0)
    """
    share, wanted = hits / trials, -math.log(alarm) / trials
    low, high = share, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if _divergence(share, middle) < wanted:
            low = middle
        else:
            high = middle
    return min(1.0, high * _ROUNDING)


def _divergence(share: float, chance: float) -> float:
    """Return the KL divergence of two Bernoulli trials, in nats; infinite where `chance` is 1 and `share` is not."""
    if chance >= 1.0:
        return math.inf if share < 1 else 0.0
    parts = [(share, chance), (1.0 - share, 1.0 - chance)]
    return sum(p * math.log(p / q) for p, q in parts if p > 0)
