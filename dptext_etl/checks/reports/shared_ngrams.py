"""Count shared n-grams: k words in a row that a release shares with its own original, at any place.

A row of n draws shares k words in a row with any one reference text of n words with probability at most n^2 * p^k:
there are n^2 pairs of places, and k released words in a row are k given words with probability at most p^k
(docs/spec/privacy.md#copy-gate, `common_prefixes.word_chance`). The configuration alone decides k.
"""

from __future__ import annotations

import math

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
    mark = np.random.default_rng(0).integers(1, 2**63, words, dtype=np.uint64) | np.uint64(1)
    before, after = _windows(raw, mark), _windows(released, mark)
    suspects = after.join(before, on=["row", "hash"], how="semi")["row"].unique().sort()
    return sum(_shares(raw[row].to_list(), released[row].to_list(), words) for row in suspects)


def _windows(lists: pl.Series, mark: Hashes) -> pl.DataFrame:
    """Hash every n-gram of a column's lists; a hash alone decides nothing, suspects are compared word by word.

    Returns:
        The columns `row` and `hash`, one row per n-gram.
    """
    lengths = lists.list.len().fill_null(0).to_numpy().astype(np.int64)
    rows = np.repeat(np.arange(len(lists), dtype=np.uint32), lengths)
    words = lists.filter(lengths > 0).explode().hash(seed=0).to_numpy()
    count = max(0, len(words) - len(mark) + 1)
    total = np.zeros(count, np.uint64)
    for place, factor in enumerate(mark):
        total += words[place : place + count] * factor
    inside = rows[:count] == rows[len(mark) - 1 : len(mark) - 1 + count]
    return pl.DataFrame({"row": rows[:count][inside], "hash": total[inside]})


def _shares(raw: list[str], released: list[str], words: int) -> bool:
    known = {tuple(raw[at : at + words]) for at in range(len(raw) - words + 1)}
    return any(tuple(released[at : at + words]) in known for at in range(len(released) - words + 1))
