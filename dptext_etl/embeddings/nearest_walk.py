"""A vocabulary as one list in which neighbours stand beside each other: a greedy walk from word to nearest unused word.

Every step asks for the nearest unused word of the current one. Its own short list of near words, made for a block of
words around it, mostly answers; where all are used, a new block is made. Together the blocks take about what one
product of the vocabulary with itself takes, since used words leave the matrix.
"""

from __future__ import annotations

import logging
import time

import numpy as np
import numpy.typing as npt

from dptext_etl.embeddings.shortlist import FreeWords
from dptext_etl.embeddings.vectors import Metric, WordVectors

Order = npt.NDArray[np.uint32]

_NEAR = 48  # words that a short list holds
_FEW = 4  # of them unused: the list is made again when a word near by needs one
_BLOCK = 512  # words whose short lists are made at once, at most
_REPORT_SECONDS = 5

log = logging.getLogger("dptext_etl.embeddings")


def nearest_walk(vectors: WordVectors, start: int = 0, metric: Metric = "euclidean") -> Order:
    """Order a vocabulary: the start, then always the nearest word that is not in the list yet.

    Distances are compared as exact integers and ties fall to the earlier word, so the list is the same on every
    machine. Time grows with the square of the vocabulary, memory with the vocabulary alone.

    Args:
        vectors: The vocabulary, in public order.
        start: The first word of the list.
        metric: "euclidean" or "cosine".

    Returns:
        All word ids, each once, shape (n,).
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
            log.info("list of neighbours: %d of %d words after %.0f s", place, total, now - began)
        if place + 1 < total:
            current = walk.after(current)
    return order


class _Walk:
    """Unused words, and a short list of near ones for most of them."""

    def __init__(self, vectors: WordVectors, metric: Metric) -> None:
        self._none = len(vectors)  # fills short lists; counts as used
        self._free = FreeWords(vectors, metric)
        self._used = np.zeros(len(vectors) + 1, dtype=bool)
        self._used[self._none] = True
        self._near = np.full((len(vectors), _NEAR), self._none, dtype=np.int32)

    def use(self, word: int) -> None:
        self._used[word] = True
        self._free.use(np.array([word]))

    def after(self, word: int) -> int:
        """The nearest unused word: the first unused one of its short list, which holds all that were nearer."""
        unused = ~self._used[self._near[word]]
        first = int(unused.argmax())
        return int(self._near[word, first]) if unused[first] else self._look(word)

    def _look(self, word: int) -> int:
        self._free.first(0)  # used words leave the matrix
        (guess,) = self._free.guesses(np.array([word]))
        around = self._free.nearest(word, min(_BLOCK, self._free.left), guess)
        block = around[(~self._used[self._near[around]]).sum(axis=1) <= _FEW]
        count = min(_NEAR + 1, self._free.left)  # one more: an unused word is its own neighbour
        for near, guess in zip(block.tolist(), self._free.guesses(block), strict=True):
            found = self._free.nearest(near, count, guess)
            found = found[found != near][:_NEAR]
            self._near[near] = self._none
            self._near[near, : len(found)] = found
        return int(around[0])
