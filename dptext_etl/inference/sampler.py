"""Define what draws from a model's scores, as the models see it."""

from __future__ import annotations

from typing import Any, Protocol

from dptext_etl.scoring import Choices, Slots

Clip = tuple[float, float]


class Sampler(Protocol):
    """What draws: `dptext_etl.scoring`, or a stand-in that enumerates."""

    def choose(self, scores: Any, slots: Slots, *, epsilon: float, low: float, high: float) -> Choices:
        """Draw one output per row of scores.

        Args:
            scores: Shape (rows, outputs), any floats.
            slots: Where each row's draw takes its words from.
            epsilon: Of one draw.
            low: Public lower bound that scores are clipped to.
            high: Public upper bound.
        """

    def choose_uniform(self, slots: Slots, m: int) -> Choices:
        """Draw one of m outputs per slot uniformly."""
