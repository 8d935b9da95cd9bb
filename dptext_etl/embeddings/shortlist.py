"""Find the nearest words among those that are still free: float32 estimates them, exact integers decide.

The error of a float32 product of integer coordinates is at most gamma_d * |x| * |y| (Higham 2002, section 3.1, any
order of summation). Every word whose estimate lies within twice that bound of the k-th best is compared exactly. So the
answer is that of exact arithmetic on every machine; of equally near words, the earlier one wins.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dptext_etl.embeddings.vectors import Integers, Metric, WordVectors

_COMPACT = 0.7  # used words leave the matrix when the share of free ones falls below this
_GROUP = 16  # estimates per group; the best of each group serves to find a limit
_UNIT = 2.0**-24  # rounding of float32

Guesses = npt.NDArray[np.float32]


class FreeWords:
    """Hold the words of a vocabulary that are not used yet.

    Attributes:
        left: Number of free words.
    """

    def __init__(self, vectors: WordVectors, metric: Metric) -> None:
        self._vectors, self._metric = vectors, metric
        self.left = len(vectors)
        terms = vectors.vectors.shape[1] + 8
        self._error = terms * _UNIT / (1 - terms * _UNIT)
        lengths = np.sqrt(np.maximum(vectors.norms, 1))
        self._longest = float(lengths.max(initial=1))
        ids = np.arange(len(vectors))
        # an estimate is product * factor + offset: |y|^2 - 2xy, or -xy / |y|; the offset of a used word is infinite
        factors = np.full(len(ids), -2) if metric == "euclidean" else -1 / lengths
        offsets = vectors.norms if metric == "euclidean" else np.zeros(len(ids))
        matrix = vectors.vectors.astype(np.float32)
        self._keep(ids, matrix, factors.astype(np.float32), offsets.astype(np.float32))

    def _keep(self, ids: Integers, matrix: Guesses, factors: Guesses, offsets: Guesses) -> None:
        """Hold these words: their ids, vectors, and the factors and offsets that turn products into estimates."""
        self._ids, self._matrix, self._factors, self._offsets = ids, matrix, factors, offsets
        self._free = np.ones(len(ids), dtype=bool)

    def first(self, count: int) -> Integers:
        """Return the first free words in public order, up to `count`, and drop used words from the matrix."""
        if self.left < _COMPACT * len(self._free):
            free = self._free
            self._keep(self._ids[free], self._matrix[free], self._factors[free], self._offsets[free])
        return self._ids[np.flatnonzero(self._free)[:count]]

    def is_free(self, word: int) -> bool:
        """Say whether a word is free."""
        at = int(np.searchsorted(self._ids, word))
        return at < len(self._ids) and int(self._ids[at]) == word and bool(self._free[at])

    def use(self, words: Integers) -> None:
        """Mark free words as used."""
        at = np.searchsorted(self._ids, words)
        self._free[at] = False
        self._offsets[at] = np.inf
        self.left -= len(words)

    def guesses(self, words: Integers) -> Guesses:
        """Return the estimates that `nearest` needs, for several words at once, shape (words, held words)."""
        product: Guesses = self._vectors.vectors[words].astype(np.float32) @ self._matrix.T
        return product

    def nearest(self, word: int, k: int, guess: Guesses) -> Integers:
        """Return the k nearest free words of a word, nearest first; of equally near words, the earlier one first."""
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
    """Return the k-th smallest estimate, or a slightly larger one from the groups' best where that is much faster."""
    width = len(guess) // _GROUP
    if width >= 4 * k:
        best = guess[: width * _GROUP].reshape(_GROUP, width).min(axis=0)
        limit = np.partition(best, k - 1)[k - 1]
        if np.isfinite(limit):
            return float(limit)
    return float(np.partition(guess, k - 1)[k - 1])
