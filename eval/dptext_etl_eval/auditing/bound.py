"""Bound a privacy loss from below by counts: Clopper-Pearson intervals of two shares, and their log ratio.

If an event comes k times in n draws under one input and k' times in n' under another, then with probability 1 - alpha

    ln(P[event | input] / P[event | other]) >= ln(low(k, n) / high(k', n'))

with each limit at alpha / 2 (docs/spec/privacy.md#audit-bound).
"""

from __future__ import annotations

import math

import numpy as np

_STEPS = 200
_WIDER = 1e-6
"""Relative margin above the rounding error of a binomial tail."""


def high(hits: int, draws: int, alpha: float) -> float:
    """Return the upper Clopper-Pearson limit of a share: the largest p with P[X <= hits] >= alpha.

    >>> round(high(0, 1000, 0.025) * 1000, 2)
    3.68
    """
    if hits >= draws:
        return 1.0
    target = math.log(alpha)
    below, above = hits / draws, 1.0
    for _ in range(_STEPS):
        middle = (below + above) / 2
        if not below < middle < above:
            break
        if _log_lower_tail(hits, draws, middle) > target:
            below = middle
        else:
            above = middle
    return min(1.0, above * (1 + _WIDER))


def low(hits: int, draws: int, alpha: float) -> float:
    """Return the lower Clopper-Pearson limit of a share: the smallest p with P[X >= hits] >= alpha.

    >>> low(0, 1000, 0.025), round(low(1000, 1000, 0.025), 4)
    (0.0, 0.9963)
    """
    if hits <= 0:
        return 0.0
    target = math.log(alpha)
    below, above = 0.0, hits / draws
    for _ in range(_STEPS):
        middle = (below + above) / 2
        if not below < middle < above:
            break
        if _log_lower_tail(draws - hits, draws, 1 - middle) > target:
            above = middle
        else:
            below = middle
    return below * (1 - _WIDER)


def log_ratio(  # noqa: PLR0917
    hits: int, draws: int, other_hits: int, other_draws: int, alpha: float, delta: float = 0.0
) -> float:
    """Return the lower bound of ln((P - delta) / P') at joint confidence 1 - alpha; -inf where an event never came.

    >>> round(log_ratio(1_000_000, 1_000_000, 0, 1_000_000, 0.05), 2)
    12.51
    """
    least = max(0.0, low(hits, draws, alpha / 2) - delta)
    return math.log(least / high(other_hits, other_draws, alpha / 2)) if least else -math.inf


def largest(draws: int, alpha: float) -> float:
    """Return the largest loss that so many draws can show: the event occurs always, and never under the other input.

    >>> [round(largest(10**power, 0.05), 2) for power in (4, 5, 6)]
    [7.9, 10.21, 12.51]
    """
    return log_ratio(draws, draws, 0, draws, alpha)


def _log_lower_tail(hits: int, draws: int, share: float) -> float:
    """Return ln P[X <= hits] for X binomial and share >= hits / draws, where the last term is the largest."""
    if share >= 1.0:
        return -math.inf
    log_last = (
        math.lgamma(draws + 1)
        - math.lgamma(hits + 1)
        - math.lgamma(draws - hits + 1)
        + hits * math.log(share)
        + (draws - hits) * math.log1p(-share)
    )
    many = min(hits, int(20 * math.sqrt(draws)) + 100)
    down = np.arange(hits, hits - many, -1, dtype=np.float64)
    ratios = down * ((1 - share) / share) / (draws - down + 1)
    return log_last + math.log1p(float(np.cumprod(ratios).sum()))
