"""Turn scores into the integer weights of the exponential mechanism, so that integers decide its draws exactly.

Specification: docs/spec/privacy.md#integer-sampler.

The numbers here are the same on every IEEE machine: `exp` is evaluated with additions and multiplications alone, so a
table has the same bytes wherever it is built. The guarantee does not depend on their accuracy: every weight lies in
`[wmin, S]`, which bounds the ratio of any two probabilities, whatever the rounding.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Decimal, localcontext
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Weights = npt.NDArray[np.uint64]

_LN2_HIGH = float.fromhex("0x1.62e42fefa0000p-1")  # 36 bits after the point, so that k * high is exact
_LN2_LOW = float.fromhex("0x1.cf79abc9e3b39p-40")
ROUNDING = 1 + 1e-12
"""Margin above the at most four roundings of a bound of probabilities."""
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


def epsilon_star(epsilon: float, m: int) -> float:
    """Return the exact pure parameter of the exponential mechanism over `m` outcomes, <= epsilon.

    Specification: docs/spec/privacy.md#epsilon-star.

    >>> round(epsilon_star(3.0, 20), 6)
    2.799893
    """
    tail = math.exp(-epsilon / 2)
    return epsilon / 2 + math.log(tail + m - 1) - math.log1p((m - 1) * tail)


def epsilon_implemented(epsilon: float, m: int) -> float:
    """Return the exact pure parameter that the integer weights realize, <= epsilon_star.

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


def worst_log_ratio(weights: npt.ArrayLike) -> float:
    """Return the largest difference of any outcome's log probability between two rows."""
    table = np.asarray(weights, dtype=np.float64)
    logs = np.log(table) - np.log(table.sum(axis=-1, keepdims=True))
    return float((logs.max(axis=-2) - logs.min(axis=-2)).max(initial=0.0))


def stated(amount: float) -> str:
    """Write a computed amount in the form of stored files: rounded up to nine decimals.

    The last bits of a logarithm differ between processors, so a file whose hash is an identity must not hold them.

    >>> stated(1.32148871234567), stated(2.0)
    ('1.321488713', '2.0')
    """
    exact = Decimal(amount)
    return repr(float(exact.quantize(Decimal("1e-9"), ROUND_CEILING)))
