"""Compute mean and standard deviation of numbers that come in batches, without holding them all in memory.

The pairwise formulas of Chan, Golub and LeVeque (1983, "Algorithms for computing the sample variance") merge batches in
float64. The scores of a thousand texts over a large vocabulary are billions of numbers.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

_SAMPLE = 4_096  # numbers kept per batch for percentiles
_HELD = 2**20


class Moments:
    """Compute count, mean and variance of all numbers, and percentiles of an even sample of them.

    Numbers that are not finite are counted apart and left out.
    """

    def __init__(self) -> None:
        self.count = 0
        self.left_out = 0
        self.mean = 0.0
        self._squares = 0.0
        self.low, self.high = math.inf, -math.inf
        self._sample: list[npt.NDArray[np.float64]] = []

    def add(self, numbers: npt.NDArray[np.floating]) -> None:
        """Add a batch of any shape."""
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
        """Return the standard deviation of all numbers (the divisor is their count)."""
        return math.sqrt(self._squares / self.count) if self.count else math.nan

    def percentiles(self, shares: tuple[float, ...]) -> dict[str, float]:
        """Return percentiles of the sample by name, such as {"50": 1.2}."""
        every = np.concatenate(self._sample) if self._sample else np.zeros(0)
        if not len(every):
            return {}
        return {f"{share:g}": float(value) for share, value in zip(shares, np.percentile(every, shares), strict=True)}

    def _keep(self, some: npt.NDArray[np.float64]) -> None:
        self._sample.append(some)
        if sum(map(len, self._sample)) > _HELD:  # keep every second number of all batches
            self._sample = [np.concatenate(self._sample)[::2]]
