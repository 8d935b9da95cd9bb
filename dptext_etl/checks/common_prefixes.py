"""Heads: the first k released words of any two records, which no two independent draws make alike.

Whatever two texts say, the chance that k given draws of one agree with k of the other is at most p^k, where p bounds
every probability of the law. So with R rows and k such that R (R - 1) / 2 * p^k is below the false-alarm bound, a
single pair of equal heads is a defect, and neither raw texts nor how often they repeat matter. k follows from the
number of rows and the configuration alone.

Where padding vanishes, the k-th word that shows is the m-th draw for some m >= k, in one of C(m - 1, k - 1) ways; the
sum of p^m over all of them is (p / (1 - p))^k.
"""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from dptext_etl.checks.short_digests import Digests, short_digests
from dptext_etl.families.by_word import WordByWord
from dptext_etl.guarantee import Disclosure

_DRAWN = frozenset({Disclosure.CLUSTER})


class Heads:
    """Compares the heads of one column's texts; 16 bytes are kept per text that is long enough.

    Args:
        name: The column.
        mechanism: Its mechanism.
        rows: How many rows there are.
        alarm: Bound of the probability that a correct run has a pair of equal heads.
    """

    def __init__(self, name: str, mechanism: WordByWord, rows: int, alarm: float) -> None:
        self.name = name
        self.words = head_words(mechanism, rows, alarm)
        self._seen: list[Digests] = []

    def feed(self, texts: pl.Series) -> None:
        """Take released texts."""
        if self.words is None or texts.dtype != pl.String:
            return
        words = texts.drop_nulls().str.split(" ")
        heads = words.filter(words.list.len() >= self.words).list.head(self.words).list.join(" ")
        if len(heads):
            self._seen.append(short_digests(heads))

    def counts(self) -> tuple[int, int]:
        """Return how many heads were compared, and how many stand behind more than one record."""
        if not self._seen:
            return 0, 0
        whole = np.concatenate(self._seen)
        _, times = np.unique(whole, return_counts=True)
        return len(whole), int(times[times > 1].sum())


def head_words(mechanism: WordByWord, rows: int, alarm: float) -> int | None:
    """Return how many words two heads need so that chance never makes them equal; None where no number is enough.

    Args:
        mechanism: One whose words are all drawn; one that keeps some in clear gets None.
        rows: Rows that are compared with one another.
        alarm: False-alarm bound.
    """
    largest = word_chance(mechanism)
    if largest >= 1:
        return None
    pairs = max(1, math.comb(rows, 2))
    words = max(1, math.ceil((math.log(alarm) - math.log(pairs)) / math.log(largest) * (1 + 1e-12)))
    return words if words <= mechanism.n_max else None


def word_chance(mechanism: WordByWord) -> float:
    """Return p such that k released words in a row are k given ones with probability at most p^k; 1 where none is.

    None is where words are released in clear. Where padding vanishes, p / (1 - p) stands for the largest probability p.
    """
    if mechanism.mode == "faithful" or not set(mechanism.word_disclosures) <= _DRAWN:
        return 1.0
    largest = mechanism.largest_probability()
    if not mechanism.hides_length:
        return largest
    return min(1.0, largest / (1 - largest)) if largest < 1 else 1.0
