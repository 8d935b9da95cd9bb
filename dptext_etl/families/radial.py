"""Bound and simulate noise of density proportional to exp(-|eta|) in k dimensions.

Its length is Gamma(k) and its direction is uniform. So its size along any fixed line is R T, where R is the length and
T is one coordinate of a uniform direction, with density C (1 - t^2)^((k - 3) / 2) on [-1, 1]. The simulation uses
neither the code nor the key stream of a mechanism: a gate compares releases with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dptext_etl.embeddings import WordVectors

_BINS = 20_000
_LOSS = 1e-9  # above the rounding error of a few hundred additions of positive numbers


def longest_noise(dimensions: int) -> float:
    """Return a length that no draw exceeds, since each of its exponentials is -ln u with u at least 2**-128."""
    return dimensions * 128 * math.log(2) * (1 + 2.0**-30)


def least_tail(dimensions: int, distance: float) -> float:
    """Return a lower bound of the probability that the noise goes farther than `distance` in one direction.

    It is a sum from below over the values t of T: P[t <= T < t'] P[R >= distance / t]. The first factor takes the
    smaller end of a monotone density. The second is the regularized upper incomplete gamma function, which grows with
    t.
    """
    if dimensions == 1:
        return 0.5 * math.exp(-distance) * (1 - _LOSS)
    ends = np.linspace(0.0, min(1.0, 40.0 / math.sqrt(dimensions)), _BINS + 1)
    scale = math.lgamma(dimensions / 2) - math.lgamma((dimensions - 1) / 2) - 0.5 * math.log(math.pi)
    with np.errstate(divide="ignore"):
        density = math.exp(scale) * (1 - ends**2) ** ((dimensions - 3) / 2)
        reach = distance / ends[:-1] if distance > 0 else np.zeros(_BINS)
    mass = np.minimum(density[:-1], density[1:]) * np.diff(ends)
    # P[R >= x] for integer k is the probability of fewer than k points of a Poisson process of mean x
    term = np.exp(-reach)
    chance = term.copy()
    with np.errstate(invalid="ignore"):
        for points in range(1, dimensions):
            term *= reach / points
            chance += term
    chance = np.nan_to_num(np.minimum(chance, 1.0), nan=0.0)
    return float(mass @ chance) * (1 - _LOSS)


_NEAR = 128


def radial_survivals(words: WordVectors, number: int, rate: float, trials: int, slack: float) -> int:
    """Count in how many of `trials` a word stays the nearest one under noise of density exp(-rate |eta|)."""
    squared = words.squared_distances([number], slice(None))[0]
    near = np.argsort(squared, kind="stable")[: _NEAR + 1]
    near = near[near != number]
    steps: npt.NDArray[np.float64] = words.vectors[near].astype(np.float64) - words.vectors[number].astype(np.float64)
    lengths = np.linalg.norm(steps, axis=1)
    limits = rate * (lengths**2 / 2 + slack * lengths + 1e-6)
    return int(np.count_nonzero((_noise(trials, steps.shape[1]) @ steps.T <= limits).all(axis=1)))


def radial_collisions(words: WordVectors, numbers: Sequence[int], rate: float, pairs: int) -> int:
    """Count how many of `pairs` of independent draws give the same word, taking `numbers` in turn."""
    random = np.random.default_rng()
    vectors = words.vectors.astype(np.float32)
    half = (vectors.astype(np.float64) ** 2).sum(axis=1).astype(np.float32) / 2
    start = vectors[[numbers[pair % len(numbers)] for pair in range(pairs)]]
    drawn = []
    for _ in range(2):
        moved = start + (_radial(random, pairs, vectors.shape[1]) / rate).astype(np.float32)
        nearest = [(moved[at : at + _NEAR] @ vectors.T - half).argmax(axis=1) for at in range(0, pairs, _NEAR)]
        drawn.append(np.concatenate(nearest))
    return int(np.count_nonzero(drawn[0] == drawn[1]))


@lru_cache(maxsize=2)
def _noise(trials: int, dimensions: int) -> npt.NDArray[np.float64]:
    """Return noise of rate 1, shape (trials, dimensions); all words share it, but the trials of one are independent."""
    return _radial(np.random.default_rng(), trials, dimensions)


def _radial(random: np.random.Generator, trials: int, dimensions: int) -> npt.NDArray[np.float64]:
    noise = random.standard_normal((trials, dimensions))
    noise *= (random.gamma(dimensions, size=trials) / np.linalg.norm(noise, axis=1))[:, None]
    return noise
