"""Say what a trial of a mechanism may show at most, where one budget is divided among the draws of a record.

A text of one draw gives it the largest part there is. Two texts of two draws may differ in both divisions, even where
they differ in one word alone, so what bounds their loss is the budget of the record; under a template it is the part of
the position in which they differ (docs/spec/privacy.md#theorem-a, docs/spec/privacy.md#allocation-allowed).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from pydantic import PrivateAttr

from dptext_etl.allocation import Allocation, Place
from dptext_etl.guarantee import MICRO
from dptext_etl.mechanism import Mechanism

Kind = TypeVar("Kind", bound=Mechanism)

POSITIONS = "two positions"
"""Name of the trial whose texts have two draws, the second of which differs."""
OF_TWO = "one draw of two"
"""Name of the trial of one such text and another, by what both release."""
PASSES = "two passes"
"""Name of the trial of what the first and the second pass of a text of one draw release."""


def limit_of(mechanism: Mechanism, trial: str, otherwise: float) -> float:
    """Return the claimed bound of a trial's loss."""
    allocation = mechanism.allocation
    if allocation is None or trial not in (POSITIONS, OF_TWO):
        return otherwise
    if allocation.template is None:
        return mechanism.epsilon
    return allocation.by_position(allocation.template, 2)[1] / MICRO


def whole(mechanism: Mechanism) -> float | None:
    """Return the epsilon of a record where one budget is divided among its draws; otherwise None."""
    return None if mechanism.allocation is None else mechanism.epsilon


class Watched(Allocation):
    """An allocation of two passes that keeps what the first one released; all words score alike."""

    _first: list[str] = PrivateAttr(default_factory=list)

    @property
    def seen(self) -> list[str]:
        """Return what the first pass released of every text, in the order of the texts."""
        return self._first

    def over(
        self, tokens: Sequence[str], places: Sequence[Place] | None = None, *, draws: int | None = None
    ) -> list[int]:
        """Divide the budget of the second pass, and keep the words of the first."""
        self._first.append(" ".join(tokens).strip())
        return super().over(tokens, places, draws=draws)

    def rated(self, tokens: Sequence[str]) -> list[float]:
        """Return equal scores, so that no tool is loaded."""
        return [1.0] * len(tokens)


def watched(mechanism: Kind) -> tuple[Kind, Watched] | None:
    """Return the mechanism with two passes of equal budgets, whose first one is seen; None where it has one pass.

    With equal budgets, two passes that share a stream release the same word of a text of one draw.
    """
    allocation = mechanism.allocation
    if allocation is None or allocation.first is None:
        return None
    budget = min(allocation.first, allocation.largest)
    same = {name: getattr(allocation, name) for name in allocation.model_fields_set}
    seen = Watched(**same | {"total": budget, "first": budget, "eps_lo": None, "eps_hi": None})
    return mechanism.model_copy(update={"allocation": seen}), seen
