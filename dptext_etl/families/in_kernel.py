"""Say which mechanisms the kernel runs by itself, from one file: engines then hand it whole columns."""

from __future__ import annotations

import math
from typing import Any, Protocol, cast

from dptext_etl.artifacts import Artifact
from dptext_etl.errors import PolicyError
from dptext_etl.guarantee import Spend, exact, micro
from dptext_etl.mechanism import Mechanism

_MANY = 1_000_003


class InKernel(Protocol):
    """A mechanism that the kernel runs from one stored file, for any engine."""

    @property
    def table(self) -> Artifact:
        """Return the stored file."""

    @property
    def most_positions(self) -> int:
        """Return the draws of the longest text."""

    def input_policy(self) -> dict[str, Any]:
        """Return all that the kernel needs next to the file."""

    def cfg(self) -> str:
        """Return the configuration hash."""

    def spend(self, positions: int) -> Spend:
        """Return the cost of that many draws."""


def in_kernel(mechanism: Mechanism) -> InKernel | None:
    """Return the mechanism if the kernel runs it: it has a `table`, and neither a model nor a tool takes part."""
    return cast("InKernel", mechanism) if hasattr(type(mechanism), "table") and mechanism.reproducible else None


def charges(mechanism: InKernel) -> tuple[int, int]:
    """Return the declared epsilon of one draw, and of a text next to its draws, in millionths, for engines."""
    price = getattr(mechanism, "epsilon_length", None)
    text = 0 if price is None else int(micro(exact(price)))
    unit, many = mechanism.spend(1).eps_approx - text, 1 if mechanism.most_positions == 1 else _MANY
    if not math.isfinite(unit) or mechanism.spend(many).eps_approx != unit * many + text:
        raise PolicyError("epsilon is finer than a millionth", "give epsilon with at most 6 decimals")
    return int(unit), text
