"""Divide a budget among the draws of a text by public scores of its words (paper 001), under Theorem A."""

from dptext_etl.allocation.allocation import Allocation, Place, in_millionths, spread
from dptext_etl.allocation.dividing import PASS, Epsilons, Marked, along, divided, draw_in_passes, fit
from dptext_etl.allocation.score import Score

__all__ = [
    "PASS",
    "Allocation",
    "Epsilons",
    "Marked",
    "Place",
    "Score",
    "along",
    "divided",
    "draw_in_passes",
    "fit",
    "in_millionths",
    "spread",
]
