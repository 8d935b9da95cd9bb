"""Compose releases and convert what they cost to (epsilon, delta): pure, tight, zCDP, Gaussian, PLD."""

from dptext_etl.accounting.allocated import allocated_epsilon, allocated_rho
from dptext_etl.accounting.bounds import MEASURES, Bound, bounds, joint, least, log10_odds
from dptext_etl.accounting.composition import compose
from dptext_etl.accounting.conversion import Draws, bounded_range_epsilon, require_delta, zcdp_epsilon

__all__ = [
    "MEASURES",
    "Bound",
    "Draws",
    "allocated_epsilon",
    "allocated_rho",
    "bounded_range_epsilon",
    "bounds",
    "compose",
    "joint",
    "least",
    "log10_odds",
    "require_delta",
    "zcdp_epsilon",
]
