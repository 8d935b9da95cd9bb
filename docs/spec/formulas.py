"""Formulas of `privacy.md`, written once more for the verifiers next to it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import log_ndtr

Floats = npt.NDArray[np.float64]
BITS = 46


def generator() -> np.random.Generator:
    """Return the same random numbers for every claim."""
    return np.random.default_rng(20240601)


def log_delta(epsilon: float, mu: float) -> float:
    """Logarithm of the Gaussian's privacy profile."""
    a, b = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return a + math.log1p(-math.exp(b - a)) if b < a else -math.inf


def largest_mu(epsilon: float, delta: float) -> float:
    """Sensitivity over sigma at which the profile is delta."""
    high = 1.0
    while log_delta(epsilon, high) < math.log(delta):
        high *= 2
    return brentq(lambda mu: log_delta(epsilon, mu) - math.log(delta), 1e-9, high, xtol=1e-13, rtol=1e-14)


def true_epsilon(mu: float, delta: float) -> float:
    """Epsilon of Gaussian noise at delta."""
    high = 1.0
    while log_delta(high, mu) > math.log(delta):
        high *= 2
    return brentq(lambda epsilon: log_delta(epsilon, mu) - math.log(delta), 0, high, xtol=1e-9)


def mechanism(scores: Iterable[float], epsilon: float) -> Floats:
    """Return the exponential mechanism's probabilities for scores in [0, 1]."""
    exponents = epsilon * np.asarray(list(scores), float) / 2
    weights = np.exp(exponents - exponents.max())
    return weights / weights.sum()


def log_pmax(epsilon: float, m: int) -> float:
    """Logarithm of the largest probability."""
    return -math.log1p((m - 1) * math.exp(-epsilon / 2))


def log_pmin(epsilon: float, m: int) -> float:
    """Logarithm of the smallest probability."""
    return -(epsilon / 2) - math.log(math.exp(-epsilon / 2) + (m - 1))


def f(epsilon: float, m: int) -> float:
    """Logarithm of m pmax."""
    return log_pmax(epsilon, m) + math.log(m)


def g(epsilon: float, m: int) -> float:
    """Logarithm of 1 / (m pmin)."""
    return -log_pmin(epsilon, m) - math.log(m)


def epsilon_star(epsilon: float, m: int) -> float:
    """Exact parameter of the exponential mechanism."""
    return f(epsilon, m) + g(epsilon, m)


def least_weight(epsilon: float) -> int:
    """Smallest integer weight."""
    return min(2**BITS, math.floor(2**BITS * math.exp(-epsilon / 2)) + 1)


def realised(epsilon: float, m: int) -> tuple[float, float]:
    """(f, g) of the integer weights."""
    top, least = 2**BITS, least_weight(epsilon)
    high = math.log(m * top) - math.log(top + (m - 1) * least)
    return high, math.log(least + (m - 1) * top) - math.log(m * least)


def epsilon_implemented(epsilon: float, m: int) -> float:
    """Parameter that the integer weights realize."""
    return sum(realised(epsilon, m))


def geometric(i: int, places: int, epsilon: float) -> Floats:
    """Law of the geometric mechanism from place i of a list."""
    a = math.exp(-epsilon)
    law = (1 - a) / (1 + a) * a ** np.abs(np.arange(places) - i)
    law[0], law[-1] = a**i / (1 + a), a ** (places - 1 - i) / (1 + a)
    return law


def ratios(table: Floats) -> Floats:
    """Largest log-ratio of every two rows."""
    return np.log(table[:, None] / table[None]).max(-1)


def distances(points: Floats) -> Floats:
    """Euclidean distance of every two rows."""
    return np.linalg.norm(points[:, None] - points[None], axis=-1)


def heads(t: Any, epsilon: float) -> Any:
    """Chance of the likelier outcome under the first input, for bounded range and offset t."""
    return (1 - np.exp(t - epsilon)) / (1 - math.exp(-epsilon))


def tails(t: Any, epsilon: float) -> Any:
    """Chance of the same outcome under the second input."""
    return (np.exp(-t) - math.exp(-epsilon)) / (1 - math.exp(-epsilon))


def profile(x: Any, epsilon: float) -> Any:
    """Delta of one draw of bounded range at x, 0 beyond epsilon."""
    return np.where(x < epsilon, (1 - np.exp((x - epsilon) / 2)) ** 2 / (1 - math.exp(-epsilon)), 0.0)
