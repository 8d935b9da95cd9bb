"""Add noise to sums, and read what may be read from them at no cost: counts with intervals, and mean vectors.

Everything here but `noisy` depends on the noisy sums alone. Specification: docs/spec/synthetic.md#noise.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from dptext_etl import _kernel
from dptext_etl.arrays import to_arrow
from dptext_etl.corpora.encoder import Integers
from dptext_etl.errors import InputError, bare
from dptext_etl.families.aggregate.statistic import Statistic
from dptext_etl.families.aggregate.summing import Partial

STATISTIC = 9
"""Purpose of the noise (docs/spec/stream.md#purposes)."""


@dataclass(frozen=True)
class Topic:
    """The noisy count of a label, with an interval that holds the true count in `confidence` of all draws."""

    label: str
    count: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Noisy:
    """The statistic as it is published.

    Attributes:
        statistic: What was summed, and how.
        sums: Noisy sums, int64, shape `statistic.shape`.
    """

    statistic: Statistic
    sums: Integers

    def __post_init__(self) -> None:
        if self.sums.shape != self.statistic.shape or self.sums.dtype != np.int64:
            raise InputError(f"noisy sums are int64 of shape {self.statistic.shape}, got another array")

    @cached_property
    def counts(self) -> npt.NDArray[np.float64]:
        """Return the noisy number of counted records of every block, 0 or more, shape (blocks,)."""
        counts: npt.NDArray[np.float64] = np.maximum(0.0, self.sums[:, -1] / self.statistic.count_step)
        return counts

    @cached_property
    def vectors(self) -> npt.NDArray[np.float64]:
        """Return the noisy sums of coordinates of every block, in clips, shape (blocks, d)."""
        vectors: npt.NDArray[np.float64] = self.sums[:, :-1] / self.statistic.projection.clip
        return vectors

    @property
    def digest(self) -> bytes:
        """Return the hash of configuration and noisy sums; a table draws from it (docs/spec/synthetic.md#table)."""
        parts = bytes.fromhex(self.statistic.cfg()) + self.sums.astype("<i8").tobytes()
        return hashlib.sha256(b"dptext/statistic/v1\0" + parts).digest()

    def topics(self, confidence: float = 0.95) -> list[Topic]:
        """Return the noisy counts of all blocks with intervals, in the order of the blocks.

        Each interval holds alone. It is that of a normal distribution, which the noise on a count is up to its steps.
        """
        reach = NormalDist().inv_cdf((1 + confidence) / 2) * self.statistic.variance**0.5 / self.statistic.count_step
        middle = (self.sums[:, -1] / self.statistic.count_step).tolist()
        return [
            Topic(name, max(0.0, count), max(0.0, count - reach), max(0.0, count + reach))
            for name, count in zip(self.statistic.blocks, middle, strict=True)
        ]


@bare
def noisy(statistic: Statistic, release_key: _kernel.ReleaseKey, partial: Partial) -> Noisy:
    """Return the sums of all records with discrete Gaussian noise on every integer.

    The noise key follows from the release key, the digest of all rows, and the sums themselves: equal input gives equal
    bytes, and any other input independent noise. Call it after the charge of every counted record is reserved.

    Args:
        statistic: From `describe`.
        release_key: Key of the release under `statistic.cfg()`.
        partial: Sums over all records.
    """
    sums = partial.sums.ravel()
    key = _kernel.noise_key(release_key, partial.digest, to_arrow(sums))
    drawn = _kernel.discrete_gaussians(key, STATISTIC, 0, sums.size, statistic.variance, 1)
    return Noisy(statistic, (sums + np.array(drawn, np.int64)).reshape(statistic.shape))
