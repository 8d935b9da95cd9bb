"""Compute the noise of a statistic from (epsilon, delta), and what a record and a person are charged, rounded up.

Specification: docs/spec/synthetic.md#cost.
"""

from __future__ import annotations

import math
from fractions import Fraction

from dptext_etl.accounting import Approximate, ZeroConcentrated, require_delta, spend, zcdp_epsilon
from dptext_etl.errors import PolicyError
from dptext_etl.guarantee import Guarantee, Spend

LARGEST_VARIANCE = 2**48
"""Largest variance that the kernel draws (docs/spec/stream.md#discrete-gaussian)."""


def variance_of(sensitivity: int, epsilon: float, delta: float) -> int:
    """Return the least whole variance at which sums of this L2 sensitivity are (epsilon, delta)-DP by their zCDP.

    Args:
        sensitivity: Delta, in the units of the sums.
        epsilon: Above 0.
        delta: Between 0 and 1, exclusive.

    Raises:
        PolicyError: Epsilon is so small that the variance would be above 2^48.
    """
    require_delta(delta)
    if not 0 < epsilon < math.inf:
        raise PolicyError(f"epsilon is {epsilon}; allowed: a number above 0", "1 for the whole table is a good start")

    def enough(variance: int) -> bool:
        return zcdp_epsilon(rounded_up(rho_of(sensitivity, variance)), delta) <= epsilon

    if not enough(LARGEST_VARIANCE):
        raise PolicyError(f"epsilon is {epsilon}: the noise would not fit into its range", "raise epsilon")
    low, high = 0, LARGEST_VARIANCE
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def rho_of(sensitivity: int, variance: int) -> Fraction:
    """Return rho of zCDP, exactly: sensitivity^2 / (2 variance), in any dimension."""
    return Fraction(sensitivity**2, 2 * variance)


def rounded_up(amount: Fraction) -> float:
    """Return the least float that is not below a fraction."""
    found = float(amount)
    return found if Fraction(found) >= amount else math.nextafter(found, math.inf)


def charge(guarantee: Guarantee, rho: Fraction, per_subject: int, delta: float) -> Spend:
    """Return what each counted record is charged; a person with `per_subject` records pays that many times as much.

    A person may change `per_subject` records, whose sensitivities add up: k^2 rho. So a record is charged k rho, and of
    the pair (epsilon(k^2 rho, delta), delta) one k-th of epsilon, with the whole delta.
    """
    person = rounded_up(per_subject**2 * rho)
    approx = Fraction(zcdp_epsilon(person, delta)) / per_subject
    return spend(guarantee, Approximate(ZeroConcentrated(per_subject * rho), approx, delta), 1)
