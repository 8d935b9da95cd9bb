"""Composition: what several releases cost together, and which of the valid bounds is the least.

Pure and tight rows of `spec/privacy.md` section 5. Amounts are millionths (`dptext_etl.guarantee`). Caps are *filters*:
a sum fixed in advance that no charge may pass, valid for adaptively chosen releases; running sums are shown for
additive measures only, because a converted epsilon read off at an output-dependent time is an odometer and is not
covered (Rogers et al. 2016).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

from dptext_etl.errors import PolicyError
from dptext_etl.guarantee import ADDITIVE, MICRO, GuaranteeClass, Micro, Spend

MEASURES: dict[str, tuple[str, ...]] = {"pure": ("eps_pure",), "zcdp": ("rho",), "approx": ("eps_approx", "delta")}
"""What a cap may count, and the components of a spend that it adds up."""

_STRENGTH = list(GuaranteeClass)


@dataclass(frozen=True)
class Bound:
    """One valid (epsilon, delta) statement about a spend, with the rule that gives it.

    Attributes:
        epsilon: In millionths.
        delta: In millionths; 0 for a pure statement. An epsilon is never shown without it.
        rule: "tight": the sampler's exact pure parameters added up; "pure": declared pure epsilons added up;
            "approx": declared (epsilon, delta) pairs added up.
    """

    epsilon: Micro
    delta: Micro
    rule: str

    @property
    def log10_odds(self) -> float:
        """By how many powers of ten the odds between two texts can move (`privacy.md` section 1.4)."""
        return log10_odds(self.epsilon)


def log10_odds(epsilon: Micro) -> float:
    """Return epsilon (in millionths) as powers of ten of the odds.

    >>> round(log10_odds(30_000_000))
    13
    """
    return epsilon / MICRO / math.log(10)


def compose(spends: Iterable[Spend]) -> Spend:
    """Return what releases of one unit cost together: components add, disclosures unite, the weakest class stays.

    Valid for adaptive releases; the sum is between histories that agree on every disclosure (amendment A23).
    """
    listed = list(spends)
    return reduce(add, listed) if listed else Spend.zero()


def repeat(spend: Spend, count: int) -> Spend:
    """Return what `count` releases at one spend cost: exactly `compose([spend] * count)`.

    Raises:
        PolicyError: A negative count.
    """
    if count < 0:
        raise PolicyError(f"a release happens 0 times or more, got {count}")
    if count == 0:
        return Spend.zero()
    return replace(spend, n_worst=spend.n_worst * count, **{name: getattr(spend, name) * count for name in ADDITIVE})


def parallel(spends: Iterable[Spend]) -> Spend:
    """Return what releases of *different* subjects cost each of them at most: the largest of every component.

    Valid only where no artifact was made from several subjects' texts (`privacy.md` section 1.7-1).
    """
    listed = list(spends)
    if not listed:
        return Spend.zero()
    first = listed[0]
    return replace(
        first,
        guarantee_class=max((item.guarantee_class for item in listed), key=_STRENGTH.index),
        disclosures=frozenset().union(*(item.disclosures for item in listed)),
        assumptions=frozenset().union(*(item.assumptions for item in listed)),
        metric_id=first.metric_id if len({item.metric_id for item in listed}) == 1 else None,
        n_worst=max(item.n_worst for item in listed),
        **{name: max(getattr(item, name) for item in listed) for name in (*ADDITIVE, "diameter")},
    )


def bounds(spend: Spend) -> list[Bound]:
    """Return every finite statement about a spend, pure ones first; empty where no theorem is known."""
    stated = [
        Bound(spend.eps_pure, 0, "pure"),
        Bound(spend.eps_tight, 0, "tight"),
        Bound(spend.eps_approx, spend.delta, "approx"),
    ]
    return [bound for bound in stated if math.isfinite(bound.epsilon) and math.isfinite(bound.delta)]


def least(spend: Spend) -> Bound:
    """Return the least valid epsilon, with its delta and rule; at equal epsilon the smaller delta, then the declared.

    Where no theorem is known the answer is infinite, with the rule "none".
    """
    return min(bounds(spend), key=lambda bound: (bound.epsilon, bound.delta), default=Bound(math.inf, 0, "none"))


def charge(spend: Spend, measure: str) -> tuple[int, ...]:
    """Return what a spend takes from a cap on `measure`.

    Raises:
        PolicyError: An unknown measure, or a spend that is infinite on it (`privacy.md` section 7.3).
    """
    if measure not in MEASURES:
        raise PolicyError(f"unknown measure {measure!r}; allowed: {', '.join(MEASURES)}")
    amounts = [getattr(spend, name) for name in MEASURES[measure]]
    if not all(math.isfinite(amount) for amount in amounts):
        finite = [
            name for name, parts in MEASURES.items() if all(math.isfinite(getattr(spend, part)) for part in parts)
        ]
        hint = f"cap on {' or '.join(finite)}" if finite else "no cap fits: this class has no finite bound"
        raise PolicyError(f"a {spend.guarantee_class} spend is infinite on {measure}", hint)
    return tuple(int(amount) for amount in amounts)
