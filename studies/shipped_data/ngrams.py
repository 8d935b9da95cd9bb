"""Count word sequences for the small language model that ships: `python -m studies.shipped_data.ngrams --help`.

The model measures how usual a text is, for perplexity and for attacks (`dptext_etl_eval.ngrams` reads it). No mechanism
uses it. Its words are the words of word vectors that ship, so the file holds only numbers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from dptext_etl.artifacts import sha256_file
from dptext_etl.embeddings import WordVectors
from dptext_etl_eval.ngrams import BITS, FORMAT
from studies.shipped_data.vectors import read_words

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Settings:
    """Hold the settings of a count; the file that ships was made with the defaults."""

    words: int = 20_000  # number of first words of the vocabulary; at most 65,000. Every other word counts as "other"
    pairs: int = 12  # fewest occurrences of a pair of words that is kept
    # fewest occurrences of three words that are kept; at least `pairs`, so that their first pair is kept
    triples: int = 24
    # part of an occurrence that each kept sequence gives to unseen sequences (absolute discounting)
    discount: float = 0.75


def count(texts: Iterable[str], vocabulary: Sequence[str], settings: Settings) -> pa.Table:
    """Count words, pairs and triples."""
    words_kept = list(vocabulary)[: settings.words]
    place = {word: number for number, word in enumerate(words_kept, 1)}
    other = len(words_kept) + 1
    forms, tokens = read_words(texts)
    number_of_form = np.array([*(place.get(form.lower(), other) for form in forms), 0], np.int64)
    running = np.concatenate([[0], number_of_form[tokens]])  # token -1, the end of a text, uses the last entry: 0
    kept_sequences: list[tuple[Ids, int, Ids]] = []
    for order, least in ((1, 0), (2, settings.pairs), (3, settings.triples)):
        sequences, counts = np.unique(_sequences(running, order), return_counts=True)
        kept = counts >= least
        kept_sequences.append((sequences[kept], order, counts[kept]))
    return pa.table(
        {
            "sequence": np.concatenate([item[0] for item in kept_sequences]),
            "order": np.concatenate([np.full(len(item[0]), item[1], np.uint8) for item in kept_sequences]),
            "count": np.concatenate([item[2] for item in kept_sequences]).astype(np.uint32),
        }
    )


def _sequences(running: Ids, order: int) -> Ids:
    """Return the numbers of all sequences that end in a word; one start comes before the first word of a text."""
    ends = np.arange(order - 1, len(running))
    totals = np.zeros(len(ends), np.int64)
    fine = running[ends] > 0
    for back in range(order - 1, -1, -1):
        here = running[ends - back]
        totals = (totals << BITS) | here
        if back not in (0, order - 1):
            fine &= here > 0  # a start in the middle means two texts
    return totals[fine]


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


def main(arguments: Sequence[str] | None = None) -> None:
    """Count the sequences of Parquet columns "text" and write them."""
    parser = argparse.ArgumentParser(prog="python -m studies.shipped_data.ngrams", description=main.__doc__)
    parser.add_argument("--corpus", type=Path, action="append", required=True, help="Parquet file with a column `text`")
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    parser.add_argument("--license", default="that of the corpus", help="the license terms of the corpora")
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
        "licence": given.license,
        "corpora": " ".join(f"{path.name}:{sha256_file(path)}" for path in given.corpus),
    }
    write(given.out, table, facts)
    sys.stdout.write(f"{table.num_rows:,} sequences, {given.out.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
