"""Bound noise of density proportional to exp(-|eta|) in k dimensions: its length, and its size along one line.

Its length is Gamma(k) and its direction is uniform. So its size along any fixed line is R T, where R is the length and
T is one coordinate of a uniform direction, with density C (1 - t^2)^((k - 3) / 2) on [-1, 1].
"""

from __future__ import annotations

import math

import numpy as np

_BINS = 20_000
_LOSS = 1e-9
"""Above the rounding error of a few hundred additions of positive numbers."""


def longest_noise(dimensions: int) -> float:
    """Return a length that no draw exceeds, since each of its exponentials is -ln u with u at least 2**-128."""
    return dimensions * 128 * math.log(2) * (1 + 2.0**-30)


def least_tail(dimensions: int, distance: float) -> float:
    """Return a lower bound of the probability that the noise goes farther than `distance` in one direction.

    It is a sum from below over the values t of T: P[t <= T < t'] P[R >= distance / t]. The first factor takes the
    smaller end of a monotone density. The second is the regularized upper incomplete gamma function, which grows with
    t.
    """
    if dimensions == 1:
        return 0.5 * math.exp(-distance) * (1 - _LOSS)
    ends = np.linspace(0.0, min(1.0, 40.0 / math.sqrt(dimensions)), _BINS + 1)
    scale = math.lgamma(dimensions / 2) - math.lgamma((dimensions - 1) / 2) - 0.5 * math.log(math.pi)
    with np.errstate(divide="ignore"):
        density = math.exp(scale) * (1 - ends**2) ** ((dimensions - 3) / 2)
        reach = distance / ends[:-1] if distance > 0 else np.zeros(_BINS)
    mass = np.minimum(density[:-1], density[1:]) * np.diff(ends)
    # P[R >= x] for integer k is the probability of fewer than k points of a Poisson process of mean x
    term = np.exp(-reach)
    chance = term.copy()
    with np.errstate(invalid="ignore"):
        for points in range(1, dimensions):
            term *= reach / points
            chance += term
    chance = np.nan_to_num(np.minimum(chance, 1.0), nan=0.0)
    return float(mass @ chance) * (1 - _LOSS)
