"""Bound what a multiset of public texts reveals of one record: the privacy of `surrogate` without ids and order.

Among m texts, N are near a record's text and weigh W each, the others weigh w. Only the multiset of n drawn texts is
published. The share of each law that is uniform over all m texts hides the record (Balle, Bell, Gascón and Nissim 2019,
"The Privacy Blanket of the Shuffle Model"). Specification: docs/spec/unlinked.md#bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from dptext_etl import extras
from dptext_etl.errors import PolicyError
from dptext_etl.guarantee import MICRO

Floats = npt.NDArray[np.float64]

_LOG_TAIL = -math.log(1e-18)
"""Tails of binomial counts below 1e-18 are cut; what is cut is added to the bound."""
_MARGIN = 1e-9
"""Relative margin, far above the rounding errors of the probabilities here (about 1e-12)."""
_BINS = 120
"""Bins of the number of hiding records at 1,000 rows; fewer for longer tables, where the number varies less."""
_LEAST_BINS = 10
_RESOLUTION = 5000
"""An epsilon is found to one part in so many, or to a millionth."""
_AT_ONCE = 1 << 20
"""Probabilities that are computed at a time."""
_CANCELLED = 1e-11
"""Above the relative rounding error of the incomplete beta function; differences of two such terms are rounded up."""


class Law(NamedTuple):
    """How a record's public text is drawn.

    Attributes:
        texts: Number of texts of the corpus (m).
        near: How many of them are near a text (N).
        inside: Weight of a near text (W).
        outside: Weight of any other text (w).
    """

    texts: int
    near: int
    inside: int
    outside: int

    @property
    def uniform(self) -> float:
        """The probability with which a record draws as if it had no text (gamma)."""
        return float(Fraction(self.texts * self.outside, self._total))

    @property
    def gain(self) -> float:
        """What a near text gains, in units of the uniform probability of a text (g)."""
        return float(Fraction(self.texts * (self.inside - self.outside), self._total))

    @property
    def _total(self) -> int:
        return self.near * self.inside + (self.texts - self.near) * self.outside

    @property
    def widths(self) -> npt.NDArray[np.int64]:
        """The numbers of texts by which two near sets can differ."""
        return np.arange(1, max(1, min(self.near, self.texts - self.near)) + 1)


def divergence(eps: float, rows: int, law: Law) -> float:
    """Bound the hockey-stick divergence at `eps` between the multisets of two tables that differ in one text.

    Args:
        eps: Epsilon, at least 0.
        rows: Number of drawn texts in the multiset, at least.
        law: How each of them is drawn.
    """
    return float(_divergences(eps, rows, law, law.widths).max())


@lru_cache(maxsize=256)
def central_epsilon(rows: int, law: Law, delta: float) -> Fraction:
    """Return an epsilon, in whole millionths, at which the multiset is (epsilon, delta)-private.

    `divergence` confirms it, and it exceeds the smallest such epsilon by 1/5,000 of it or a millionth at most. It is
    never above the loss of one draw, rounded up.

    Args:
        rows: Number of drawn texts in the multiset, at least.
        law: How each of them is drawn.
        delta: The delta of one record, above 0.
    """
    largest = math.ceil((math.log(law.inside) - math.log(law.outside)) * MICRO) + 1
    few = np.unique(np.linspace(1, law.widths[-1], 6).astype(np.int64))

    def holds(at: int) -> bool:
        return float(_divergences(at / MICRO, rows, law, few).max()) <= delta

    low = 0
    while True:  # a few differences find the place; all of them decide
        low = _smallest(holds, low, largest)
        found = _divergences(low / MICRO, rows, law, law.widths)
        if found.max() <= delta or low == largest:
            return Fraction(low, MICRO)
        few = np.sort(np.append(few, law.widths[int(found.argmax())]))


def _smallest(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return a number above `low`, up to `high`, from which on something holds, and which is close to the smallest."""
    while high - low > max(1, high // _RESOLUTION):
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _divergences(eps: float, rows: int, law: Law, widths: npt.NDArray[np.int64]) -> Floats:
    """Bound the divergence for pairs of near sets that differ in so many texts each."""
    uniform, gain, e = law.uniform, law.gain, math.exp(eps)
    pair, lone, back = np.zeros(len(widths)), 0.0, 0.0
    hiding, cut = _binned(rows - 1, uniform)
    for count, mass in hiding:
        size = count + 1
        near, chance = _binomial(size, law.near / law.texts)
        lone += mass * float((chance * np.maximum(0.0, uniform + gain * near / size - e)).sum())
        back += mass * float((chance * np.maximum(0.0, 1 - e * (uniform + gain * near / size))).sum())
        pair += mass * _pairs(eps, size, law, widths)
    slack = cut + 8 * math.exp(-_LOG_TAIL) * max(1.0, uniform + gain)
    return (np.maximum(pair, max(lone, back)) + slack) * (1 + _MARGIN)


def _pairs(eps: float, size: int, law: Law, widths: npt.NDArray[np.int64]) -> Floats:
    """Return the expected excess among `size` texts for pairs of near sets that differ in so many texts each."""
    chances = np.minimum(1.0, 2 * widths / law.texts)
    lows, highs = np.array([_range(size, chance) for chance in chances.tolist()]).T
    first, last = int(lows[0]), int(highs[-1])
    gains = _gains(eps, size, np.arange(first, last + 1), law.uniform, law.gain)
    found = np.zeros(len(widths))
    done = 0
    while done < len(widths):
        end = done + 1
        while end < len(widths) and (end + 1 - done) * int(highs[end] - lows[done] + 1) <= _AT_ONCE:
            end += 1
        k = np.arange(int(lows[done]), int(highs[end - 1]) + 1)
        chance = _pmf(k[None, :], np.full((1, 1), size), chances[done:end, None])
        found[done:end] = chance @ gains[k[0] - first : k[-1] - first + 1]
        done = end
    return found


def _gains(eps: float, size: int, counts: npt.NDArray[np.int64], uniform: float, gain: float) -> Floats:
    """Return an upper bound of the expected excess if k of `size` texts fall into the two differences.

    With a of them in the first difference, a ~ Bin(k, 1/2), the excess is base + slope * a where that is positive.
    """
    betainc, e, k = _betainc(), math.exp(eps), counts.astype(np.float64)
    base, slope = uniform * (1 - e) - gain * e * k / size, gain * (1 + e) / size
    least = np.clip(np.ceil(-base / slope), 0, k + 1)
    inner = (least > 0) & (least <= k)
    a, b = np.where(inner, least, 1), np.where(inner, k - least + 1, 1)
    above = np.where(inner, betainc(a, b, 0.5), least <= k)  # the probability of `least` and more
    lower = inner & (least > 1)
    shifted = np.where(lower, betainc(np.where(lower, a - 1, 1), b, 0.5), least <= k)  # the same of one text fewer
    weighed, mean = base * above, slope * k / 2 * shifted
    return np.asarray(np.maximum(0.0, weighed + mean) + _CANCELLED * (np.abs(weighed) + mean))


def _betainc() -> Callable[..., Floats]:
    try:
        from scipy.special import betainc
    except ImportError:
        raise PolicyError("bounds of unlinked releases need the library scipy", extras.install("accounting")) from None
    return cast("Callable[..., Floats]", betainc)


def _binned(trials: int, chance: float) -> tuple[list[tuple[int, float]], float]:
    """Return bins of a binomial count, each by its smallest member, and the probability of all counts below them.

    Fewer hide less, so a bin may count as its smallest member; counts above all bins go to the last one.
    """
    counts, masses = _binomial(trials, chance)
    bins = min(max(_LEAST_BINS, int(_BINS * math.sqrt(1000 / max(trials, 1000)))), len(counts))
    edges = np.unique(np.linspace(0, len(counts), bins + 1).astype(np.int64))
    found = [(int(counts[a]), float(masses[a:b].sum())) for a, b in pairwise(edges.tolist())]
    return found, 2 * math.exp(-_LOG_TAIL)


def _binomial(trials: int, chance: float) -> tuple[npt.NDArray[np.int64], Floats]:
    """Return the counts that matter and their probabilities."""
    low, high = _range(trials, chance)
    counts = np.arange(low, high + 1)
    return counts, _pmf(counts, np.full(1, trials), chance)


def _range(trials: int, chance: float) -> tuple[int, int]:
    """Return counts outside of which a binomial count lies with probability 1e-18 at most, on each side (Chernoff)."""
    mean = trials * chance
    below = math.sqrt(2 * mean * _LOG_TAIL)
    above = (_LOG_TAIL + math.sqrt(_LOG_TAIL**2 + 18 * mean * _LOG_TAIL)) / 3
    return max(0, math.floor(mean - below)), min(trials, math.ceil(mean + above))


def _pmf(counts: npt.NDArray[np.int64], trials: npt.NDArray[np.int64], chance: float | Floats) -> Floats:
    """Return binomial probabilities by Loader's saddle-point form, which keeps all digits for large counts."""
    others = trials - counts
    inner, p = (counts > 0) & (others > 0), np.minimum(np.asarray(chance, np.float64), 1 - 1e-16)
    k, rest, n = np.where(inner, counts, 1), np.where(inner, others, 1), np.maximum(trials, 2)
    log = _stirling(n) - _stirling(k) - _stirling(rest) - _deviance(k, n * p) - _deviance(rest, n * (1 - p))
    found = np.exp(log) * np.sqrt(n / (2 * math.pi * k.astype(np.float64) * rest))
    edge = np.exp(np.where(counts == 0, trials * np.log1p(-p), trials * np.log(p)))
    return np.where(chance >= 1, (counts == trials).astype(np.float64), np.where(inner, found, edge))


def _deviance(count: npt.NDArray[np.int64], mean: Floats) -> Floats:
    u = (count - mean) / mean
    return np.asarray(mean * ((1 + u) * np.log1p(u) - u))


def _stirling(n: npt.NDArray[np.int64]) -> Floats:
    """Return ln n! less Stirling's approximation of it."""
    far = np.maximum(n, 16).astype(np.float64)
    inverse = 1 / (far * far)
    series = (1 / 12 - inverse * (1 / 360 - inverse * (1 / 1260 - inverse * (1 / 1680 - inverse / 1188)))) / far
    return np.where(n < 16, _EXACT[np.minimum(n, 15)], series)


_EXACT = np.array(
    [0.0, *(math.lgamma(n + 1) - (n + 0.5) * math.log(n) + n - 0.5 * math.log(2 * math.pi) for n in range(1, 16))]
)
