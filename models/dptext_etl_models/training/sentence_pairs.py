"""Read the public pairs of sentences that a paraphraser is trained on, and hold some of them out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from dptext_etl.artifacts import sha256_file
from dptext_etl.errors import InputError, seam
from dptext_etl_models.training.corpus import held_out

Pair = tuple[str, str]


@dataclass(frozen=True)
class SentencePairs:
    """Hold the pairs of a file: those to train on, and those held out."""

    train: tuple[Pair, ...]  # pairs of a text and its paraphrase
    held: tuple[Pair, ...]  # held-out pairs: the text's hash holds out two pairs in a hundred
    name: str  # name of the file
    sha256: str  # hash of its bytes

    @classmethod
    def read(cls, path: Path, columns: tuple[str, str] = ("text", "paraphrase")) -> Self:
        """Read a Parquet, CSV, TSV or NDJSON file; leave out rows with a null or an empty text."""
        import polars as pl

        readers: dict[str, Callable[[Path], pl.LazyFrame]] = {
            ".parquet": pl.scan_parquet,
            ".csv": pl.scan_csv,
            ".tsv": lambda file: pl.scan_csv(file, separator="\t"),
            ".jsonl": pl.scan_ndjson,
            ".ndjson": pl.scan_ndjson,
        }
        if not path.is_file() or path.suffix not in readers:
            kinds = ", ".join(readers)
            raise InputError(
                f"there is no file {path} that ends in {kinds}", "name a file of public pairs of sentences"
            )
        with seam("reading the pairs", InputError, "it is a table with a column of texts and one of paraphrases"):
            table = readers[path.suffix](path)
            names = table.collect_schema().names()
        missing = [column for column in columns if column not in names]
        if missing:
            raise InputError(
                f"{path.name} has no column {missing[0]!r}; it has {len(names)} others",
                "name the columns with --text and --paraphrase",
            )
        with seam("reading the pairs", InputError, "both columns hold strings"):
            one, other = (pl.col(column).cast(pl.String).str.strip_chars() for column in columns)
            rows = table.select(one.alias("one"), other.alias("other")).drop_nulls()
            pairs: list[Pair] = rows.filter((pl.col("one") != "") & (pl.col("other") != "")).collect().rows()
        kept: tuple[list[Pair], list[Pair]] = ([], [])
        for pair in pairs:
            kept[held_out(pair[0])].append(pair)
        if not kept[False]:
            raise InputError(f"{path.name} has no pairs to train on", "name a file of public pairs of sentences")
        return cls(tuple(kept[False]), tuple(kept[True]), path.name, sha256_file(path))
