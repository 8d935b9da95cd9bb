"""Account for draws whose epsilons may depend on the text, while their sum has a public bound (Theorem A).

All draws are range-bounded, over output sets of at most `outputs` members. With f(e) = ln(m pmax(e)) and g(e) = -ln(m
pmin(e)), two texts that divide E as they like are at most n f(E/n) + g(E) apart, which is at most E. Integer weights
stop growing at e_s = 2 B ln 2, so there g becomes G. Specification: docs/spec/privacy.md#theorem-a-exact,
docs/spec/privacy.md#theorem-a-integers, docs/spec/privacy.md#allocation-zcdp.
"""

from __future__ import annotations

import math
from fractions import Fraction

from dptext_etl.guarantee import exact


def allocated_epsilon(total: float, draws: int, outputs: int, bits: int) -> float:
    """Return the pure parameter that integer weights realize, over all divisions of a budget among draws.

    Args:
        total: The budget of all draws together, above 0.
        draws: Number of draws, at least 1.
        outputs: Size of the largest output set, at least 2.
        bits: Bits B of the largest weight.

    >>> round(allocated_epsilon(6.0, 2, 4, 46), 6)
    4.476449
    """
    saturated, most = 2 * bits * math.log(2), math.log(1 + (outputs - 1) * 2**bits) - math.log(outputs)
    whole = math.floor(total / saturated)
    if whole >= draws:
        concentrated = draws * most
    else:
        concentrated = whole * most + min(most, _least(total - whole * saturated, outputs))
    return min(total, draws * _largest(total / draws, outputs) + concentrated)


def allocated_rho(total: float, largest: Fraction) -> Fraction:
    """Return rho of zCDP, over all divisions of a budget in which no draw takes more than `largest`."""
    return min(largest, exact(total)) * exact(total) / 8


def _largest(epsilon: float, m: int) -> float:
    """Return f(epsilon): how far above 1/m a probability can lie, as a logarithm."""
    return math.log(m) - math.log1p((m - 1) * math.exp(-epsilon / 2))


def _least(epsilon: float, m: int) -> float:
    """Return g(epsilon): how far below 1/m a probability can lie, as a logarithm."""
    return epsilon / 2 + math.log(m - 1 + math.exp(-epsilon / 2)) - math.log(m)
