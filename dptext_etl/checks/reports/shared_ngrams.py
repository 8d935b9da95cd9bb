"""Count shared n-grams: k words in a row that a release shares with its own original, at any place.

A row of n draws shares k words in a row with any one reference text of n words with probability at most n^2 * p^k:
there are n^2 pairs of places, and k released words in a row are k given words with probability at most p^k
(docs/spec/privacy.md#copy-gate, `common_prefixes.word_chance`). The configuration alone decides k.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from dptext_etl.checks.common_prefixes import word_chance
from dptext_etl.families.by_word import WordByWord

TEXT = 200
CHANCE = 1e-3
LEAST = 3
"""An n-gram has so many words that at most one text of 200 words in a thousand shares one by chance; at least 3."""

Hashes = npt.NDArray[np.uint64]
_BITS, _ROOM = 24, 16
"""A table of 16 marks per n-gram, at most 2^24, finds the few n-grams of a slice that can be shared at all."""
_ODD = 0x9E3779B97F4A7C15


def ngram_words(mechanism: WordByWord) -> int | None:
    """Return how many words an n-gram of a column has; None where chance makes shared n-grams of any length."""
    largest = word_chance(mechanism)
    if largest >= 1:
        return None
    words = max(LEAST, math.ceil(math.log(CHANCE / TEXT**2) / math.log(largest)))
    return words if words <= mechanism.n_max else None


def ngram_chances(mechanism: WordByWord, draws: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Bound the chance that a row of so many draws shares an n-gram with any one reference text of as many words.

    Args:
        mechanism: The column's mechanism.
        draws: Numbers of draws, shape (k,).

    Returns:
        Upper bounds, shape (k,), each at most 1.
    """
    words = ngram_words(mechanism)
    if words is None:
        return np.ones(len(draws))
    bound = draws.astype(np.float64) ** 2 * word_chance(mechanism) ** words * (1 + 1e-12)
    return np.where(draws < words, 0.0, np.minimum(1.0, bound))


def count_shared_ngrams(raw: pl.Series, released: pl.Series, words: int) -> int:
    """Count the rows whose release shares `words` words in a row with its original.

    Args:
        raw: Words of each original, a list per row.
        released: Words of each release, in the same order.
        words: Length of an n-gram, in words.
    """
    before, after = _windows(raw, words), _windows(released, words)
    bits = min(_BITS, max(1, (_ROOM * len(before.rows)).bit_length()))
    seen, asked = np.zeros(1 << bits, dtype=bool), np.zeros(1 << bits, dtype=bool)
    seen[before.places(bits)] = True
    after = after.take(seen[after.places(bits)])
    asked[after.places(bits)] = True
    shared = after.frame().join(before.take(asked[before.places(bits)]).frame(), on=["row", "hash"], how="semi")
    suspects = shared["row"].unique().sort()
    return sum(_shares(raw[row].to_list(), released[row].to_list(), words) for row in suspects)


class _Windows(NamedTuple):
    """The n-grams of a column; a hash alone decides nothing, suspects are compared word by word.

    Attributes:
        rows: The row of every n-gram.
        hashes: Its hash.
    """

    rows: npt.NDArray[np.uint32]
    hashes: Hashes

    def places(self, bits: int) -> Hashes:
        """Return the place of every n-gram in a table of `1 << bits` marks: rows differ there, too."""
        mixed: Hashes = (self.hashes + self.rows * np.uint64(_ODD)) >> np.uint64(64 - bits)
        return mixed

    def take(self, chosen: npt.NDArray[np.bool_]) -> _Windows:
        """Return some of them."""
        return _Windows(self.rows[chosen], self.hashes[chosen])

    def frame(self) -> pl.DataFrame:
        """Return the columns `row` and `hash`."""
        return pl.DataFrame({"row": self.rows, "hash": self.hashes})


def _windows(lists: pl.Series, words: int) -> _Windows:
    """Hash every n-gram of a column's lists of words."""
    lengths = lists.list.len().fill_null(0).to_numpy().astype(np.int64)
    rows = np.repeat(np.arange(len(lists), dtype=np.uint32), lengths)
    single = lists.filter(lengths > 0).explode().hash(seed=0).to_numpy()
    count = max(0, len(single) - words + 1)
    inside = rows[:count] == rows[words - 1 : words - 1 + count]
    return _Windows(rows[:count][inside], _joined(single, words)[:count][inside])


def _joined(single: Hashes, words: int) -> Hashes:
    """Hash every stretch of so many words from the hashes of words, by joining halves."""
    if words == 1:
        return single
    half = _joined(single, words // 2)
    count, at = max(0, len(half) - words // 2), words // 2
    twice: Hashes = half[:count] * np.uint64(_ODD) + half[at : at + count]
    if words % 2 == 0:
        return twice
    count = max(0, len(single) - words + 1)
    whole: Hashes = twice[:count] * np.uint64(_ODD) + single[words - 1 : words - 1 + count]
    return whole


def _shares(raw: list[str], released: list[str], words: int) -> bool:
    known = {tuple(raw[at : at + words]) for at in range(len(raw) - words + 1)}
    return any(tuple(released[at : at + words]) in known for at in range(len(released) - words + 1))
