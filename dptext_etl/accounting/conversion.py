"""From many small losses to one (epsilon, delta) statement.

Specification: docs/spec/privacy.md#composition, docs/spec/privacy.md#br-pld-bins.

One draw of the range-bounded exponential mechanism at epsilon loses more than x with probability at most
delta(x) = (1 - e^((x - epsilon)/2))^2 / (1 - e^(-epsilon)), and is epsilon^2/8-zCDP. Every function here holds for
adaptively chosen draws except `nonadaptive_epsilon`. Results are rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dptext_etl.errors import PolicyError

_ROUNDING = 1e-9  # relative; above the rounding of everything here
_BIN = 1e-3  # of the privacy loss
_BINS = 2_000_000  # of a composed distribution, at most
_FINE = 48  # halvings


@dataclass(frozen=True)
class Draws:
    """Draws of range-bounded exponential mechanisms at one parameter.

    Attributes:
        epsilon: Of one draw.
        count: How many.
    """

    epsilon: float
    count: int


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return the epsilon of rho-zCDP at delta: the best order of Canonne, Kamath and Steinke 2020, proposition 12.

    >>> round(zcdp_epsilon(20 / 8, 1e-6), 2)
    13.37
    """
    _require_delta(delta)
    if rho == 0:
        return 0.0

    def at(log_excess: float) -> float:
        excess = math.exp(log_excess)  # the order less 1; every order gives a valid statement
        order = 1 + excess
        return order * rho + (-math.log(delta) - log_excess + order * math.log(excess / order)) / excess

    return max(0.0, _least(at, -20.0, 20.0)) * (1 + _ROUNDING)


def azuma_epsilon(draws: Draws, delta: float) -> float:
    """Return k * kappa + epsilon * sqrt(k/2 ln(1/delta)), or k * epsilon if less (Durfee and Rogers 2019)."""
    _require_delta(delta)
    epsilon, count = draws.epsilon, draws.count
    ratio = epsilon / -math.expm1(-epsilon)
    kappa = ratio - 1 - math.log(ratio)
    converted = count * kappa + epsilon * math.sqrt(count / 2 * -math.log(delta))
    return min(count * epsilon, converted) * (1 + _ROUNDING)


def nonadaptive_epsilon(draws: Draws, delta: float) -> float:
    """Return the best epsilon of k draws that are fixed beforehand (Dong, Durfee and Rogers 2020).

    For mechanisms that draw each word by itself; never where a draw sees earlier outputs.

    >>> round(nonadaptive_epsilon(Draws(1.0, 20), 1e-6), 2)
    12.02
    """
    _require_delta(delta)
    epsilon, count = draws.epsilon, draws.count
    low, high = 0.0, epsilon * count
    for _ in range(_FINE):
        middle = (low + high) / 2
        low, high = (low, middle) if _nonadaptive_delta(epsilon, count, middle) <= delta else (middle, high)
    return high * (1 + _ROUNDING)


def _nonadaptive_delta(epsilon: float, count: int, total: float) -> float:
    from scipy.special import xlog1py, xlogy

    i = np.arange(count + 1)
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, count + 1)))])
    choose = logs[-1] - logs - logs[::-1]
    worst = 0.0
    for t in {min(max((total + (ell + 1) * epsilon) / (count + 1), 0.0), epsilon) for ell in range(count + 1)}:
        p = math.expm1(t - epsilon) / math.expm1(-epsilon)
        weights = np.exp(choose + xlogy(i, 1 - p) + xlog1py(count - i, p - 1))
        losses = count * t - i * epsilon
        above = losses > total
        worst = max(worst, float((weights[above] * -np.expm1(total - losses[above])).sum()))
    return worst


def bounded_range_epsilon(draws: Iterable[Draws], delta: float) -> float:
    """Return the epsilon of draws at several parameters, from their composed privacy loss distribution.

    Valid for adaptive draws: the distribution dominates that of any range-bounded mechanism (Zhu, Dong and Wang 2022).

    Raises:
        PolicyError: The library `dp-accounting` is not installed.
    """
    _require_delta(delta)
    wanted = [item for item in draws if item.count]
    if not wanted:
        return 0.0
    try:
        from dp_accounting.pld import pld_pmf, privacy_loss_distribution
    except ImportError:
        message = "privacy loss distributions need the library dp-accounting"
        raise PolicyError(message, "pip install 'dptext-etl[accounting]'") from None
    pure = sum(item.epsilon * item.count for item in wanted)
    width = max(_BIN, 2 * pure / _BINS)
    composed = None
    for item in wanted:
        bins = math.ceil(item.epsilon / width)  # the last bin lies at epsilon or above it
        j = np.arange(-bins, bins + 1)
        losses = width * j.astype(np.float64)
        pmf = pld_pmf.create_pmf_pessimistic_connect_dots(width, j, _profile(item.epsilon, losses))
        several = privacy_loss_distribution.PrivacyLossDistribution(pmf).self_compose(item.count)
        composed = several if composed is None else composed.compose(several)
    found = float(composed.get_epsilon_for_delta(delta)) if composed else 0.0
    return min(pure, found) * (1 + _ROUNDING)


def _profile(epsilon: float, x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The largest delta(x) of a draw; also below -epsilon, where it is 1 - e^x."""
    inside = np.expm1((np.minimum(x, epsilon) - epsilon) / 2) ** 2 / -math.expm1(-epsilon)
    return np.maximum(np.where(x < epsilon, inside, 0.0), -np.expm1(np.minimum(x, 0.0)))


def _least(at: Callable[[float], float], low: float, high: float) -> float:
    """Search a minimum by thirds; every value that it sees is valid, so a second minimum costs sharpness alone."""
    for _ in range(4 * _FINE):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, right) if at(left) <= at(right) else (left, high)
    return at((low + high) / 2)


def _require_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise PolicyError(f"delta is {delta}; allowed: above 0 and below 1", "1e-6 is usual")
