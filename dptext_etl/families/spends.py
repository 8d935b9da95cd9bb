"""Compute the cost of a number of draws of the exponential mechanism, or of draws without a finite claim."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from dptext_etl import sampling
from dptext_etl.accounting import allocated_epsilon, allocated_rho
from dptext_etl.allocation import Allocation
from dptext_etl.guarantee import MICRO, Guarantee, Spend, exact, micro

_STATED = Fraction(1, 10**12)
"""Above the rounding error of a computed exact parameter."""


def spend_of_draws(
    guarantee: Guarantee,
    draws: int,
    epsilon: Fraction,
    tight: Fraction | None,
    *,
    positions: int,
    beside: Fraction = Fraction(0),
    bounded_range: bool = True,
) -> Spend:
    """Return the cost of adaptive draws (docs/spec/privacy.md#epsilon-star, docs/spec/privacy.md#br-zcdp)."""
    costs = _costs(epsilon, tight, beside, 8 if bounded_range else 2)
    pure, realised, rho = (cost.of(draws) for cost in costs)
    return Spend(
        guarantee_class=guarantee.guarantee_class,
        disclosures=guarantee.disclosures,
        eps_pure=pure,
        eps_tight=min(pure, realised),
        eps_approx=pure,
        delta=0,
        rho=rho,
        mu2=math.inf if draws else 0,
        eps_metric=math.inf if draws else 0,
        n_worst=positions,
        assumptions=guarantee.assumptions,
    )


class _Cost(NamedTuple):
    """Cost of each of many draws, and the cost charged once, as whole numbers, which are faster than fractions.

    >>> _Cost.made(Fraction(1, 7), Fraction(1, 3)).of(3) == micro(3 * Fraction(1, 7) + Fraction(1, 3))
    True
    """

    each: int
    beside: int
    unit: int

    @classmethod
    def made(cls, each: Fraction, beside: Fraction) -> _Cost:
        """Bring both to one denominator."""
        return cls(
            each.numerator * beside.denominator * MICRO,
            beside.numerator * each.denominator * MICRO,
            each.denominator * beside.denominator,
        )

    def of(self, draws: int) -> int:
        """Return `micro(draws * each + beside)`."""
        return -(-(draws * self.each + self.beside) // self.unit)


@lru_cache(maxsize=256)
def _costs(epsilon: Fraction, tight: Fraction | None, beside: Fraction, share: int) -> tuple[_Cost, _Cost, _Cost]:
    """Return what draws cost: declared, by the sampler's own integers, and in rho, epsilon^2 / `share` each."""
    pure = _Cost.made(epsilon, beside)
    realised = pure if tight is None else _Cost.made(tight + _STATED, beside)
    return pure, realised, _Cost.made(epsilon * epsilon / share, beside * beside / 2)


def spend_of_allocation(
    guarantee: Guarantee,
    allocation: Allocation,
    draws: int,
    outputs: int,
    *,
    positions: int,
    beside: Fraction = Fraction(0),
) -> Spend:
    """Return the cost of draws that divide one budget, whatever divides it (docs/spec/privacy.md#theorem-a).

    A first release adds the cost of its even draws, the choice of a template that of one draw.
    """
    if not draws:
        return spend_of_draws(guarantee, 0, Fraction(0), None, positions=positions)
    pure = exact(allocation.total) + allocation.beside + beside
    tight = allocated_epsilon(allocation.total, draws, outputs, sampling.weight_bits(outputs))
    rho = allocated_rho(allocation.total, Fraction(allocation.bounds(draws)[1], MICRO)) + beside * beside / 2
    if allocation.first is not None:
        each = Fraction(allocation.even(draws), MICRO)
        tight += draws * sampling.epsilon_implemented(float(each), outputs)
        rho += draws * each * each / 8
    elif allocation.choosing is not None:
        tight += sampling.epsilon_implemented(allocation.choosing, len(allocation.templates))
        rho += exact(allocation.choosing) ** 2 / 8
    made = spend_of_draws(guarantee, 1, pure, None, positions=positions)
    realised = micro(exact(tight) + (draws + 2) * _STATED + beside)
    return replace(made, eps_tight=min(made.eps_tight, realised), rho=micro(rho))


def spend_of_division(
    guarantee: Guarantee, allocation: Allocation, draws: int, *, beside: Fraction = Fraction(0)
) -> Spend:
    """Return the cost of draws of noise that divide one budget, if no private text divides it.

    What divides it is public, or was released before at a cost of its own, so that the epsilons of the draws add up.
    Such draws are pure, and no more is known of them (docs/spec/privacy.md#allocation-allowed).
    """
    if not draws:
        return spend_of_draws(guarantee, 0, Fraction(0), None, positions=0)
    pure = exact(allocation.total) + allocation.beside + beside
    largest, each = (Fraction(part, MICRO) for part in (allocation.bounds(draws)[1], allocation.even(draws)))
    rho = (largest * exact(allocation.total) + draws * each * each + beside * beside) / 2
    tight = None
    if allocation.choosing is not None:
        chosen = exact(sampling.epsilon_implemented(allocation.choosing, len(allocation.templates)))
        tight = pure - exact(allocation.choosing) + chosen
        rho += exact(allocation.choosing) ** 2 / 8
    made = spend_of_draws(guarantee, 1, pure, tight, positions=draws, bounded_range=False)
    return replace(made, rho=micro(rho))


def unbounded(guarantee: Guarantee, positions: int) -> Spend:
    """Return a cost that is infinite in every component, or zero for no draws.

    Specification: docs/spec/privacy.md#infinite-components.
    """
    endless = math.inf if positions else 0
    return Spend(
        guarantee_class=guarantee.guarantee_class,
        disclosures=guarantee.disclosures,
        eps_pure=endless,
        eps_tight=endless,
        eps_approx=endless,
        delta=0,
        rho=endless,
        mu2=endless,
        eps_metric=endless,
        n_worst=positions,
        assumptions=guarantee.assumptions,
    )
