"""Runs: k words in a row that a release shares with its own original, at any place; counted over a whole run.

A row of n draws shares a run of k words with any one reference text of n words with probability at most n^2 * p^k:
there are n^2 pairs of places, and k words in a row are k given ones with probability at most p^k
(docs/spec/privacy.md#copy-gate, `heads.word_chance`). How long a run counts follows from the configuration alone.
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
"""A run is so long that a text of 200 words has one by chance once in a thousand texts at most; 3 words at least."""

Hashes = npt.NDArray[np.uint64]


def run_words(mechanism: WordByWord) -> int | None:
    """Return the length of the runs that are counted; None where chance makes runs of any length."""
    largest = word_chance(mechanism)
    if largest >= 1:
        return None
    words = max(LEAST, math.ceil(math.log(CHANCE / TEXT**2) / math.log(largest)))
    return words if words <= mechanism.n_max else None


def run_chances(mechanism: WordByWord, draws: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Bound the chance that a row of so many draws shares a run with any one reference text of as many words."""
    words = run_words(mechanism)
    if words is None:
        return np.ones(len(draws))
    bound = draws.astype(np.float64) ** 2 * word_chance(mechanism) ** words * (1 + 1e-12)
    return np.where(draws < words, 0.0, np.minimum(1.0, bound))


def count_runs(raw: pl.Series, released: pl.Series, words: int) -> int:
    """Count the rows that share a run of `words` words.

    Args:
        raw: Words of each original, a list per row.
        released: Words of each release, in the same order.
        words: Length of a run.
    """
    mark = np.random.default_rng(0).integers(1, 2**63, words, dtype=np.uint64) | np.uint64(1)
    before, after = _windows(raw, mark), _windows(released, mark)
    suspects = np.unique(after["row"][np.isin(after, before)])
    return sum(_shares(raw[int(row)].to_list(), released[int(row)].to_list(), words) for row in suspects)


def _windows(lists: pl.Series, mark: Hashes) -> npt.NDArray[np.void]:
    """Hash every run of a column's lists; a hash alone decides nothing, suspects are compared word by word."""
    lengths = lists.list.len().fill_null(0).to_numpy().astype(np.int64)
    rows = np.repeat(np.arange(len(lists)), lengths)
    words = lists.filter(lengths > 0).explode().hash(seed=0).to_numpy()
    count = max(0, len(words) - len(mark) + 1)
    total = np.zeros(count, np.uint64)
    for place, factor in enumerate(mark):
        total += words[place : place + count] * factor
    inside = rows[:count] == rows[len(mark) - 1 : len(mark) - 1 + count]
    found = np.empty(int(inside.sum()), dtype=[("row", np.int64), ("hash", np.uint64)])
    found["row"], found["hash"] = rows[:count][inside], total[inside]
    return found


def _shares(raw: list[str], released: list[str], words: int) -> bool:
    known = {tuple(raw[at : at + words]) for at in range(len(raw) - words + 1)}
    return any(tuple(released[at : at + words]) in known for at in range(len(released) - words + 1))
