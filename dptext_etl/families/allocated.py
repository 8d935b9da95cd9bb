"""Divide one budget of a record among its draws, instead of an equal epsilon for each draw.

Specification: docs/spec/privacy.md#allocation.

The cost of a record is then the same whatever its length, and `epsilon` is that of the record. A family whose draws are
range-bounded over one public output set may divide the budget by the text itself; the theorem holds for no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar, Self

from pydantic import ValidationError, model_validator

from dptext_etl import _kernel
from dptext_etl.allocation import Allocation, Marked
from dptext_etl.artifacts import Artifact
from dptext_etl.guarantee import Spend, exact
from dptext_etl.mechanism import Mechanism

_ROLE = "allocation/"


class Allocated(Mechanism):
    """A mechanism that can divide one budget of a record among its draws.

    Attributes:
        allocation: How one budget of a record is divided among its draws; `epsilon` is then that of the record, and may
            be left out. None gives every draw `epsilon`.
    """

    divides: ClassVar[bool] = True

    allocation: Allocation | None = None

    @model_validator(mode="before")
    @classmethod
    def _epsilon_of_the_record(cls, values: Any) -> Any:
        if not isinstance(values, dict) or values.get("allocation") is None or "epsilon" in values:
            return values
        try:
            made = Allocation.model_validate(values["allocation"])
        except ValidationError:  # the field says what is wrong with it
            return {**values, "epsilon": 1.0}
        return {**values, "epsilon": made.epsilon}

    @model_validator(mode="after")
    def _allocation_holds(self) -> Self:
        if self.allocation is None:
            return self
        if self.epsilon != self.allocation.epsilon:
            whole = "total, first and choosing" if self.allocation.beside else "total"
            raise ValueError(f"epsilon is that of a record, {self.allocation.epsilon!r} by {whole}: leave it out")
        refused = self.refuses(self.allocation) or self.allocation.problem(self.most_draws)
        if refused:
            raise ValueError(refused)
        return self

    def refuses(self, allocation: Allocation) -> str | None:  # noqa: ARG002  (families with a reason need it)
        """Return why the budget cannot be divided like this, with the nearest sound way; None if it can."""
        return None

    @property
    def most_draws(self) -> int:
        """Return the largest number of draws of any text in one pass."""
        return self.most_positions

    def units(self, text: str) -> tuple[list[str], Marked]:
        """Return what takes a share of the budget of a public text, for explanations: its words, and their marks."""
        words = [piece for piece, is_word in _kernel.split(text) if is_word]
        return words, Marked(words, range(len(words)), max(1, len(words)))

    @property
    def largest_epsilon(self) -> float:
        """Return the largest epsilon of one draw of what is released."""
        return self.epsilon if self.allocation is None else self.allocation.largest

    def worst_case(self, positions: int | None = None) -> Spend:
        """Return the cost to reserve; for any text, what grows with the largest draw is that of a text of one draw."""
        found = super().worst_case(positions)
        if positions is not None or self.allocation is None:
            return found
        one = super().worst_case(min(1, self.most_positions))
        return replace(found, rho=max(found.rho, one.rho), eps_metric=max(found.eps_metric, one.eps_metric))

    def unit_of(self, draw: str) -> str:
        """Return "record" where one budget is divided, and what a draw releases otherwise."""
        return super().unit_of(draw) if self.allocation is None else "record"

    def budget(self) -> list[dict[str, Any]]:
        """Return what a record's epsilon pays for: the draws, and what is released or chosen before them."""
        return [] if self.allocation is None else self.allocation.parts()

    def cost_factors(self, positions: int) -> dict[str, float | Fraction]:
        """Return the budget of a record alone, where one is divided: it is the same for any number of draws."""
        return super().cost_factors(positions) if self.allocation is None else {"E": exact(self.epsilon)}

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy; another epsilon alone divides another budget in the same way."""
        if not update:
            return super().model_copy(deep=deep)
        changed = dict(update)
        if self.allocation is not None and "epsilon" in changed and "allocation" not in changed:
            changed["allocation"] = self.allocation.scaled(changed["epsilon"])
            changed["epsilon"] = changed["allocation"].epsilon
        elif changed.get("allocation") is not None and "epsilon" not in changed:
            changed["epsilon"] = Allocation.model_validate(changed["allocation"]).epsilon
        return super().model_copy(update=changed)

    def artifacts(self) -> dict[str, Artifact]:
        """Return the public inputs of the mechanism, and those of the scores, by role."""
        if self.allocation is None:
            return super().artifacts()
        return {**super().artifacts(), **{_ROLE + role: item for role, item in self.allocation.artifacts().items()}}
