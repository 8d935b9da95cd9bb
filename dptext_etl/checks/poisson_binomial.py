"""Bound how many successes chance allows in independent Bernoulli trials: tails of Poisson-binomial distributions.

Both bounds are rigorous in floating point. Probabilities are rounded up first (a larger probability can only raise the
tail), every later operation works on non-negative terms, and the result is widened by all rounding there can be.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.arrays import to_arrow, to_numpy

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
