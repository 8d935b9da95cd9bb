"""Which statements hold about a spend, which of them is the least, and what it takes from a cap.

Amounts are millionths (`dptext_etl.guarantee`). Caps are *filters*: a sum fixed in advance that no charge may pass,
valid for adaptively chosen releases; running sums are shown for additive measures only, because a converted epsilon
read off at an output-dependent time is an odometer and is not covered (Rogers et al. 2016).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from dptext_etl.accounting.composition import compose
from dptext_etl.accounting.conversion import Draws, bounded_range_epsilon, zcdp_epsilon
from dptext_etl.errors import PolicyError
from dptext_etl.gaussian import smallest_epsilon
from dptext_etl.guarantee import MICRO, Micro, Spend, micro

MEASURES: dict[str, tuple[str, ...]] = {"pure": ("eps_pure",), "zcdp": ("rho",), "approx": ("eps_approx", "delta")}
"""What a cap may count, and the components of a spend that it adds up."""


@dataclass(frozen=True)
class Bound:
    """One valid (epsilon, delta) statement about a spend, with the rule that gives it.

    Attributes:
        epsilon: In millionths.
        delta: In millionths; 0 for a pure statement. An epsilon is never shown without it.
        rule: "tight": the sampler's exact pure parameters added up; "pure": declared pure epsilons added up;
            "approx": declared (epsilon, delta) pairs added up; "zcdp": their rho converted; "pld": their losses'
            distributions composed; "gaussian": the exact profile of all Gaussian noise together; "pure+gaussian": that
            beside pure releases.
    """

    epsilon: Micro
    delta: Micro
    rule: str

    @property
    def log10_odds(self) -> float:
        """By how many powers of ten the odds between two texts can move (docs/spec/privacy.md#odds)."""
        return log10_odds(self.epsilon)


def log10_odds(epsilon: Micro) -> float:
    """Return epsilon (in millionths) as powers of ten of the odds.

    >>> round(log10_odds(30_000_000))
    13
    """
    return epsilon / MICRO / math.log(10)


def bounds(spend: Spend) -> list[Bound]:
    """Return every finite statement about a spend, pure ones first; empty where no theorem is known."""
    stated = [
        Bound(spend.eps_pure, 0, "pure"),
        Bound(spend.eps_tight, 0, "tight"),
        Bound(spend.eps_approx, spend.delta, "approx"),
    ]
    return [bound for bound in stated if math.isfinite(bound.epsilon) and math.isfinite(bound.delta)]


def least(stated: Spend | Iterable[Bound]) -> Bound:
    """Return the least epsilon of a spend, or of statements about one, with its delta and rule.

    At equal epsilon the smaller delta counts, then the declared. Where no theorem is known the answer is infinite,
    with the rule "none".
    """
    found = bounds(stated) if isinstance(stated, Spend) else stated
    return min(found, key=lambda bound: (bound.epsilon, bound.delta), default=Bound(math.inf, 0, "none"))


def joint(spends: Iterable[Spend], delta: float, *, draws: Iterable[Draws] | None = None) -> list[Bound]:
    """Return every finite statement, at one fixed delta, about several releases of one subject.

    Specification: docs/spec/privacy.md#composition.

    The Gaussian rules hold for releases whose parameters were fixed beforehand, as those of a policy are.

    Args:
        spends: What each release cost.
        delta: The same for all statements; chosen beforehand.
        draws: All draws, where every release is made of range-bounded draws alone: adds the rule "pld".

    Raises:
        PolicyError: A delta outside (0, 1).
    """
    listed = list(spends)
    total = compose(listed)
    found = [bound for bound in bounds(total) if bound.delta <= delta * MICRO]
    gaussian = [item for item in listed if math.isfinite(item.mu2) and not math.isfinite(item.eps_pure)]
    pure = compose(item for item in listed if math.isfinite(item.eps_pure))
    at = delta * MICRO
    if math.isfinite(total.rho):
        found.append(Bound(micro(zcdp_epsilon(total.rho / MICRO, delta)), at, "zcdp"))
    if draws is not None:
        found.append(Bound(micro(bounded_range_epsilon(draws, delta)), at, "pld"))
    others = [item for item in listed if item not in gaussian and not math.isfinite(item.eps_pure)]
    if gaussian and not others:
        mu = math.sqrt(sum(item.mu2 for item in gaussian) / MICRO)
        noisy = micro(smallest_epsilon(mu, delta))
        rule = "gaussian" if len(gaussian) == len(listed) else "pure+gaussian"
        found.append(Bound(noisy + min(pure.eps_pure, pure.eps_tight), at, rule))
    return found


def charge(spend: Spend, measure: str) -> tuple[int, ...]:
    """Return what a spend takes from a cap on `measure`.

    Raises:
        PolicyError: An unknown measure, or a spend that is infinite on it (docs/spec/privacy.md#infinite-components).
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
