"""Define the interface of samplers, which draw outputs from a model's scores."""

from __future__ import annotations

from typing import Any, Protocol

from dptext_etl.scoring import Choices, Slots

Clip = tuple[float, float]


class Sampler(Protocol):
    """A sampler: `dptext_etl.scoring`, or a substitute in tests that enumerates all draws."""

    def choose(self, scores: Any, slots: Slots, *, epsilon: float, low: float, high: float) -> Choices:
        """Draw one output per row of scores.

        Args:
            scores: Shape (rows, outputs), any floats.
            slots: Places in the keyed streams, one per row.
            epsilon: Epsilon per draw.
            low: Public lower bound of the scores.
            high: Public upper bound of the scores.
        """

    def choose_uniform(self, slots: Slots, m: int) -> Choices:
        """Draw one of m outputs per slot uniformly."""
