"""The nearest words among those that are still free: a fast guess in float32, decided by exact integers.

A float32 product of integer coordinates is wrong by at most gamma_d * |x| * |y| (Higham 2002, section 3.1, any order of
summation). Every word whose guess lies within twice that bound of the k-th best is compared exactly, so the answer is
the one that exact arithmetic gives, ties to the earlier word, on every machine.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dptext_etl.embeddings.vectors import Integers, Metric, WordVectors

_COMPACT = 0.7  # used words leave the matrix below this share of free ones
_UNIT = 2.0**-24  # rounding of float32

Guesses = npt.NDArray[np.float32]


class FreeWords:
    """The words of a vocabulary that are not used yet.

    Args:
        vectors: The vocabulary.
        metric: "euclidean" or "cosine".

    Attributes:
        left: How many words are free.
    """

    def __init__(self, vectors: WordVectors, metric: Metric) -> None:
        self._vectors, self._metric = vectors, metric
        self.left = len(vectors)
        terms = vectors.vectors.shape[1] + 8
        self._error = terms * _UNIT / (1 - terms * _UNIT)
        lengths = np.sqrt(np.maximum(vectors.norms, 1))
        scale = vectors.norms if metric == "euclidean" else -1 / lengths
        self._longest = float(lengths.max(initial=1))
        self._keep(np.arange(len(vectors)), vectors.vectors.astype(np.float32), scale.astype(np.float32))

    def _keep(self, ids: Integers, matrix: Guesses, scale: Guesses) -> None:
        """Hold these words: their vectors, and squared lengths (euclidean) or minus inverse lengths (cosine)."""
        self._ids, self._matrix, self._scale = ids, matrix, scale
        self._free = np.ones(len(ids), dtype=bool)

    def first(self, count: int) -> Integers:
        """Return the first free words in public order, up to `count`; what is used leaves the matrix here."""
        if self.left < _COMPACT * len(self._free):
            self._keep(self._ids[self._free], self._matrix[self._free], self._scale[self._free])
        return self._ids[np.flatnonzero(self._free)[:count]]

    def is_free(self, word: int) -> bool:
        """Whether a word is free."""
        at = int(np.searchsorted(self._ids, word))
        return at < len(self._ids) and int(self._ids[at]) == word and bool(self._free[at])

    def use(self, words: Integers) -> None:
        """Mark free words as used."""
        self._free[np.searchsorted(self._ids, words)] = False
        self.left -= len(words)

    def guesses(self, words: Integers) -> Guesses:
        """Return what `nearest` starts from, for some words at once, shape (words, held words)."""
        product: Guesses = self._vectors.vectors[words].astype(np.float32) @ self._matrix.T
        return product

    def nearest(self, word: int, k: int, guess: Guesses) -> Integers:
        """Return the k nearest free words of a word, nearest first; ties fall to the earlier word.

        Args:
            word: Which word; it is not free itself.
            k: How many, from 1 to `left`.
            guess: The word's row of `guesses`, made since the last call of `first`; it is overwritten.
        """
        length = float(np.sqrt(self._vectors.norms[word]))
        if self._metric == "euclidean":
            guess *= -2
            guess += self._scale
            slack = 2 * self._error * self._longest * (2 * length + self._longest)
        else:
            guess *= self._scale
            slack = 2 * self._error * length
        guess[~self._free] = np.inf
        limit = np.partition(guess, k - 1)[k - 1]
        near = self._ids[guess <= np.nextafter(np.float32(limit + slack), np.float32(np.inf))]
        (keys,) = self._vectors.rank_keys([word], near, self._metric)
        return near[np.argsort(keys, kind="stable")[:k]]
