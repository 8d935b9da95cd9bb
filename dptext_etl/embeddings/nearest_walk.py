"""A vocabulary as one list in which neighbours stand beside each other: a greedy walk from word to nearest unused word.

Every step asks for the nearest unused word of the current one. Its own short list of near words, made once for a block
of words around it, mostly answers; where all of them are used, a new block is made. The products of all blocks together
are at most about one product of the vocabulary with itself, since used words leave the matrix.
"""

from __future__ import annotations

import logging
import time

import numpy as np
import numpy.typing as npt

from dptext_etl.embeddings.shortlist import FreeWords
from dptext_etl.embeddings.vectors import Integers, Metric, WordVectors

Order = npt.NDArray[np.uint32]

_NEAR = 32  # words that a short list holds
_BLOCK = 256  # words whose short lists are made at once
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
    """Unused words, and short lists of near ones."""

    def __init__(self, vectors: WordVectors, metric: Metric) -> None:
        self._free = FreeWords(vectors, metric)
        self._used = bytearray(len(vectors))
        self._near: dict[int, Integers] = {}

    def use(self, word: int) -> None:
        self._used[word] = 1
        self._free.use(np.array([word]))

    def after(self, word: int) -> int:
        """The nearest unused word: the first unused one of its short list, which holds all that were nearer."""
        for near in self._near.pop(word, np.empty(0, np.int64)).tolist():
            if not self._used[near]:
                return int(near)
        return self._look(word)

    def _look(self, word: int) -> int:
        self._free.first(0)  # used words leave the matrix
        (guess,) = self._free.guesses(np.array([word]))
        around = self._free.nearest(word, min(_BLOCK, self._free.left), guess)
        block = np.array([near for near in around.tolist() if near not in self._near], dtype=np.int64)
        count = min(_NEAR + 1, self._free.left)  # one more: an unused word is its own neighbour
        for near, guess in zip(block.tolist(), self._free.guesses(block), strict=True):
            found = self._free.nearest(near, count, guess)
            self._near[near] = found[found != near][:_NEAR]
        return int(around[0])
