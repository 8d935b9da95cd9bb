"""Draw ids exactly from a model's scores, by the exponential mechanism over an output set.

Specification: docs/spec/privacy.md#integer-sampler.

Whatever a model computes, its scores become integer weights in `[wmin, S]`, and integers of the record's stream decide
(docs/spec/stream.md#draws). The functions here clip the scores as the last step, so no caller can forget it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.arrays import to_arrow
from dptext_etl.errors import InputError, PolicyError
from dptext_etl.sampling import Weights, smallest_weight

TOKEN = 1  # purpose number of draws of words (docs/spec/stream.md#purposes)

Choices = npt.NDArray[np.uint32]
Clip = tuple[float, float]  # public bounds of the scores: low, high
Law = tuple[float | npt.NDArray[np.float64], float, float]  # epsilon of a draw, or of each, and low and high

_ONE_LEVEL = 4096


@dataclass(frozen=True)
class Slots:
    """Places in the keyed streams from which the draws of a batch take their random words.

    Attributes:
        keys: Record keys of the batch, fixed-size binary of 32 bytes.
        records: Index into `keys` of each draw's record, uint32, shape (n,).
        positions: Serial number of each draw in its record and pass, uint64, shape (n,); no number is used twice.
    """

    keys: pa.Array
    records: npt.NDArray[np.uint32]
    positions: npt.NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.records)

    def take(self, some: npt.NDArray[Any] | slice) -> Self:
        """Return some of the slots by a mask, by indices or by a slice."""
        return replace(self, records=self.records[some], positions=self.positions[some])

    def arrays(self) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Return keys, records and positions as Arrow arrays for the kernel."""
        return self.keys, to_arrow(self.records), to_arrow(self.positions)


class Sampler(Protocol):
    """A sampler: this module, or a substitute in tests that enumerates all draws."""

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
        """Draw one output per row of scores."""

    def choose_uniform(self, slots: Slots, m: int, *, purpose: int = TOKEN) -> Choices:
        """Draw one of m outputs per slot uniformly."""


class WordSampler(Sampler, Protocol):
    """A sampler that also moves words along lists: this module, or a substitute in tests."""

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


def slot_width(m: int) -> int:
    """Return how many random words a slot has if the largest output set has `m` members."""
    return 2 if m > _ONE_LEVEL else 1


def choose(
    scores: Any,
    slots: Slots,
    *,
    epsilon: float | npt.NDArray[np.float64],
    low: float,
    high: float,
    purpose: int = TOKEN,
) -> Choices:
    """Draw one id per row of scores, shape (n, m), from the exponential mechanism over all columns.

    NaN counts as `low`; other scores are clipped to `[low, high]`. Each draw may have an epsilon of its own.
    """
    require_law(scores, slots, (epsilon, low, high))
    m = scores.shape[1]
    if isinstance(epsilon, np.ndarray):
        least = pa.array([smallest_weight(one, m) for one in epsilon.tolist()], pa.uint64())
        of_each = m, pa.array(epsilon, pa.float64()), low, high, least
        drawn = _kernel.choose_scores_each(_flat(scores), *of_each, *slots.arrays(), purpose)
    else:
        parameters = m, epsilon, low, high, smallest_weight(float(epsilon), m)
        drawn = _kernel.choose_scores(_flat(scores), *parameters, *slots.arrays(), purpose)
    return np.asarray(pa.array(drawn).to_numpy())


def require_law(scores: Any, slots: Slots, law: Law) -> None:
    """Refuse parameters out of range, and slots or epsilons that are not one per row of scores."""
    n, (epsilon, low, high) = len(scores), law
    least_epsilon, most_epsilon = np.min(epsilon, initial=math.inf), np.max(epsilon, initial=0.0)
    if (n and not 0 < least_epsilon <= most_epsilon < math.inf) or not 0 < high - low < math.inf:
        raise PolicyError(f"epsilon is finite and above 0, low is below high; got {least_epsilon}, {low} and {high}")
    if n != len(slots):
        raise InputError(f"every row of scores has a slot of its own; got {n} rows and {len(slots)} slots")
    if isinstance(epsilon, np.ndarray) and epsilon.shape != (n,):
        raise InputError(f"every row of scores has an epsilon of its own; got {n} rows and {len(epsilon)} epsilons")


def choose_uniform(slots: Slots, m: int, *, purpose: int = TOKEN) -> Choices:
    """Draw one id below `m` per slot uniformly, for positions that failed; the spend stays the same."""
    drawn = _kernel.uniform_choices(*slots.arrays(), purpose, slot_width(m), m)
    return np.asarray(pa.array(drawn).to_numpy(), np.uint32)


def bernoulli(slots: Slots, chance: Fraction, *, purpose: int) -> npt.NDArray[np.bool_]:
    """Draw one exact Bernoulli trial per slot: an integer below the denominator of the probability decides."""
    drawn = _kernel.uniform_choices(*slots.arrays(), purpose, 0, chance.denominator)
    successes: npt.NDArray[np.bool_] = pa.array(drawn).to_numpy() < chance.numerator
    return successes


def move(
    places: npt.NDArray[np.int64], length: int, rates: Sequence[Fraction], slots: Slots, *, purpose: int = TOKEN
) -> npt.NDArray[np.int64]:
    """Move places on a list by discrete Laplace numbers, each of its own rate, and stop at the ends of the list."""
    keys = slots.keys.to_pylist()
    steps = [
        _kernel.discrete_laplace(keys[record], purpose, position, *rate.as_integer_ratio())
        for record, position, rate in zip(slots.records.tolist(), slots.positions.tolist(), rates, strict=True)
    ]
    return np.array(
        [min(max(place + step, 0), length - 1) for place, step in zip(places.tolist(), steps, strict=True)], np.int64
    )


def weights(scores: Any, epsilon: float | npt.NDArray[np.float64], low: float, high: float) -> Weights:
    """Return the integer weights from which `choose` draws on a host."""
    n, m = scores.shape
    if isinstance(epsilon, np.ndarray):
        rows = [weights(scores[at : at + 1], one, low, high) for at, one in enumerate(epsilon.tolist())]
        return np.concatenate([np.zeros((0, m), np.uint64), *rows])
    made = _kernel.score_weights(_flat(scores), m, epsilon, low, high, smallest_weight(float(epsilon), m))
    return np.asarray(pa.array(made).to_numpy()).reshape(n, m)


def _flat(scores: Any) -> pa.Array:
    """Return the scores on the host row after row, as float32, or as float64 if they are wider."""
    if not isinstance(scores, np.ndarray):
        narrow = scores.is_floating_point() and scores.dtype.itemsize <= 4
        scores = (scores.float() if narrow else scores.double()).detach().cpu().numpy()
    wide = scores.dtype.itemsize > 4 or scores.dtype.kind != "f"
    return pa.array(np.ascontiguousarray(scores, np.float64 if wide else np.float32).reshape(-1))
