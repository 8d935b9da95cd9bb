"""Define the interface of samplers, which draw outputs from a model's scores."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dptext_etl.scoring import TOKEN, Choices, Slots

Clip = tuple[float, float]


class Sampler(Protocol):
    """A sampler: `dptext_etl.scoring`, or a substitute in tests that enumerates all draws."""

    def choose(
        self,
        scores: Any,
        slots: Slots,
        *,
        epsilon: float | npt.NDArray[np.float64],
        low: float,
        high: float,
        purpose: int = TOKEN,
    ) -> Choices:
        """Draw one output per row of scores.

        Args:
            scores: Shape (rows, outputs), any floats.
            slots: Places in the keyed streams, one per row.
            epsilon: Epsilon per draw, or one of each draw.
            low: Public lower bound of the scores.
            high: Public upper bound of the scores.
            purpose: Purpose number of the stream (plus 256 per pass).
        """

    def choose_uniform(self, slots: Slots, m: int, *, purpose: int = TOKEN) -> Choices:
        """Draw one of m outputs per slot uniformly."""


class WordSampler(Sampler, Protocol):
    """A sampler that also moves words along lists: `dptext_etl.scoring`, or a substitute in tests."""

    def move(
        self,
        places: npt.NDArray[np.int64],
        length: int,
        rates: Sequence[Fraction],
        slots: Slots,
        *,
        purpose: int = TOKEN,
    ) -> npt.NDArray[np.int64]:
        """Move places on a list of that length by discrete Laplace numbers, and stop at its ends."""
