"""Mean and spread of numbers that come in batches and are never held together.

Batches are merged by the pairwise formulas of Chan, Golub and LeVeque (1983, "Algorithms for computing the sample
variance"), in float64: the scores of a thousand texts by a large vocabulary are billions of numbers.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

_SAMPLE = 4_096  # numbers of a batch that percentiles are read from
_HELD = 2**20


class Moments:
    """Count, mean and variance of all numbers seen; percentiles of an even sample of them.

    Numbers that are not finite are counted and left out.
    """

    def __init__(self) -> None:
        self.count = 0
        self.left_out = 0
        self.mean = 0.0
        self._squares = 0.0
        self.low, self.high = math.inf, -math.inf
        self._sample: list[npt.NDArray[np.float64]] = []

    def add(self, numbers: npt.NDArray[np.floating]) -> None:
        """Take in a batch of any shape."""
        flat = np.asarray(numbers, dtype=np.float64).ravel()
        finite = flat[np.isfinite(flat)]
        self.left_out += len(flat) - len(finite)
        if not len(finite):
            return
        mean = float(finite.mean())
        squares = float(np.square(finite - mean).sum())
        count = self.count + len(finite)
        apart = mean - self.mean
        self._squares += squares + apart * apart * self.count * len(finite) / count
        self.mean += apart * len(finite) / count
        self.count = count
        self.low, self.high = min(self.low, float(finite.min())), max(self.high, float(finite.max()))
        self._keep(finite[:: max(1, len(finite) // _SAMPLE)])

    @property
    def sd(self) -> float:
        """Standard deviation of all numbers seen (divided by their count)."""
        return math.sqrt(self._squares / self.count) if self.count else math.nan

    def percentiles(self, shares: tuple[float, ...]) -> dict[str, float]:
        """Return percentiles of the sample by their names, {"50": 1.2}."""
        every = np.concatenate(self._sample) if self._sample else np.zeros(0)
        if not len(every):
            return {}
        return {f"{share:g}": float(value) for share, value in zip(shares, np.percentile(every, shares), strict=True)}

    def _keep(self, some: npt.NDArray[np.float64]) -> None:
        self._sample.append(some)
        if sum(map(len, self._sample)) > _HELD:  # every second number, of all batches alike
            self._sample = [np.concatenate(self._sample)[::2]]
