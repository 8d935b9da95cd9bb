"""Divide a budget in inverse proportion to scores, in whole millionths, so that the sum never exceeds it.

Paper: Meisenbacher, Lee and Matthes 2025, "Spend Your Budget Wisely", as docs/spec/privacy.md#budget-distribution
defines it: the paper's system of one equation for n unknowns has no unique solution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

FLOOR = 1e-6
"""Least score: a score of 0 would take the whole budget."""
_UNIT = 2.0**40


def spread(scores: Sequence[float], total: int, lowest: int, highest: int) -> list[int]:
    """Divide a budget: each part is inversely proportional to its score, within bounds, rounded down.

    Args:
        scores: Numbers from 0 to 1; what is no number counts as 1.
        total: The budget, in millionths, at least `len(scores) * lowest`.
        lowest: Least part, in millionths.
        highest: Largest part, in millionths, at least `lowest`.

    Returns:
        Parts in millionths, each from `lowest` to `highest`; their sum is at most `total`.

    Raises:
        ValueError: The least parts exceed the budget, or the bounds are in the wrong order.

    >>> spread([0.1, 0.2, 0.4], 7_000_000, 1, 7_000_000)
    [4000000, 2000000, 1000000]
    """
    if not 0 <= lowest <= highest or len(scores) * lowest > total:
        raise ValueError("the least parts fit into the budget, and the largest part is not below the least")
    inverse = [int(_UNIT / _from_floor(score)) for score in scores]
    whole = sum(inverse)
    parts = [min(highest, max(lowest, total * each // whole)) for each in inverse]
    if sum(parts) <= total:
        return parts
    room, excess = total - len(parts) * lowest, sum(parts) - len(parts) * lowest
    return [lowest + (part - lowest) * room // excess for part in parts]


def _from_floor(score: float) -> float:
    return 1.0 if math.isnan(score) else min(1.0, max(FLOOR, score))
