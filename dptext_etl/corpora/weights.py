"""Compute the integer weights of near texts and of all others, in decimals of 60 digits.

Floats would give weights above e^epsilon for four epsilons in ten. Specification: docs/spec/stream.md#mixture-weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

MOST = 2**62
"""Largest sum of all weights."""
LARGEST_POWER = 46
UNCALIBRATED: Mapping[Decimal, Decimal] = {
    Decimal(epsilon): Decimal(hit)
    for epsilon, hit in (("0", ".3"), ("1", ".4"), ("2", ".5"), ("4", ".7"), ("8", ".9"), ("12", ".97"), ("16", ".99"))
}
"""Hit rates by epsilon, for corpora that no one calibrated; between them lie straight lines."""

_MOST_EPSILON = 700.0  # weights do not change from far below it on
_DIGITS = Context(prec=60, Emax=10**9, Emin=-(10**9))
_ABOVE = Decimal("1e-40")  # above the rounding error of a logarithm


class Weights(NamedTuple):
    """Integer weights: of each near text, and of each other one."""

    inside: int
    outside: int

    @property
    def loss(self) -> Fraction:
        """Return an upper bound of ln(inside / outside), less than 1e-39 above it."""
        ratio = _DIGITS.ln(_DIGITS.divide(Decimal(self.inside), Decimal(self.outside)))
        return Fraction(_DIGITS.add(ratio, _ABOVE))


@lru_cache(maxsize=256)
def weights(m: int, d: int, epsilon: Decimal) -> Weights:
    """Return the weights of d near texts among m, of ratio at most e^epsilon."""
    odds = _DIGITS.exp(epsilon)
    for power in range(LARGEST_POWER, -1, -1):
        outside = 1 << power
        scaled = _DIGITS.multiply(Decimal(outside), odds)
        if scaled > MOST:
            continue
        inside = int(scaled.to_integral_value(ROUND_FLOOR))
        if m * outside + d * (inside - outside) <= MOST:
            return Weights(inside, outside)
    return Weights((MOST - (m - d)) // d, 1)


def near_texts(m: int, epsilon: Decimal, hit: Decimal) -> int:
    """Return how many of m texts are near, so that a draw hits one of them with a given probability."""
    odds = _DIGITS.exp(epsilon)
    least = _DIGITS.add(_DIGITS.multiply(odds, _DIGITS.subtract(Decimal(1), hit)), hit)
    d = _DIGITS.divide(_DIGITS.multiply(Decimal(m), hit), least)
    return min(m - 1, max(1, int(d.to_integral_value(ROUND_HALF_EVEN))))


def usual_hit(epsilon: Decimal, calibrated: Mapping[Decimal, Decimal]) -> Decimal:
    """Return the hit rate of an epsilon, on the line between its neighbors among the calibrated ones."""
    known = sorted((calibrated or UNCALIBRATED).items())
    below = [point for point in known if point[0] <= epsilon]
    above = [point for point in known if point[0] > epsilon]
    if not below or not above:
        return below[-1][1] if below else above[0][1]
    (left, low), (right, high) = below[-1], above[0]
    share = _DIGITS.divide(_DIGITS.subtract(epsilon, left), _DIGITS.subtract(right, left))
    return _DIGITS.add(low, _DIGITS.multiply(share, _DIGITS.subtract(high, low)))


def hit_rate(m: int, d: int, epsilon: float) -> float:
    """Return the probability that a draw hits one of the d near texts, by the weights that decide it.

    Args:
        m: Number of texts, at least 2.
        d: Number of near ones, from 1 to m - 1.
        epsilon: Epsilon of one draw, above 0.

    >>> round(hit_rate(20_000, 820, 4.0), 3)
    0.7
    """
    inside, outside = weights(m, d, Decimal(repr(min(epsilon, _MOST_EPSILON))))
    return d * inside / (m * outside + d * (inside - outside))


def near_weight(m: int, d: int, epsilon: float) -> float:
    """Return the probability that a draw comes from the near part of the mixture, and not from all texts evenly.

    It is the hit rate less what the even part hits: (h - d/m) / (1 - d/m).
    """
    inside, outside = weights(m, d, Decimal(repr(min(epsilon, _MOST_EPSILON))))
    return d * (inside - outside) / (m * outside + d * (inside - outside))
