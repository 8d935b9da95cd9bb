"""Count words of public text: how rare a word is says how much it reveals (the score `ic`).

    python -m studies.shipped_data.word_counts --corpus wiki_en.parquet --corpus sgd_utterances.parquet \
        --out dptext_etl/data/english-counts.json

Each corpus has the same weight, whatever its size, so that neither articles nor talk decide which words are rare.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from dptext_etl.embeddings import WordVectors
from dptext_etl.errors import InputError
from dptext_etl_models.training.corpus import WORD

PER = 10**8
"""Shares are whole numbers of one in this number of words."""


def shares(texts: Iterable[str]) -> Counter[str]:
    """Return how many of `PER` words each word is, rounded."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(WORD.findall(text.lower().replace("\u2019", "'")))
    total = counts.total()
    return Counter({word: round(PER * count / total) for word, count in counts.items()})


def joined(corpora: Sequence[Counter[str]], words: Iterable[str]) -> dict[str, int]:
    """Return the mean share of each word over the corpora, at least 1."""
    return {word: max(1, sum(each[word] for each in corpora) // len(corpora)) for word in words}


def _texts(path: Path) -> Iterable[str]:
    for batch in pq.ParquetFile(path).iter_batches(columns=["text"]):
        yield from batch.column(0).to_pylist()


def main(arguments: Sequence[str] | None = None) -> None:
    """Count the words of `english-20k` and write their shares."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--corpus", type=Path, action="append", required=True, help="parquet with a column text")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    if given.out.exists():
        raise InputError(f"{given.out} exists", "name a new file with --out")
    counts = joined([shares(_texts(path)) for path in given.corpus], WordVectors.load().words)
    content: dict[str, Any] = {"facts": {"corpora": [path.name for path in given.corpus]}, "per": PER, "words": counts}
    given.out.write_text(json.dumps(content, separators=(",", ":"), ensure_ascii=False), encoding="utf-8")
    print(f"{given.out.stat().st_size:,} bytes, {len(counts):,} words")


if __name__ == "__main__":
    main()
