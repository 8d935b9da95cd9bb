"""Score words by a small language model over public text: interpolated counts of one, two and three words.

The probability of a word after two others is the rest of its count after absolute discounting, plus the share that
discounts give to the model of the order below (Ney, Essen and Kneser 1994, section 2). Sequences that were pruned from
the file give their whole mass to the order below, so all probabilities of a context sum to 1. Perplexity and attacks
use it; no mechanism does. `studies/shipped_data/ngrams.py` writes the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from dptext_etl.artifacts import sha256_file
from dptext_etl.embeddings import WordVectors
from dptext_etl.embeddings.vectors import DATA
from dptext_etl.errors import ArtifactError, seam

FORMAT = "dptext_ngrams/1"
Ids = npt.NDArray[np.int64]
BITS = 16
"""Bits of a word's number in the number of a sequence."""


NAME = "english-3gram"
OTHERS = 1e6
"""Forms of words outside the vocabulary, all equally likely: a convention, without which unknown words look likely."""
START = 0

Reals = npt.NDArray[np.float64]


class _Context(NamedTuple):
    """Words before another word."""

    total: npt.NDArray[Any]  # their occurrences
    seen: npt.NDArray[Any]  # occurrences of all kept sequences that begin with them
    kinds: npt.NDArray[Any]  # number of these sequences


class Ngrams:
    """Hold a trigram model."""

    def __init__(
        self, words: Sequence[str], sequences: Sequence[Ids], counts: Sequence[Ids], discount: float, name: str
    ) -> None:
        self.name, self.discount = name, discount
        self.place = {word: number for number, word in enumerate(words, 1)}
        self.other = len(words) + 1
        self._sequences, self._counts = sequences, counts
        size = self.other + 1
        single = np.zeros(size)
        single[sequences[0]] = counts[0]
        self.unigrams: Reals = (single + 1e-3) / (single + 1e-3)[1:].sum()
        self.unigrams[START] = 0.0
        self._seen_one = np.bincount(sequences[1] >> BITS, counts[1], size)  # kept pairs only, by their first word
        self._kinds_one = np.bincount(sequences[1] >> BITS, minlength=size)
        self._total_one = np.where(single > 0, single, 0.0)
        self._total_one[START] = self._seen_one[START]  # texts are not counted: the rest is complete
        place = np.searchsorted(sequences[1], sequences[2] >> BITS)
        self._seen_two = np.bincount(place, counts[2], len(sequences[1]))
        self._kinds_two = np.bincount(place, minlength=len(sequences[1]))

    @classmethod
    @lru_cache(maxsize=2)
    def load(cls, source: str | Path = NAME) -> Self:
        """Read "english-3gram" or a file of `studies/shipped_data/ngrams.py`."""
        path = DATA / f"{NAME}.parquet" if source == NAME else Path(source)
        with seam(
            "reading counts of words", ArtifactError, f'give "{NAME}" or a file of `studies/shipped_data/ngrams.py`'
        ):
            table = pq.read_table(path)
            facts = {name.decode(): value.decode() for name, value in (table.schema.metadata or {}).items()}
            order, sequence, count = (table[name].to_numpy() for name in ("order", "sequence", "count"))
        vectors = WordVectors.load()
        if facts.get("format") != FORMAT or facts.get("vocabulary") != vectors.artifact.sha256:
            raise ArtifactError("these counts are of another format or vocabulary", "count the words again")
        parts = [order == number for number in (1, 2, 3)]
        return cls(
            vectors.words[: int(facts["words"])],
            [sequence[part] for part in parts],
            [count[part].astype(np.int64) for part in parts],
            float(facts["discount"]),
            NAME if source == NAME else f"{path.stem} ({sha256_file(path)[:12]})",
        )

    def numbers(self, words: Iterable[str]) -> list[int]:
        """Return the numbers of words in lower case."""
        return [self.place.get(word, self.other) for word in words]

    def chances(self, first: Ids, second: Ids, third: Ids) -> Reals:
        """Return the probability of the third word after the first two, elementwise."""
        pair, context = (second << BITS) | third, (first << BITS) | second
        unigrams = _Context(self._total_one[second], self._seen_one[second], self._kinds_one[second])
        place, is_known = self._found(1, context)
        two = _Context(
            *(np.where(is_known, part[place], 0) for part in (self._counts[1], self._seen_two, self._kinds_two))
        )
        below = self._interpolated(self._counted(1, pair), unigrams, self.unigrams[third])
        return self._interpolated(self._counted(2, (context << BITS) | third), two, below)

    def _interpolated(self, count: Ids, context: _Context, below: Reals) -> Reals:
        """Return discounted shares plus the mass that they leave, spread as the order below says."""
        whole = np.maximum(np.maximum(context.total, context.seen), 1e-9)
        left = np.where(context.seen > 0, (whole - context.seen + self.discount * context.kinds) / whole, 1.0)
        shares: Reals = np.maximum(count - self.discount, 0) * (count > 0) / whole
        return shares + left * below

    def surprise(self, words: Sequence[str]) -> Reals:
        """Return minus the natural logarithm of the probability of every word of a text, shape (words,)."""
        third = np.array(self.numbers(words), np.int64)
        before = np.concatenate([[START, START], third])
        chances = self.chances(before[:-2], before[1:-1], third)
        return -np.log(np.where(third == self.other, chances / OTHERS, chances))

    def _found(self, order: int, wanted: Ids) -> tuple[Ids, npt.NDArray[np.bool_]]:
        sequences = self._sequences[order]
        place = np.minimum(np.searchsorted(sequences, wanted), len(sequences) - 1)
        return place, sequences[place] == wanted

    def _counted(self, order: int, wanted: Ids) -> Ids:
        place, is_known = self._found(order, wanted)
        counted: Ids = np.where(is_known, self._counts[order][place], 0)
        return counted
