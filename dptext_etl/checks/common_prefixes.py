"""Find common prefixes: equal first k words of two released texts, which independent draws do not make.

Whatever two texts say, k given draws of one agree with k of the other with probability at most p^k; p bounds every
probability of the output distribution. Take R rows, and k such that R (R - 1) / 2 * p^k is below the false-alarm bound.
Then a single pair of equal prefixes is a defect, and neither the raw texts nor how often they repeat matter. k follows
from the number of rows and the configuration alone.

Where padding vanishes, the k-th word that shows is the m-th draw for some m >= k, in one of C(m - 1, k - 1) ways; the
sum of p^m over all of them is (p / (1 - p))^k.
"""

from __future__ import annotations

import math
from pathlib import Path

import polars as pl

from dptext_etl.checks.buckets import Repeats, short_digests
from dptext_etl.families.by_word import WordByWord
from dptext_etl.guarantee import Disclosure

_DRAWN = frozenset({Disclosure.CLUSTER})
_BY_PATTERN = 512
"""So many words a pattern finds, in a fifth of the time; it grows with them."""


class CommonPrefixes:
    """Compares the prefixes of one column's texts: 16 bytes of each text that is long enough."""

    def __init__(self, name: str, mechanism: WordByWord, rows: int, alarm: float, scratch: Path | None = None) -> None:
        self.name = name
        self.words = prefix_words(mechanism, rows, alarm)  # words per prefix; None where no number is enough
        self.repeats = Repeats(folder=scratch)

    def feed(self, texts: pl.Series) -> None:
        """Take a batch of released texts."""
        if self.words is None or texts.dtype != pl.String:
            return
        self.repeats.add(short_digests(prefixes(texts, self.words)))

    def counts(self) -> tuple[int, int]:
        """Return how many prefixes were compared, and how many of them stand in more than one record."""
        found = self.repeats.counts()
        return found.rows, found.shared


def prefixes(texts: pl.Series, words: int) -> pl.Series:
    """Return the first words of every text that has so many; a single U+0020 separates words.

    >>> prefixes(pl.Series(["one two three", "one"]), 2).to_list()
    ['one two']
    """
    if words <= _BY_PATTERN:
        found = texts.str.extract(rf"\A((?:[^ ]* ){{{words - 1}}}[^ ]*)")
        return found.drop_nulls() if found.null_count() else found
    split = texts.drop_nulls().str.split(" ")
    return split.filter(split.list.len() >= words).list.head(words).list.join(" ")


def prefix_words(mechanism: WordByWord, rows: int, alarm: float) -> int | None:
    """Return how many words two prefixes need so that chance does not make them equal."""
    largest = word_chance(mechanism)
    if largest >= 1:
        return None
    pairs = max(1, math.comb(rows, 2))
    words = max(1, math.ceil((math.log(alarm) - math.log(pairs)) / math.log(largest) * (1 + 1e-12)))
    return words if words <= mechanism.n_max else None


def word_chance(mechanism: WordByWord) -> float:
    """Return p such that k released words in a row are k given words with probability at most p^k.

    It is 1 where the mechanism releases words in clear. Where padding vanishes, p / (1 - p) stands for the largest
    probability p.
    """
    if mechanism.mode == "faithful" or not set(mechanism.word_disclosures) <= _DRAWN:
        return 1.0
    largest = mechanism.largest_probability()
    if not mechanism.hides_length:
        return largest
    return min(1.0, largest / (1 - largest)) if largest < 1 else 1.0
