"""Add up what several releases of one unit cost (docs/spec/privacy.md#composition)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import add

from dptext_etl.guarantee import Spend


def compose(spends: Iterable[Spend]) -> Spend:
    """Add up what releases of one unit cost: components add, disclosures unite, the weakest class stays.

    The sum holds for releases that are chosen after earlier outputs were seen. It compares histories that agree on
    every disclosure (docs/spec/privacy.md#spend-composition).
    """
    listed = list(spends)
    return reduce(add, listed) if listed else Spend.zero()
