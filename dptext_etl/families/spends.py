"""Compute the cost of a number of draws of the exponential mechanism, or of draws without a finite claim."""

from __future__ import annotations

import math
from fractions import Fraction

from dptext_etl.guarantee import Guarantee, Spend, micro

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
    """Return the cost of adaptive draws (docs/spec/privacy.md#epsilon-star, docs/spec/privacy.md#br-zcdp).

    Args:
        guarantee: The claim.
        draws: Largest number of draws, at least 0.
        epsilon: Declared pure parameter of one draw.
        tight: Exact pure parameter of one draw, or an upper bound of it; None if `epsilon` is the best known bound.
        positions: Number of positions that the charge counts.
        beside: Pure epsilon of other draws (a noisy length; docs/spec/privacy.md#length-noisy).
        bounded_range: True if one draw is range-bounded (zCDP epsilon^2/8), False if it is only pure (epsilon^2/2).
    """
    pure = micro(draws * epsilon + beside)
    realised = pure if tight is None else micro(draws * (tight + _STATED) + beside)
    return Spend(
        guarantee_class=guarantee.guarantee_class,
        disclosures=guarantee.disclosures,
        eps_pure=pure,
        eps_tight=min(pure, realised),
        eps_approx=pure,
        delta=0,
        rho=micro(draws * epsilon * epsilon / (8 if bounded_range else 2) + beside * beside / 2),
        mu2=math.inf if draws else 0,
        eps_metric=math.inf if draws else 0,
        n_worst=positions,
        assumptions=guarantee.assumptions,
    )


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
