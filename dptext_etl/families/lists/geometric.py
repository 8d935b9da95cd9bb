"""Compute the geometric mechanism over the places of a list, which adds a discrete Laplace number and clamps the sum.

A table of integer weights cannot express it: rounding up in the tails breaks the claim per place
(docs/spec/privacy.md#metric-certificate). The kernel draws it exactly. This module computes its probabilities, which
are irrational (docs/spec/privacy.md#diffractor-geometric).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dptext_etl.allocation import Epsilons
from dptext_etl.guarantee import MICRO

GRID_BITS = 1_100
"""Probabilities are rounded to multiples of 2**-1100, so that every float above 0 is right to its last bit."""


@dataclass(frozen=True)
class GeometricDistribution:
    """The discrete Laplace distribution of a rational rate, added to the place and clamped to the list.

    Attributes:
        rate: Rate per place: a = exp(-rate), P[step = k] = (1 - a) / (1 + a) * a**|k|.
    """

    rate: Fraction

    def written(self) -> dict[str, Any]:
        """Return the distribution in the format of the kernel."""
        return {"geometric": {"rate": [self.rate.numerator, self.rate.denominator]}}

    def realised(self, lists: Sequence[npt.NDArray[np.uint32]]) -> dict[str, Any]:
        """Return the loss on lists of one vocabulary: rate * (N - 1), attained at the ends of a single list."""
        worst = float(self.rate * (len(lists[0]) - 1))
        return {"epsilon_table": repr(worst), "epsilon_table_is": "exact" if len(lists) == 1 else "bound"}

    def chances(self, place: int, places: int) -> list[Fraction]:
        """Return the probabilities of all places, multiples of 2**-GRID_BITS that sum to 1 exactly.

        They are irrational, so each is rounded to the grid, and the place itself gets the rest of the sum. The error of
        an entry is at most half a grid step; that of the place itself is as much per place of the list.
        """
        inner, end = _tails(self.rate, places)
        steps = [inner[abs(other - place)] for other in range(places)]
        steps[0], steps[-1] = end[place], end[places - 1 - place]
        steps[place] += (1 << GRID_BITS) - sum(steps)
        return [Fraction(step, 1 << GRID_BITS) for step in steps]

    def stays(self, place: int, places: int) -> Fraction:
        """Return an upper bound of the probability of the place itself, at most 2**-64 above it."""
        with localcontext() as context:
            context.prec = 40
            a = _ratio(self.rate)
            edge = place in (0, places - 1)
            chance = 1 / (1 + a) if edge else (1 - a) / (1 + a)
            return min(Fraction(1), Fraction(math.ceil(chance * 2**64), 2**64))

    def agrees(self, place: int, places: int) -> float:
        """Return an upper bound of the probability that two draws from one place agree."""
        a = math.exp(-float(self.rate))
        chances = (1 - a) / (1 + a) * a ** np.abs(np.arange(places, dtype=np.float64) - place)
        chances[0], chances[-1] = a**place / (1 + a), a ** (places - 1 - place) / (1 + a)
        return min(1.0, float(np.dot(chances, chances)) * (1 + 1e-9))


def rates_of(epsilons: Sequence[Epsilons], distance: Fraction) -> list[Fraction]:
    """Return the rate per place of draws, exactly, by their epsilons over the largest distance of two places."""
    parts = np.rint(np.concatenate([np.zeros(0), *epsilons]) * MICRO).astype(np.int64).tolist()
    return [part / (MICRO * distance) for part in parts]


def _ratio(rate: Fraction) -> Decimal:
    """Return exp(-rate) in the precision of the context."""
    return (-Decimal(rate.numerator) / Decimal(rate.denominator)).exp()


@lru_cache(maxsize=4)
def _tails(rate: Fraction, places: int) -> tuple[list[int], list[int]]:
    """Return the probabilities of a place inside the list and of its ends, in grid steps, by distance."""
    guard = GRID_BITS + 64 + places.bit_length()
    with localcontext() as context:
        context.prec = int((guard + 64) * math.log10(2)) + 1
        a = _ratio(rate)
        ratio, inside, end = (int(value * 2**guard) for value in (a, (1 - a) / (1 + a), 1 / (1 + a)))
    inner, outer, power = [], [], 1 << guard
    shift = 2 * guard - GRID_BITS
    half = 1 << (shift - 1)
    for _ in range(places):
        inner.append((power * inside + half) >> shift)
        outer.append((power * end + half) >> shift)
        power = (power * ratio) >> guard
    return inner, outer
