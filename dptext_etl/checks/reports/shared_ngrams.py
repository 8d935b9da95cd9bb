"""Count shared n-grams: k words in a row that a release shares with its own original, at any place.

A row of n draws shares k words in a row with any one reference text of n words with probability at most n^2 * p^k:
there are n^2 pairs of places, and k released words in a row are k given words with probability at most p^k
(docs/spec/privacy.md#copy-gate, `common_prefixes.word_chance`). The configuration alone decides k.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dptext_etl.checks.common_prefixes import word_chance
from dptext_etl.families.by_word import WordByWord

TEXT = 200
CHANCE = 1e-3
LEAST = 3
"""An n-gram has so many words that at most one text of 200 words in a thousand shares one by chance; at least 3."""


def ngram_words(mechanism: WordByWord) -> int | None:
    """Return how many words an n-gram of a column has; None where chance makes shared n-grams of any length."""
    largest = word_chance(mechanism)
    if largest >= 1:
        return None
    words = max(LEAST, math.ceil(math.log(CHANCE / TEXT**2) / math.log(largest)))
    return words if words <= mechanism.n_max else None


def ngram_chances(mechanism: WordByWord, draws: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Bound the chance that a row of so many draws shares an n-gram with any one reference text of as many words."""
    words = ngram_words(mechanism)
    if words is None:
        return np.ones(len(draws))
    bound = draws.astype(np.float64) ** 2 * word_chance(mechanism) ** words * (1 + 1e-12)
    return np.where(draws < words, 0.0, np.minimum(1.0, bound))
