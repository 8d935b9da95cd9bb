"""Public pairs of sentences: what a paraphraser is trained on, and which of them are kept back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from dptext_etl.artifacts import sha256_file
from dptext_etl.errors import InputError, seam
from dptext_etl.training.corpus import held_out

Pair = tuple[str, str]


@dataclass(frozen=True)
class SentencePairs:
    """Pairs of a file, those to train on and those kept back.

    Attributes:
        train: Pairs of a text and its paraphrase.
        held: Pairs kept back: two texts in a hundred, by their own hash.
        name: Of the file.
        sha256: Of its bytes.
    """

    train: tuple[Pair, ...]
    held: tuple[Pair, ...]
    name: str
    sha256: str

    @classmethod
    def read(cls, path: Path, columns: tuple[str, str] = ("text", "paraphrase")) -> Self:
        """Read a Parquet, CSV, TSV or NDJSON file; rows with a null or an empty side are left out.

        Args:
            path: The file.
            columns: Which hold the texts and their paraphrases.

        Raises:
            InputError: Missing, of another kind, without these columns, or without pairs to train on.
        """
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
                f"{path.name} has no column {missing[0]!r}; it has {', '.join(names)}",
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
