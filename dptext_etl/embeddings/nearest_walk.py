"""Order a vocabulary as one list of neighbors by a greedy walk from each word to its nearest unused word.

Every step asks for the nearest unused word of the current one. Usually a short list of near words gives the answer;
such lists are made for blocks of words. If all words of a short list are used, a new block is made. Used words leave
the matrix, so all blocks together take about as long as one product of the vocabulary with itself.
"""

from __future__ import annotations

import logging
import time

import numpy as np
import numpy.typing as npt

from dptext_etl.embeddings.shortlist import FreeWords
from dptext_etl.embeddings.vectors import Metric, WordVectors

Order = npt.NDArray[np.uint32]

_NEAR = 48  # words of a short list
_FEW = 4  # a list with fewer unused words is made again together with that of a near word
_BLOCK = 512  # largest number of short lists that are made at once
_REPORT_SECONDS = 5

log = logging.getLogger("dptext_etl.embeddings")


def nearest_walk(vectors: WordVectors, start: int = 0, metric: Metric = "euclidean") -> Order:
    """Order a vocabulary: begin with the start, then always append the nearest word that is not in the list yet.

    Distances are compared as exact integers, and of equal ones the earlier word wins, so the list is the same on every
    machine. The time grows with the square of the vocabulary's size, the memory only with its size.
    """
    total = len(vectors)
    walk = _Walk(vectors, metric)
    order = np.empty(total, dtype=np.uint32)
    began = said = time.monotonic()
    current = start
    for place in range(total):
        order[place] = current
        walk.use(current)
        if (now := time.monotonic()) - said >= _REPORT_SECONDS:
            said = now
            log.info("list of neighbors: %d of %d words after %.0f s", place, total, now - began)
        if place + 1 < total:
            current = walk.after(current)
    return order


class _Walk:
    """Hold the unused words, and short lists of near words for most of them."""

    def __init__(self, vectors: WordVectors, metric: Metric) -> None:
        self._none = len(vectors)  # padding of short lists; counts as used
        self._free = FreeWords(vectors, metric)
        self._used = np.zeros(len(vectors) + 1, dtype=bool)
        self._used[self._none] = True
        self._near = np.full((len(vectors), _NEAR), self._none, dtype=np.int32)

    def use(self, word: int) -> None:
        self._used[word] = True
        self._free.use(np.array([word]))

    def after(self, word: int) -> int:
        """Return the nearest unused word: the first one of the short list, since no nearer word is missing in it."""
        unused = ~self._used[self._near[word]]
        first = int(unused.argmax())
        return int(self._near[word, first]) if unused[first] else self._look(word)

    def _look(self, word: int) -> int:
        self._free.first(0)  # used words leave the matrix
        (guess,) = self._free.guesses(np.array([word]))
        around = self._free.nearest(word, min(_BLOCK, self._free.left), guess)
        block = around[(~self._used[self._near[around]]).sum(axis=1) <= _FEW]
        count = min(_NEAR + 1, self._free.left)  # one more, since an unused word is its own neighbor
        for near, guess in zip(block.tolist(), self._free.guesses(block), strict=True):
            found = self._free.nearest(near, count, guess)
            found = found[found != near][:_NEAR]
            self._near[near] = self._none
            self._near[near, : len(found)] = found
        return int(around[0])
