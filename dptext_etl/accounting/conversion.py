"""Convert losses to (epsilon, delta): zCDP, range-bounded draws, divided budgets, Gaussian noise. Bounds round up."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dptext_etl.errors import PolicyError
from dptext_etl.guarantee import exact

_ROUNDING = 1e-9  # relative; above the rounding of everything here
_BIN = 1e-3  # of the privacy loss
_BINS = 2_000_000  # of a composed distribution, at most
_FINE = 48  # halvings


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Convert rho-zCDP to epsilon at `delta`, by the best order (Canonne, Kamath and Steinke 2020, proposition 12).

    >>> round(zcdp_epsilon(20 / 8, 1e-6), 2)
    13.37
    """
    require_delta(delta)
    if rho == 0:
        return 0.0

    def at(log_excess: float) -> float:
        excess = math.exp(log_excess)  # the order less 1; every order gives a valid statement
        order = 1 + excess
        return order * rho + (-math.log(delta) - log_excess + order * math.log(excess / order)) / excess

    return max(0.0, _least(at, -20.0, 20.0)) * (1 + _ROUNDING)


class Draws(Protocol):
    """Range-bounded draws at one epsilon, such as `PureDraws`."""

    @property
    def epsilon(self) -> float | Fraction: ...

    @property
    def count(self) -> int: ...


def bounded_range_epsilon(draws: Iterable[Draws], delta: float) -> float:
    """Compose the privacy loss distributions of draws and return their epsilon at `delta`.

    The composed distribution dominates that of every range-bounded mechanism (Zhu, Dong and Wang 2022). Its losses are
    rounded up to a grid, so that delta is never below the exact one (Doroshenko et al. 2022). Convolutions are products
    of Fourier transforms over all losses: nothing is cut off.
    """
    require_delta(delta)
    wanted = [(float(item.epsilon), item.count) for item in draws if item.count and item.epsilon]
    pure = sum(epsilon * count for epsilon, count in wanted)
    width = max(_BIN, 2 * pure / _BINS)
    bins = [math.ceil(epsilon / width) for epsilon, _ in wanted]  # the last bin is at epsilon or above it
    top = sum(most * count for most, (_, count) in zip(bins, wanted, strict=True))
    if not top:
        return 0.0
    size = 1 << (2 * top).bit_length()  # of all losses from -top to top, which therefore do not wrap around
    spectrum, error = np.ones(size // 2 + 1, np.complex128), 0.0
    for most, (epsilon, count) in zip(bins, wanted, strict=True):
        masses = _loss_masses(epsilon, width, most)
        spectrum *= np.fft.rfft(masses, size) ** count
        error += count * float(np.linalg.norm(masses))
    # the transforms round each mass; by Cauchy and Schwarz, a sum of them is off by less than this
    delta -= error * math.sqrt(size) * math.log2(size) * np.finfo(float).eps
    masses, losses = np.maximum(np.fft.irfft(spectrum, size)[: 2 * top + 1], 0.0), width * np.arange(-top, top + 1)

    def above(place: int) -> tuple[float, float]:
        """Return the masses of both texts above a loss, the second times e^loss; delta there is the difference."""
        rest = masses[place + 1 :]
        return float(rest.sum()), float(rest @ np.exp(losses[place] - losses[place + 1 :]))

    place = bisect_left(range(2 * top), True, top, key=lambda at: np.subtract(*above(at)) <= delta)
    if place in (top, 2 * top):
        return 0.0 if place == top else pure * (1 + _ROUNDING)
    mass, other = above(place - 1)  # delta falls to its value between this loss and the next one
    found = float(losses[place - 1]) + math.log((mass - delta) / other)
    return min(pure, found) * (1 + _ROUNDING)


def _loss_masses(epsilon: float, width: float, bins: int) -> npt.NDArray[np.float64]:
    """Return the mass of each loss j * width, j = -bins..bins, whose delta is the profile at these losses.

    Between two of them delta is linear in e^loss, and so above the profile, which is convex in it.
    """
    losses = width * np.arange(-bins, bins + 1, dtype=np.float64)
    profile = np.expm1((np.minimum(losses, epsilon) - epsilon) / 2) ** 2 / -math.expm1(-epsilon)
    profile = np.maximum(np.where(losses < epsilon, profile, 0.0), -np.expm1(np.minimum(losses, 0.0)))
    slopes = np.concatenate([[1.0], -np.diff(profile) * np.exp(-losses[:-1]) / np.expm1(width), [0.0]])
    masses: npt.NDArray[np.float64] = np.maximum(-np.diff(slopes), 0.0) * np.exp(losses)
    return masses


def _least(at: Callable[[float], float], low: float, high: float) -> float:
    """Search a minimum by thirds. All values are valid bounds: a second minimum only makes the result larger."""
    for _ in range(4 * _FINE):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, right) if at(left) <= at(right) else (left, high)
    return at((low + high) / 2)


def require_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise PolicyError(f"delta is {delta}; allowed: above 0 and below 1", "1e-6 is usual")


def allocated_epsilon(total: float, draws: int, outputs: int, bits: int) -> float:
    """Return the pure parameter that integer weights realize, over all divisions of a budget among draws.

    All draws are range-bounded, over output sets of at most `outputs` members. With f(e) = ln(m pmax(e)) and g(e) =
    -ln(m pmin(e)), two texts that divide E as they like are at most n f(E/n) + g(E) apart, which is at most E. Integer
    weights stop growing at e_s = 2 B ln 2, so there g becomes G (docs/spec/privacy.md#theorem-a-integers).

    >>> round(allocated_epsilon(6.0, 2, 4, 46), 6)
    4.476449
    """
    saturated, most = 2 * bits * math.log(2), math.log(1 + (outputs - 1) * 2**bits) - math.log(outputs)
    whole = math.floor(total / saturated)
    if whole >= draws:
        concentrated = draws * most
    else:
        concentrated = whole * most + min(most, _below_even(total - whole * saturated, outputs))
    return min(total, draws * _above_even(total / draws, outputs) + concentrated)


def allocated_rho(total: float, largest: Fraction) -> Fraction:
    """Return rho of zCDP, over all divisions of a budget in which no draw takes more than `largest`."""
    return min(largest, exact(total)) * exact(total) / 8


def _above_even(epsilon: float, m: int) -> float:
    """Return f(epsilon): how far above 1/m a probability can lie, as a logarithm."""
    return math.log(m) - math.log1p((m - 1) * math.exp(-epsilon / 2))


def _below_even(epsilon: float, m: int) -> float:
    """Return g(epsilon): how far below 1/m a probability can lie, as a logarithm."""
    return epsilon / 2 + math.log(m - 1 + math.exp(-epsilon / 2)) - math.log(m)


_STEPS = 200  # halvings: far below one unit in the last place
_MARGIN = 1e-10  # margin of ln delta above the rounding error of `log_delta`, so that the result is on the safe side


def log_delta(epsilon: float, mu: float) -> float:
    """Return ln delta(epsilon) of Gaussian noise whose sensitivity is `mu` standard deviations.

    >>> round(math.exp(log_delta(1.0, 1.0)), 6)
    0.126937
    """
    from scipy.special import log_ndtr

    near, far = float(log_ndtr(mu / 2 - epsilon / mu)), epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return near + math.log1p(-math.exp(min(0.0, far - near))) if far < near else -math.inf


def largest_mu(epsilon: float, delta: float) -> float:
    """Return the largest sensitivity, in standard deviations, at which noise is (epsilon, delta)-DP.

    >>> round(largest_mu(500.0, 1e-5), 6)
    27.673312
    """
    limit = math.log(delta) - _MARGIN
    return _border(lambda mu: log_delta(epsilon, mu) <= limit)[0]


def smallest_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon of noise with this sensitivity (in standard deviations) at this delta."""
    limit = math.log(delta) - _MARGIN
    if mu == 0 or log_delta(0.0, mu) <= limit:
        return 0.0
    return _border(lambda epsilon: log_delta(epsilon, mu) > limit)[1]


def _border(holds: Callable[[float], bool]) -> tuple[float, float]:
    """Return neighbors among the numbers above 0: the last for which something holds, and the first for which not."""
    low, high = 0.0, 1.0
    while holds(high):
        low, high = high, 2 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


def analytic_gaussian_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """Return the standard deviation of Gaussian noise that makes a release (epsilon, delta)-DP."""
    if not (0 < epsilon < math.inf and 0 < delta < 1 and 0 < sensitivity < math.inf):
        msg = f"epsilon and sensitivity are above 0, delta is between 0 and 1; got {epsilon}, {sensitivity}, {delta}"
        raise PolicyError(msg)
    with localcontext() as context:
        context.prec, context.rounding = 12, ROUND_CEILING
        return float(Decimal(sensitivity) / Decimal(largest_mu(epsilon, delta)))
