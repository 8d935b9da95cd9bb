"""Bound how many successes chance allows in independent Bernoulli trials, such as words that come back.

Tails of Poisson-binomial distributions are rigorous in floating point. Probabilities are rounded up first (a larger
probability can only raise the tail), every later operation works on non-negative terms, and the result is widened by
all rounding there can be.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.arrays import to_arrow, to_numpy
from dptext_etl.families.by_word import WordByWord
from dptext_etl.guarantee import Disclosure, float_above

FALSE_ALARM = 1e-9
"""Bound of the probability that a correct run fails a gate, over all its columns."""
ROUNDING = 1 + 1e-12
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
    return min(float_above(probability), 1.0)


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
    return _chernoff_threshold(chances, repeats, alarm)


def least_suspicious(trials: Trials, alarm: float) -> int:
    """Return the least number of successes that comes with probability at most `alarm`, in (0, 1).

    >>> least_suspicious(Counter({0.5: 10}), 0.01)
    10
    """
    return grouped_threshold(list(trials), list(trials.values()), alarm)


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
    return min(1.0, high * ROUNDING)


def word_chance(mechanism: WordByWord) -> float:
    """Return p such that k released words in a row are k given words with probability at most p^k.

    It is 1 where the mechanism releases words in clear. Where padding vanishes, the k-th word that shows is the m-th
    draw for some m >= k, in one of C(m - 1, k - 1) ways; the sum of p^m over all of them is (p / (1 - p))^k.
    """
    if mechanism.mode == "faithful" or not set(mechanism.word_disclosures) <= {Disclosure.CLUSTER}:
        return 1.0
    largest = mechanism.largest_probability()
    if not mechanism.hides_length:
        return largest
    return min(1.0, largest / (1 - largest)) if largest < 1 else 1.0


def powerless(columns: Iterable[str]) -> str:
    """Return what a message adds about columns in which the mechanism itself allows every count."""
    names = ", ".join(map(repr, columns))
    return f"; no count would be suspicious in {names}" if names else ""


def _divergence(share: float, chance: float) -> float:
    """Return the KL divergence of two Bernoulli trials, in nats; infinite where `chance` is 1 and `share` is not."""
    if chance >= 1.0:
        return math.inf if share < 1 else 0.0
    parts = [(share, chance), (1.0 - share, 1.0 - chance)]
    return sum(p * math.log(p / q) for p, q in parts if p > 0)


def known_words(mechanism: WordByWord) -> Collection[str] | None:
    """Return the words that are not dropped before words are counted; None where none is."""
    return frozenset(mechanism.input_words()) if mechanism.input_policy()["oov"] == "drop" else None


def drawn_and_released(
    mechanism: WordByWord, known: Collection[str] | None, words: Sequence[str], text: Any
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    drawn = tuple(word for word in words[: mechanism.n_max] if known is None or word in known)
    return drawn, tuple(text.split(" ")) if isinstance(text, str) and text else ()
