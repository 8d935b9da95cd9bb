"""All composition and conversion: pure, tight, zCDP, Gaussian, PLD; the least valid one, with its rule."""

from dptext_etl.accounting.bounds import MEASURES, Bound, bounds, charge, joint, least, log10_odds
from dptext_etl.accounting.composition import compose, parallel, repeat
from dptext_etl.accounting.conversion import (
    Draws,
    azuma_epsilon,
    bounded_range_epsilon,
    nonadaptive_epsilon,
    zcdp_epsilon,
)

__all__ = [
    "MEASURES",
    "Bound",
    "Draws",
    "azuma_epsilon",
    "bounded_range_epsilon",
    "bounds",
    "charge",
    "compose",
    "joint",
    "least",
    "log10_odds",
    "nonadaptive_epsilon",
    "parallel",
    "repeat",
    "zcdp_epsilon",
]
