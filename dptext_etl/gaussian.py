"""Compute the exact privacy profile of Gaussian noise and its two inverses (Balle and Wang 2018, theorem 8).

Specification: docs/spec/privacy.md#analytic-gaussian.

Everything depends on mu = sensitivity / sigma alone. The functions compute in logarithms, because the textbook form
loses the result at epsilon = 500 and overflows above 709. Each inverse is rounded to the side on which the claim holds.
"""

from __future__ import annotations

import math

_STEPS = 200  # halvings: far below one unit in the last place
_MARGIN = 1e-10  # margin of ln delta above the rounding error of `log_delta`, so that the result is on the safe side


def log_delta(epsilon: float, mu: float) -> float:
    """Return ln delta(epsilon) of Gaussian noise whose sensitivity is `mu` standard deviations.

    >>> round(math.exp(log_delta(1.0, 1.0)), 6)
    0.126937
    """
    from scipy.special import log_ndtr

    near, far = float(log_ndtr(mu / 2 - epsilon / mu)), epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return near + math.log1p(-math.exp(min(0.0, far - near))) if far < near else -math.inf


def largest_mu(epsilon: float, delta: float) -> float:
    """Return the largest sensitivity, in standard deviations, at which noise is (epsilon, delta)-DP.

    Args:
        epsilon: Above 0.
        delta: Between 0 and 1, exclusive.

    >>> round(largest_mu(500.0, 1e-5), 6)
    27.673312
    """
    low, high, limit = 0.0, 1.0, math.log(delta) - _MARGIN
    while log_delta(epsilon, high) <= limit:
        low, high = high, 2 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if log_delta(epsilon, middle) <= limit else (low, middle)
    return low


def smallest_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon of noise with this sensitivity (in standard deviations) at this delta."""
    limit = math.log(delta) - _MARGIN
    if mu == 0 or log_delta(0.0, mu) <= limit:
        return 0.0
    low, high = 0.0, 1.0
    while log_delta(high, mu) > limit:
        low, high = high, 2 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if log_delta(middle, mu) <= limit else (middle, high)
    return high
