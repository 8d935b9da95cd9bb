"""State what holds about a spend, and pick the statement with the least epsilon.

Amounts are millionths (`dptext_etl.guarantee`). A cap is a *filter*: no one may be charged more than a sum that was
fixed in advance, and this holds for releases that are chosen after earlier outputs were seen. The ledger shows running
sums of additive measures alone. A converted epsilon that is read at a time which depends on outputs is an odometer, and
the conversions here do not cover it (Rogers et al. 2016; docs/spec/privacy.md#filters).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from dptext_etl.accounting.composition import compose
from dptext_etl.accounting.conversion import Draws, bounded_range_epsilon, require_delta, zcdp_epsilon
from dptext_etl.gaussian import smallest_epsilon
from dptext_etl.guarantee import FINE, MICRO, Micro, Spend, exact, micro, millionths

MEASURES: dict[str, tuple[str, ...]] = {"pure": ("eps_pure",), "zcdp": ("rho",), "approx": ("eps_approx", "delta")}
"""The measures that a cap may count, each with the components of a spend that it adds up."""


@dataclass(frozen=True)
class Bound:
    """One valid (epsilon, delta) statement about a spend, with the rule that gives it.

    Attributes:
        epsilon: In millionths, 0 or more; infinite where no theorem is known.
        delta: In millionths; 0 for a pure statement. Never show an epsilon without its delta.
        rule: "tight": the sampler's exact pure parameters, added up. "pure": the declared pure epsilons, added up.
            "approx": the declared (epsilon, delta) pairs, added up. "zcdp": the sum of rho, converted. "pld": the
            composed distribution of the privacy loss. "gaussian": the exact profile of all Gaussian noise together.
            "pure+gaussian": the same, plus the epsilon of the pure releases. "none": no theorem is known.
    """

    epsilon: Micro
    delta: Micro
    rule: str

    @property
    def log10_odds(self) -> float:
        """The powers of ten by which the odds between two texts can move (docs/spec/privacy.md#odds)."""
        return log10_odds(self.epsilon)


def log10_odds(epsilon: Micro) -> float:
    """Convert epsilon (in millionths) to powers of ten of the odds.

    >>> round(log10_odds(30_000_000))
    13
    """
    return epsilon / MICRO / math.log(10)


def bounds(spend: Spend) -> list[Bound]:
    """Return every finite statement about a spend, pure ones first. The list is empty where no theorem is known."""
    stated = [
        Bound(spend.eps_pure, 0, "pure"),
        Bound(spend.eps_tight, 0, "tight"),
        Bound(spend.eps_approx, millionths("delta", spend.delta), "approx"),
    ]
    return [bound for bound in stated if math.isfinite(bound.epsilon) and math.isfinite(bound.delta)]


def least(stated: Spend | Iterable[Bound]) -> Bound:
    """Pick the statement with the least epsilon about a spend, or among given statements.

    At equal epsilon the smaller delta wins, then the statement that comes first. Where no theorem is known the epsilon
    is infinite and the rule is "none".
    """
    found = bounds(stated) if isinstance(stated, Spend) else stated
    return min(found, key=lambda bound: (bound.epsilon, bound.delta), default=Bound(math.inf, 0, "none"))


def joint(spends: Iterable[Spend], delta: float, *, draws: Iterable[Draws] | None = None) -> list[Bound]:
    """Return every finite statement at one fixed delta about several releases of one subject.

    The Gaussian rules hold for parameters that were fixed beforehand, as those of a policy are.

    Specification: docs/spec/privacy.md#composition.
    """
    require_delta(delta)
    listed = list(spends)
    total = compose(listed)
    found = [bound for bound in bounds(total) if bound.rule != "approx" or total.delta <= exact(delta) * FINE]
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
