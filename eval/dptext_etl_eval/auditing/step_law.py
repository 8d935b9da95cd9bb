"""Compute the largest loss of one step of a mechanism with a model, for any output of its model.

For scores, the loss comes from the integer weights of the two most different rows of clipped scores. For vectors, it
comes from the divergence of the noise at the largest distance under the clip, computed from the sampler's rate or
deviation and not from the formula that chose them (docs/spec/privacy.md#epsilon-implemented,
docs/spec/privacy.md#grid-noise).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from dptext_etl import scoring
from dptext_etl.families.certificate import Certificate
from dptext_etl_models.families.latent import LatentMechanism
from dptext_etl_models.families.score import ScoreMechanism
from dptext_etl_models.grid_noise import STEPS, clipped_steps

_POINTS = 200_001
_TAIL = 40.0
"""Standard deviations beyond which the mass of Gaussian noise is negligible."""


def of_scores(mechanism: ScoreMechanism, words: tuple[str, str]) -> Certificate:
    """Compute the certificate of one draw from two rows of scores: one output alone is high, or alone is low.

    All weights are within the range of these two rows: the largest weight is always 2^B, and the smallest is at least
    theirs.
    """
    (low, high), outputs = mechanism.score_range, mechanism.outputs
    rows = np.full((2, outputs), low, np.float64)
    rows[0, 0], rows[1, 1:] = high, high
    top, bottom = (_chances(row) for row in scoring.weights(rows, mechanism.largest_epsilon, low, high).tolist())
    uniform = Fraction(1, outputs)
    laws = (top, bottom, [uniform] * 2)
    source = f"the integers of the most different scores of {outputs:,} outputs"
    if not all(chance for law in laws for chance in law):
        return Certificate(source, math.inf, exact=True, words=words)
    worst = max(most / least for one in laws for other in laws for most, least in zip(one, other, strict=True))
    realised = math.log(worst.numerator) - math.log(worst.denominator)
    return Certificate(source, realised, exact=True, words=words)


def _chances(weights: list[int]) -> list[Fraction]:
    """Return the probabilities of the first output and of the likeliest other one."""
    total = sum(weights)
    return [Fraction(weights[0], total), Fraction(max(weights[1:]), total)]


def of_latents(mechanism: LatentMechanism, size: int, words: tuple[str, str]) -> Certificate:
    """Compute the certificate of the noise on a vector of `size` numbers, or on those of all sentences of a text.

    Discrete Laplace noise: the rate times the largest distance in grid steps. Gaussian noise: the least epsilon at
    which the divergence of two densities at the largest distance, integrated, is the declared delta.
    """
    scale, value, count = mechanism.scale(size), mechanism.norm == "value", mechanism.sentences
    if scale.rate is not None:
        steps = Fraction(2 * size * clipped_steps(mechanism.clip))
        if not value:  # the l1 norm of a vector is at most its l2 norm times the square root of its dimension
            steps = 2 * Fraction(mechanism.clip) * STEPS * Fraction(math.isqrt(size << 64) + 1, 1 << 32)
        return Certificate(
            "the stored rate of discrete noise", float(scale.rate * steps * count), exact=value, words=words
        )
    apart = 2 * clipped_steps(mechanism.clip) / STEPS * math.sqrt(size) if value else 2 * mechanism.clip
    apart *= math.sqrt(count)
    realised = math.inf if not scale.sigma else _epsilon_at(apart / scale.sigma, mechanism.used_delta)
    source = f"the divergence of the noise at delta {mechanism.used_delta:g}, integrated"
    return Certificate(source, realised, exact=True, words=words)


def _epsilon_at(mu: float, delta: float) -> float:
    """Return the smallest epsilon whose delta is at most `delta`, for two normal densities `mu` deviations apart."""
    low, high = 0.0, 1.0
    while divergence(high, mu) > delta:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if divergence(middle, mu) > delta else (low, middle)
    return high


def divergence(epsilon: float, mu: float) -> float:
    """Return the integral of (p - e^epsilon q) where it is positive, p and q normal densities `mu` deviations apart.

    >>> round(divergence(1.0, 1.0), 6)
    0.126937
    """
    start = epsilon / mu - mu / 2  # point at which both are equal, relative to the mean of p
    if start > _TAIL:
        return 0.0
    places = np.linspace(max(start, -_TAIL), _TAIL, _POINTS)
    inside = np.exp(-(places**2) / 2) * -np.expm1(np.minimum(0.0, mu * (start - places)))
    return float(np.trapezoid(inside, places) / math.sqrt(2 * math.pi))
