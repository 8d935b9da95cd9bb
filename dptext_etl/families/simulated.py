"""How often a word comes back under noise on its vector, by simulation from the published formula.

Nothing of a mechanism's own code or key stream is used: a gate compares what was released with this, so that a defect
of the mechanism cannot excuse itself.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dptext_etl.embeddings import WordVectors

_NEAR = 128


def radial_survivals(words: WordVectors, number: int, rate: float, trials: int, slack: float) -> int:
    """Count in how many of `trials` a word stays the nearest one under noise of density exp(-rate |eta|).

    Only the nearest other words are looked at, which can only find more survivors.

    Args:
        words: The vocabulary.
        number: The word.
        rate: Per grid step of the vectors.
        trials: Independent draws of noise.
        slack: How far rounding may move a vector, in grid steps.
    """
    squared = words.squared_distances([number], slice(None))[0]
    near = np.argsort(squared, kind="stable")[: _NEAR + 1]
    near = near[near != number]
    steps: npt.NDArray[np.float64] = words.vectors[near].astype(np.float64) - words.vectors[number].astype(np.float64)
    lengths = np.linalg.norm(steps, axis=1)
    limits = rate * (lengths**2 / 2 + slack * lengths + 1e-6)
    return int(np.count_nonzero((_noise(trials, steps.shape[1]) @ steps.T <= limits).all(axis=1)))


@lru_cache(maxsize=2)
def _noise(trials: int, dimensions: int) -> npt.NDArray[np.float64]:
    """Noise of rate 1, shape (trials, dimensions); words share it, each for itself sees independent trials."""
    random = np.random.default_rng()
    noise = random.standard_normal((trials, dimensions))
    noise *= (random.gamma(dimensions, size=trials) / np.linalg.norm(noise, axis=1))[:, None]
    return noise
