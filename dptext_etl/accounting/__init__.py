"""Account for privacy: events say what a release does, and the accountant converts them to epsilon, delta, and rho."""

from dptext_etl.accounting.accountant import (
    MEASURES,
    Bound,
    bounds,
    compose,
    computed,
    joint,
    least,
    log10_odds,
    range_bounded,
    spend,
)
from dptext_etl.accounting.conversion import (
    allocated_epsilon,
    allocated_rho,
    bounded_range_epsilon,
    require_delta,
    zcdp_epsilon,
)
from dptext_etl.accounting.events import (
    Approximate,
    Composed,
    DividedDraws,
    Event,
    GaussianNoise,
    MetricClaim,
    PureDraws,
    Unbounded,
    ZeroConcentrated,
)

__all__ = [
    "MEASURES",
    "Approximate",
    "Bound",
    "Composed",
    "DividedDraws",
    "Event",
    "GaussianNoise",
    "MetricClaim",
    "PureDraws",
    "Unbounded",
    "ZeroConcentrated",
    "allocated_epsilon",
    "allocated_rho",
    "bounded_range_epsilon",
    "bounds",
    "compose",
    "computed",
    "joint",
    "least",
    "log10_odds",
    "range_bounded",
    "require_delta",
    "spend",
    "zcdp_epsilon",
]
