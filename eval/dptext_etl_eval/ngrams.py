"""Count and score words by a small language model over public text: interpolated counts of one, two and three words.

`python -m dptext_etl_eval.ngrams --help` counts. The probability of a word after two others is what is left of its
count after absolute discounting, plus what the discounts give to the model of the order below (Ney, Essen and Kneser
1994, section 2). Sequences that were pruned from the file give their whole mass to the order below, so all
probabilities of a context sum to 1. Perplexity and attacks use it; no mechanism does. Its words are those of word
vectors that ship, so the file holds numbers alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from dptext_etl.artifacts import sha256_file
from dptext_etl.embeddings import WordVectors
from dptext_etl.embeddings.vectors import DATA
from dptext_etl.errors import ArtifactError, seam

FORMAT = "dptext_ngrams/1"
Ids = npt.NDArray[np.int64]
BITS = 16
"""Bits of a word's number in the number of a sequence."""


@dataclass(frozen=True)
class Settings:
    """Hold the settings of a count; the file that ships was made with the defaults."""

    words: int = 20_000  # number of first words of the vocabulary; at most 65,000. Every other word counts as "other"
    pairs: int = 12  # fewest occurrences of a pair of words that is kept
    # fewest occurrences of three words that are kept; at least `pairs`, so that their first pair is kept
    triples: int = 24
    # part of an occurrence that each kept sequence gives to what was not seen (absolute discounting)
    discount: float = 0.75


def count(texts: Iterable[str], vocabulary: Sequence[str], settings: Settings) -> pa.Table:
    """Count words, pairs and triples."""
    from dptext_etl_models.training.words.vectors import (
        read_words,  # needs scipy, and anyone who reads the file does not
    )

    known = list(vocabulary)[: settings.words]
    place = {word: number for number, word in enumerate(known, 1)}
    other = len(known) + 1
    forms, tokens = read_words(texts)
    number_of_form = np.array([*(place.get(form.lower(), other) for form in forms), 0], np.int64)
    running = np.concatenate([[0], number_of_form[tokens]])  # token -1, the end of a text, takes the last entry: 0
    held: list[tuple[Ids, int, Ids]] = []
    for order, least in ((1, 0), (2, settings.pairs), (3, settings.triples)):
        sequences, counts = np.unique(_sequences(running, order), return_counts=True)
        kept = counts >= least
        held.append((sequences[kept], order, counts[kept]))
    return pa.table(
        {
            "sequence": np.concatenate([item[0] for item in held]),
            "order": np.concatenate([np.full(len(item[0]), item[1], np.uint8) for item in held]),
            "count": np.concatenate([item[2] for item in held]).astype(np.uint32),
        }
    )


def _sequences(running: Ids, order: int) -> Ids:
    """Return the numbers of all sequences that end in a word; before the first word of a text stands one start."""
    ends = np.arange(order - 1, len(running))
    found = np.zeros(len(ends), np.int64)
    fine = running[ends] > 0
    for back in range(order - 1, -1, -1):
        here = running[ends - back]
        found = (found << BITS) | here
        if back not in (0, order - 1):
            fine &= here > 0  # a start in the middle means two texts
    return found[fine]


def write(path: Path, table: pa.Table, facts: dict[str, Any]) -> None:
    """Write counts and facts about them."""
    metadata = {name: str(value) for name, value in {"format": FORMAT, **facts}.items()}
    pq.write_table(
        table.replace_schema_metadata(metadata),
        path,
        compression="zstd",
        compression_level=19,
        use_dictionary=["order", "count"],
        column_encoding={"sequence": "DELTA_BINARY_PACKED"},
    )


NAME = "english-3gram"
OTHERS = 1e6
"""Forms of words outside the vocabulary, all equally likely: a convention, without which unknown words look likely."""
START = 0

Reals = npt.NDArray[np.float64]


class _Context(NamedTuple):
    """Words that stand before another."""

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
        self._total_one[START] = self._seen_one[START]  # texts are not counted: what is kept is all there is
        place = np.searchsorted(sequences[1], sequences[2] >> BITS)
        self._seen_two = np.bincount(place, counts[2], len(sequences[1]))
        self._kinds_two = np.bincount(place, minlength=len(sequences[1]))

    @classmethod
    @lru_cache(maxsize=2)
    def load(cls, source: str | Path = NAME) -> Self:
        """Read "english-3gram" or a file of `python -m dptext_etl_eval.ngrams`."""
        path = DATA / f"{NAME}.parquet" if source == NAME else Path(source)
        with seam(
            "reading counts of words", ArtifactError, f'give "{NAME}" or a file of `python -m dptext_etl_eval.ngrams`'
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
        one = _Context(self._total_one[second], self._seen_one[second], self._kinds_one[second])
        place, known = self._found(1, context)
        two = _Context(
            *(np.where(known, part[place], 0) for part in (self._counts[1], self._seen_two, self._kinds_two))
        )
        below = self._interpolated(self._counted(1, pair), one, self.unigrams[third])
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
        known = self._sequences[order]
        place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        return place, known[place] == wanted

    def _counted(self, order: int, wanted: Ids) -> Ids:
        place, known = self._found(order, wanted)
        counted: Ids = np.where(known, self._counts[order][place], 0)
        return counted


def main(arguments: Sequence[str] | None = None) -> None:
    """Count the sequences of Parquet columns "text" and write them."""
    parser = argparse.ArgumentParser(prog="python -m dptext_etl_eval.ngrams", description=main.__doc__)
    parser.add_argument("--corpus", type=Path, action="append", required=True, help="Parquet file with a column `text`")
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    parser.add_argument("--licence", default="that of the corpus", help="what the corpora's licenses ask")
    parser.add_argument("--pairs", type=int, default=Settings.pairs)
    parser.add_argument("--triples", type=int, default=Settings.triples)
    given = parser.parse_args(arguments)
    settings = Settings(pairs=given.pairs, triples=given.triples)
    vectors = WordVectors.load()
    texts = (
        text
        for path in given.corpus
        for batch in pq.ParquetFile(path).iter_batches(columns=["text"])
        for text in batch["text"].to_pylist()
    )
    table = count(texts, vectors.words, settings)
    facts = {
        "vocabulary": vectors.artifact.sha256,
        "words": settings.words,
        "discount": repr(settings.discount),
        "licence": given.licence,
        "corpora": " ".join(f"{path.name}:{sha256_file(path)}" for path in given.corpus),
    }
    write(given.out, table, facts)
    sys.stdout.write(f"{table.num_rows:,} sequences, {given.out.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
