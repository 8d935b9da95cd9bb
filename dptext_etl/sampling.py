"""Turn scores into integer weights of the exponential mechanism, and draw ids from a model's scores.

The numbers here are the same on every IEEE machine: `exp` is evaluated only with additions and multiplications, so a
table has the same bytes wherever it is built. The guarantee does not depend on their accuracy: every weight lies in
`[wmin, S]`, which bounds the ratio of any two probabilities, whatever the rounding.

Specification: docs/spec/privacy.md#integer-sampler.

Whatever a model computes, its scores become integer weights in `[wmin, S]`, and integers of the record's stream decide
(docs/spec/stream.md#draws). The functions here clip the scores as the last step, so no caller can forget it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.arrays import to_arrow
from dptext_etl.errors import InputError, PolicyError

Floats = npt.NDArray[np.float64]
Weights = npt.NDArray[np.uint64]

_LN2_HIGH = float.fromhex("0x1.62e42fefa0000p-1")  # 36 bits after the point, so that k * high is exact
_LN2_LOW = float.fromhex("0x1.cf79abc9e3b39p-40")
ROUNDING = 1 + 1e-12  # margin above the at most four roundings of a bound of probabilities
_TAYLOR = [1.0 / math.factorial(n) for n in range(14)]


def weight_bits(m: int) -> int:
    """Return B, the bits of the largest weight over an output set of `m` members."""
    if m < 2:
        raise ValueError(f"an output set has at least 2 members, got {m}")
    return min(46, 62 - (m - 1).bit_length())


@lru_cache(maxsize=65_536)
def smallest_weight(epsilon: float, m: int) -> int:
    """Return wmin, the smallest weight in a set of `m` members: S * exp(-epsilon / 2), rounded up."""
    with localcontext() as context:
        context.prec = 60
        top = Decimal(2 ** weight_bits(m))
        return min(int(top), int(top * (-Decimal(repr(epsilon)) / 2).exp()) + 1)


def integer_weights(scores: npt.ArrayLike, epsilon: float, low: float = 0.0, high: float = 1.0) -> Weights:
    """Turn scores into the integer weights of the exponential mechanism.

    Args:
        scores: Shape (..., m), any floats; NaN counts as `low`, the others are clipped to `[low, high]`.
        epsilon: Epsilon per draw.
        low: Public lower bound of the scores.
        high: Public upper bound of the scores.

    Returns:
        Weights of the same shape. Member y of a row is drawn with probability weight / row sum; the largest weight of a
        row is S = 2**B.
    """
    clipped = np.array(scores, dtype=np.float64, ndmin=1)
    clipped[np.isnan(clipped)] = low
    np.clip(clipped, low, high, out=clipped)
    m = clipped.shape[-1]
    top, floor = float(2 ** weight_bits(m)), float(smallest_weight(epsilon, m))
    below_best = clipped.max(axis=-1, keepdims=True) - clipped
    weights = np.floor(_exp_negative(below_best * (epsilon / 2) / (high - low)) * top)
    return np.clip(weights, floor, top).astype(np.uint64)


def _exp_negative(t: Floats) -> Floats:
    """Return exp(-t) for t >= 0 from additions and multiplications only (error: about one unit in the last place)."""
    t = np.minimum(t, 700.0)
    k = np.floor(t * (1.0 / math.log(2)) + 0.5)
    r = (k * _LN2_HIGH - t) + k * _LN2_LOW
    series = np.full_like(r, _TAYLOR[-1])
    for coefficient in _TAYLOR[-2::-1]:
        series = series * r + coefficient
    return np.ldexp(series, -k.astype(np.int64))


def epsilon_implemented(epsilon: float, m: int) -> float:
    """Return the exact pure parameter that the integer weights realize, at most epsilon.

    Specification: docs/spec/privacy.md#epsilon-implemented.

    >>> round(epsilon_implemented(100.0, 50_265), 6)
    42.709815
    """
    top, least = 2 ** weight_bits(m), smallest_weight(epsilon, m)
    return math.log(top * (least + (m - 1) * top)) - math.log(least * (top + (m - 1) * least))


def largest_range_bounded(epsilon: float, outputs: int) -> float:
    """Bound the probabilities of a range-bounded exponential mechanism over `outputs` words.

    Specification: docs/spec/privacy.md#exponential-mechanism.

    >>> round(largest_range_bounded(3.0, 20), 4), largest_range_bounded(0.0, 1)
    (0.1909, 1.0)
    """
    return min(1.0, ROUNDING / (1 + (outputs - 1) * math.exp(-epsilon / 2)))


def stated(amount: float) -> str:
    """Write a computed amount in the form of stored files: rounded up to nine decimals.

    The last bits of a logarithm differ between processors, so a file whose hash is an identity must not hold them.

    >>> stated(1.32148871234567), stated(2.0)
    ('1.321488713', '2.0')
    """
    return repr(float(Decimal(amount).quantize(Decimal("1e-9"), ROUND_CEILING)))


TOKEN = 1  # purpose number of draws of words (docs/spec/stream.md#purposes)

Choices = npt.NDArray[np.uint32]
Clip = tuple[float, float]  # public bounds of the scores: low, high
Law = tuple[float | npt.NDArray[np.float64], float, float]  # epsilon of a draw, or of each, and low and high

_ONE_LEVEL = 4096


@dataclass(frozen=True)
class Slots:
    """Places in the keyed streams from which the draws of a batch get their random words."""

    keys: pa.Array  # record keys of the batch, fixed-size binary of 32 bytes
    records: npt.NDArray[np.uint32]  # index into `keys` of each draw's record, shape (n,)
    positions: npt.NDArray[np.uint64]  # number of each draw in its record and pass, shape (n,); none is used twice

    def __len__(self) -> int:
        return len(self.records)

    def take(self, selection: npt.NDArray[Any] | slice) -> Self:
        """Return some of the slots by a mask, by indices or by a slice."""
        return replace(self, records=self.records[selection], positions=self.positions[selection])

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

    NaN counts as `low`; other scores are clipped to `[low, high]`. Each draw may have its own epsilon.
    """
    require_law(scores, slots, (epsilon, low, high))
    m = scores.shape[1]
    if isinstance(epsilon, np.ndarray):
        least = pa.array([smallest_weight(draw_epsilon, m) for draw_epsilon in epsilon.tolist()], pa.uint64())
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
        raise PolicyError(
            f"epsilon is finite and above 0, low is below high; got {least_epsilon}, {low} and {high}",
            "pass a positive epsilon and public bounds of the scores",
        )
    if n != len(slots):
        raise InputError(
            f"every row of scores has its own slot; got {n} rows and {len(slots)} slots",
            "pass one slot per row of scores",
        )
    if isinstance(epsilon, np.ndarray) and epsilon.shape != (n,):
        raise InputError(
            f"every row of scores has its own epsilon; got {n} rows and {len(epsilon)} epsilons",
            "pass one epsilon per row of scores, or a single number",
        )


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
    """Move places on a list by discrete Laplace numbers, each with its own rate, and stop at the ends of the list."""
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
        rows = [weights(scores[at : at + 1], row_epsilon, low, high) for at, row_epsilon in enumerate(epsilon.tolist())]
        return np.concatenate([np.zeros((0, m), np.uint64), *rows])
    flat = _kernel.score_weights(_flat(scores), m, epsilon, low, high, smallest_weight(float(epsilon), m))
    return np.asarray(pa.array(flat).to_numpy()).reshape(n, m)


def _flat(scores: Any) -> pa.Array:
    """Return the scores on the host row after row, as float32, or as float64 if they are wider."""
    if not isinstance(scores, np.ndarray):
        narrow = scores.is_floating_point() and scores.dtype.itemsize <= 4
        scores = (scores.float() if narrow else scores.double()).detach().cpu().numpy()
    wide = scores.dtype.itemsize > 4 or scores.dtype.kind != "f"
    return pa.array(np.ascontiguousarray(scores, np.float64 if wide else np.float32).reshape(-1))
