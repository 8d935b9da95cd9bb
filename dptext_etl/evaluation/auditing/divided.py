"""Say what a trial of a mechanism may show at most, where one budget is divided among the draws of a record.

A text of one draw gives it the largest part there is. Two texts of two draws may differ in both divisions, even where
they differ in one word alone, so what bounds their loss is the budget of the record; under a template it is the part of
the position in which they differ (docs/spec/privacy.md#theorem-a, docs/spec/privacy.md#allocation-allowed).
"""

from __future__ import annotations

from dptext_etl.families.allocated import Allocated
from dptext_etl.guarantee import MICRO
from dptext_etl.mechanism import Mechanism

POSITIONS = "two positions"
"""Name of the trial whose texts have two draws, the second of which differs."""


def limit_of(mechanism: Mechanism, trial: str, otherwise: float) -> float:
    """Return the claimed bound of a trial's loss.

    Args:
        mechanism: The mechanism that releases.
        trial: Name of the trial.
        otherwise: The bound where every draw has the same epsilon, and of texts of one draw.
    """
    allocation = mechanism.allocation if isinstance(mechanism, Allocated) else None
    if allocation is None or trial != POSITIONS:
        return otherwise
    if allocation.template is None:
        return mechanism.epsilon
    return allocation.by_position(allocation.template, 2)[1] / MICRO


def whole(mechanism: Mechanism) -> float | None:
    """Return the epsilon of a record where one budget is divided among its draws; otherwise None."""
    divided = isinstance(mechanism, Allocated) and mechanism.allocation is not None
    return mechanism.epsilon if divided else None
