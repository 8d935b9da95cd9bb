"""Bound how many successes chance allows in independent Bernoulli trials, and how likely canary words come back.

Tails of Poisson-binomial distributions are rigorous in floating point. Probabilities are rounded up first (a larger
probability can only raise the tail), every later operation works on non-negative terms, and the result is widened by
all rounding there can be.

Bounds of chances are exact where the output distribution of a mechanism is known, and estimated where it is not. Where
a text keeps its length, word i of the release comes from word i of the text, and the chance that matters is `survival`.
Where the length is hidden, padding vanishes and words have no places. Then a released word counts if it is any word of
the row, and the chance is that of a draw which gives one of them, for every position, padding included (`within`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.arrays import to_arrow, to_numpy
from dptext_etl.errors import PolicyError
from dptext_etl.families.by_word import Simulated, WordByWord
from dptext_etl.families.words import WordMechanism, sample_many
from dptext_etl.mechanism import PAD

EXACT_LIMIT = 8_192
"""Trials up to which the tail is computed exactly; beyond, Chernoff's bound is used (valid, a little wider)."""
_FEW = 64
"""Successes among which the threshold of small chances is looked for first."""
_COARSE = 64
"""Steps of the fine grid from one of the coarse grid to the next."""

Floats = npt.NDArray[np.float64]
Trials = Counter[float]
"""How many Bernoulli trials there are of each success probability."""


def round_up(probability: Fraction | float) -> float:
    """Return a float that is at least `probability`, at most 1."""
    value = float(probability)
    if Fraction(value) < probability:
        value = math.nextafter(value, math.inf)
    return min(value, 1.0)


def upper_tail(probabilities: Sequence[float] | Floats, most: int | None = None) -> Floats:
    """Bound P[X >= t] for t = 0 … n, where X is the number of successes (Poisson-binomial), shape (n + 1,).

    S_t after one more trial is p * S_{t-1} + (1 - p) * S_t: three roundings per trial, so n trials lose less than
    a factor 1 + 4 n 2^-53, and what underflows is below n * 1e-300.
    """
    chances = np.asarray(probabilities, dtype=np.float64)
    n = len(chances)
    tail = to_numpy(pa.array(_kernel.upper_tail(to_arrow(chances), n if most is None else most)))
    slack = 1.0 + 4.0 * n * 2.0**-53
    return np.minimum(1.0, tail * slack + n * 1e-300)


def threshold(probabilities: Sequence[float] | Floats, alarm: float) -> int:
    """Return the least t with P[X >= t] <= `alarm`; n + 1 where every count is too likely to be suspicious."""
    chances = np.asarray(probabilities, dtype=np.float64)
    if len(chances) <= EXACT_LIMIT:
        for most in (_FEW, len(chances)):
            allowed = np.flatnonzero(upper_tail(chances, most) <= alarm)
            if len(allowed):
                return int(allowed[0])
        return len(chances) + 1
    return _chernoff_threshold(*np.unique(chances, return_counts=True), alarm)


def grouped_threshold(
    probabilities: Sequence[float] | Floats, counts: Sequence[int] | npt.NDArray[np.int64], alarm: float
) -> int:
    """Return `threshold` for `counts[i]` trials of success probability `probabilities[i]`, without listing them all."""
    chances, repeats = np.asarray(probabilities, dtype=np.float64), np.asarray(counts, dtype=np.int64)
    if repeats.sum() <= EXACT_LIMIT:
        return threshold(np.repeat(chances, repeats), alarm)
    return _grouped_chernoff(chances.tobytes(), repeats.tobytes(), alarm)


def least_suspicious(trials: Trials, alarm: float) -> int:
    """Return the least number of successes that comes with probability at most `alarm`, in (0, 1).

    >>> least_suspicious(Counter({0.5: 10}), 0.01)
    10
    """
    return grouped_threshold(list(trials), list(trials.values()), alarm)


@lru_cache(maxsize=64)
def _grouped_chernoff(chances: bytes, repeats: bytes, alarm: float) -> int:
    """Remember thresholds: a gate and the report next to it ask for the same."""
    return _chernoff_threshold(np.frombuffer(chances), np.frombuffer(repeats, dtype=np.int64), alarm)


def _chernoff_threshold(chances: Floats, repeats: npt.NDArray[np.int64], alarm: float) -> int:
    """Return the least t with exp(K(s) - s t) <= alarm for some s > 0; K is the cumulant function, any s is valid.

    K is convex and K(0) = 0, so that the bound of t falls with s and then rises: around the least of a coarse grid lies
    the least of the fine one.
    """
    target = math.log(alarm)

    def bound(s: float) -> float:
        cumulant = float(np.dot(repeats, np.log1p(chances * math.expm1(s))))
        return (cumulant + 1e-12 * (abs(cumulant) + 1.0) - target) / s

    fine = np.geomspace(1e-6, 60.0, 4_000)
    least = _COARSE * int(np.argmin([bound(s) for s in fine[::_COARSE]]))
    around = fine[max(0, least - _COARSE) : least + _COARSE + 1]
    return max(1, min(int(repeats.sum()), *(math.floor(bound(s)) for s in around)) + 1)


SAMPLES = 256
PAD_SAMPLES = 2_048
"""Draws behind an estimated chance: for a word, and for the padding, which stands at most positions."""
TRIALS = 2_048
"""Draws behind the simulated survival of a word."""

_ROUNDING = 1 + 1e-12


class Chances:
    """Computes upper bounds of the chances of one column's canary words, each of them once."""

    def __init__(self, mechanism: WordByWord, words: Iterable[str]) -> None:
        self._mechanism = mechanism
        self._words = frozenset(words)
        self._survival: dict[str, float] = {}
        self._survivors: dict[str, int | None] = {}
        self._distributions: dict[str, dict[str, float]] = {}
        self._samples: dict[str, Counter[str]] = {}
        self._contextual = not isinstance(mechanism, WordMechanism) or mechanism.allocation is not None
        self.exact = self._is_exact()  # whether no chance has to be estimated

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
