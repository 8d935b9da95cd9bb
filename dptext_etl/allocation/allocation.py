"""Describe how the budget of a record is divided among its draws.

Specification: docs/spec/privacy.md#allocation, docs/spec/privacy.md#budget-distribution.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from dptext_etl.allocation import score
from dptext_etl.allocation.spread import spread
from dptext_etl.artifacts import Artifact
from dptext_etl.guarantee import MICRO, exact
from dptext_etl.mechanism import Epsilon

log = logging.getLogger("dptext_etl.allocation")


class Allocation(BaseModel):
    """How the budget of a record is divided among its draws.

    Attributes:
        scores: Names of the scores whose average divides the budget, by the words of the text.
        total: Epsilon of all draws of a record together: a public constant, never an average over private texts.
        eps_lo: Least epsilon of a draw; None takes a tenth of an even share.
        eps_hi: Largest epsilon of a draw; None takes four even shares, which keeps rho small.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True)

    scores: tuple[str, ...]
    total: Epsilon
    eps_lo: Epsilon | None = None
    eps_hi: Epsilon | None = None

    def __getstate__(self) -> dict[Any, Any]:
        """Pickle the parameters alone; the tools are opened again."""
        state = super().__getstate__()
        fields = type(self).model_fields
        return {**state, "__dict__": {name: value for name, value in state["__dict__"].items() if name in fields}}

    @field_validator("scores")
    @classmethod
    def _scores_are_known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        known = score.available()
        if not names or len(set(names)) < len(names) or not set(names) <= set(known):
            raise ValueError(f"scores are one or more of {', '.join(known)}, each once")
        return names

    @model_validator(mode="after")
    def _bounds_are_in_order(self) -> Self:
        low, high = self.eps_lo or 0.0, math.inf if self.eps_hi is None else self.eps_hi
        if not low <= min(high, self.total):
            raise ValueError("eps_lo is at most eps_hi and at most total")
        return self

    def bounds(self, draws: int) -> tuple[int, int]:
        """Return the least and the largest epsilon of a draw, in millionths, rounded down.

        Args:
            draws: Largest number of draws of the record, at least 1.
        """
        total = _micro(self.total)
        high = min(total, 4 * total // draws if self.eps_hi is None else _micro(self.eps_hi))
        low = total // (10 * draws) if self.eps_lo is None else _micro(self.eps_lo)
        return min(low, high), high

    def over(
        self, tokens: Sequence[str], places: Sequence[int | None] | None = None, *, draws: int | None = None
    ) -> list[int]:
        """Return the epsilon of each draw of a text, in millionths; their sum is at most `total`.

        Where a score fails on a text, the budget is divided evenly: no allocation has another cost.

        Args:
            tokens: The words of the text, in order.
            places: Index of each draw's word; None for a draw that has none. By default each word takes one draw.
            draws: Largest number of draws of the record, for the bounds; by default as many as there are.
        """
        wanted = range(len(tokens)) if places is None else places
        if not len(wanted):
            return []
        low, high = self.bounds(draws or len(wanted))
        rated = self.rated(tokens)
        known = [rated[place] for place in wanted if place is not None]
        usual = sum(known) / len(known) if known else 1.0
        return spread([usual if place is None else rated[place] for place in wanted], _micro(self.total), low, high)

    def rated(self, tokens: Sequence[str]) -> list[float]:
        """Return the average score of each token; equal ones where a score fails."""
        try:
            columns = [one.of(tokens) for one in self.scorers]
            return [_mean(each[1:]) for each in zip(tokens, *columns, strict=True)]
        except Exception:  # noqa: BLE001  (tools fail in any way, and none may quote or drop a text)
            log.warning("the scores failed on a text: its budget is divided evenly, at the same spend")
            return [1.0] * len(tokens)

    @cached_property
    def scorers(self) -> tuple[score.Score, ...]:
        """Return the scores, with their tools."""
        return tuple(score.load(name)(self) for name in self.scores)

    def artifacts(self) -> dict[str, Artifact]:
        """Return the public files that the scores depend on, by role."""
        return {role: item for one in self.scorers for role, item in one.artifacts().items()}

    def described(self) -> dict[str, Any]:
        """Return all that decides about a division beside the tools' files, as plain data for the configuration."""
        return self.model_dump(mode="json", exclude_defaults=True)


def _micro(amount: float) -> int:
    """Return an amount in millionths, rounded down."""
    return int(exact(amount) * MICRO)


def _mean(numbers: Sequence[Any]) -> float:
    usable = [1.0 if math.isnan(number) else min(1.0, max(0.0, number)) for number in numbers]
    return math.fsum(usable) / len(usable)
