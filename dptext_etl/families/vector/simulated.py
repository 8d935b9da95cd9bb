"""Simulate how often a word comes back under noise on its vector, from the published formula.

The simulation uses neither the code nor the key stream of a mechanism. A gate compares a release with it, so that a
defect of the mechanism cannot hide itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dptext_etl.embeddings import WordVectors

_NEAR = 128


def radial_survivals(words: WordVectors, number: int, rate: float, trials: int, slack: float) -> int:
    """Count in how many of `trials` a word stays the nearest one under noise of density exp(-rate |eta|).

    Only the nearest other words are compared, which can only increase the count.
    """
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
