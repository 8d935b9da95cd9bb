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
_GROUP = 16  # guesses of which the best stands for all when the limit is looked for
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
        self._longest = float(lengths.max(initial=1))
        ids = np.arange(len(vectors))
        # a guess is product * factor + offset: |y|^2 - 2xy, or -xy / |y|; the offset of a used word is infinite
        factors = np.full(len(ids), -2) if metric == "euclidean" else -1 / lengths
        offsets = vectors.norms if metric == "euclidean" else np.zeros(len(ids))
        matrix = vectors.vectors.astype(np.float32)
        self._keep(ids, matrix, factors.astype(np.float32), offsets.astype(np.float32))

    def _keep(self, ids: Integers, matrix: Guesses, factors: Guesses, offsets: Guesses) -> None:
        """Hold these words: their ids, vectors, and what makes a guess of a product."""
        self._ids, self._matrix, self._factors, self._offsets = ids, matrix, factors, offsets
        self._free = np.ones(len(ids), dtype=bool)

    def first(self, count: int) -> Integers:
        """Return the first free words in public order, up to `count`; what is used leaves the matrix here."""
        if self.left < _COMPACT * len(self._free):
            free = self._free
            self._keep(self._ids[free], self._matrix[free], self._factors[free], self._offsets[free])
        return self._ids[np.flatnonzero(self._free)[:count]]

    def is_free(self, word: int) -> bool:
        """Whether a word is free."""
        at = int(np.searchsorted(self._ids, word))
        return at < len(self._ids) and int(self._ids[at]) == word and bool(self._free[at])

    def use(self, words: Integers) -> None:
        """Mark free words as used."""
        at = np.searchsorted(self._ids, words)
        self._free[at] = False
        self._offsets[at] = np.inf
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
        reach = self._longest * (2 * length + self._longest) if self._metric == "euclidean" else length
        slack = 2 * self._error * reach
        guess *= self._factors
        guess += self._offsets
        limit = _kth(guess, k)
        near = self._ids[guess <= np.nextafter(np.float32(limit + slack), np.float32(np.inf))]
        (keys,) = self._vectors.rank_keys([word], near, self._metric)
        nearest: Integers = near[np.argsort(keys, kind="stable")[:k]]
        return nearest


def _kth(guess: Guesses, k: int) -> float:
    """Return the k-th smallest guess or, where it takes much less time, somewhat more: that of the groups' best."""
    width = len(guess) // _GROUP
    if width >= 4 * k:
        best = guess[: width * _GROUP].reshape(_GROUP, width).min(axis=0)
        limit = np.partition(best, k - 1)[k - 1]
        if np.isfinite(limit):
            return float(limit)
    return float(np.partition(guess, k - 1)[k - 1])
