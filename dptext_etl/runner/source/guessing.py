"""Guess the roles of columns from types, uniqueness and lengths. One pass counts; no value is kept."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from dptext_etl.errors import InputError, seam
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.source.roles import id_kind
from dptext_etl.runner.source.table import READ_HINT, Files, schema_of

MIN_WORDS = 4.0
"""A column of strings with fewer words on average is a label, not a text."""
_PEOPLE = ("user", "subject", "author", "customer", "patient", "person", "account", "member", "reviewer", "client")
_WORD = r"\S+"


@dataclass(frozen=True)
class Guess:
    """The guessed roles of the columns of a table.

    Attributes:
        id: Column of record ids.
        subject: Column of the person behind a record, or None.
        texts: Text columns.
        others: Columns without a guess.
        rows: Rows of the table.
        words: Average number of words per text, by text column.
        most_words: The most words of a unit (subject or record) over all text columns.
        file_format: "parquet", "csv" or "ndjson".
    """

    id: str
    subject: str | None
    texts: tuple[str, ...]
    others: tuple[str, ...]
    rows: int
    words: dict[str, float]
    most_words: int
    file_format: str


def guess(source: str) -> Guess:
    """Guess the roles of the columns of a table.

    Raises:
        InputError: The table cannot be read, or has no column of texts or of unique ids.
    """
    files = Files.find(Layout.of_source(source))
    schema = schema_of(files.scan())
    strings = [name for name, dtype in schema.items() if dtype in {pl.String, pl.Categorical, pl.Enum}]
    possible = [name for name, dtype in schema.items() if id_kind(dtype) is not None]
    frame = files.scan(tuple(name for name in possible if name in strings or schema[name].is_integer()))
    facts = _facts(frame, strings, possible)
    rows = int(facts["rows"])
    texts = tuple(name for name in strings if facts[f"words {name}"] / max(1, rows) >= MIN_WORDS)
    if not texts:
        raise InputError(
            f"no column of {source} looks like text (strings of {MIN_WORDS:g} words and more on average)",
            "write the policy by hand",
        )
    unique = [
        name
        for name in possible
        if facts[f"distinct {name}"] == rows and not facts[f"null {name}"] and name not in texts
    ]
    if not unique:
        raise InputError(
            "no column has a value of its own in every row, and every record needs an id",
            'add one: df.with_row_index("id")',
        )
    chosen = min(unique, key=lambda name: (_likeness(name), list(schema).index(name)))
    subject = _subject([name for name in possible if name not in {chosen, *texts}], facts)
    others = tuple(name for name in schema if name not in {chosen, subject, *texts})
    words = {name: facts[f"words {name}"] / max(1, rows) for name in texts}
    return Guess(chosen, subject, texts, others, rows, words, _most_words(frame, subject, texts), files.format)


def _facts(frame: pl.LazyFrame, strings: list[str], possible: list[str]) -> dict[str, int]:
    counts = [pl.len().alias("rows")]
    counts += [pl.col(name).cast(pl.String).str.count_matches(_WORD).sum().alias(f"words {name}") for name in strings]
    counts += [pl.col(name).n_unique().alias(f"distinct {name}") for name in possible]
    counts += [pl.col(name).null_count().alias(f"null {name}") for name in possible]
    with seam("reading the source", InputError, READ_HINT):
        return frame.select(counts).collect(engine="streaming").row(0, named=True)


def _most_words(frame: pl.LazyFrame, subject: str | None, texts: tuple[str, ...]) -> int:
    counted = pl.sum_horizontal(pl.col(name).cast(pl.String).str.count_matches(_WORD) for name in texts).alias("words")
    with seam("reading the source", InputError, READ_HINT):
        rows = frame.select(counted, *([] if subject is None else [subject]))
        totals = rows if subject is None else rows.group_by(subject).agg(pl.col("words").sum())
        return int(totals.select(pl.col("words").max()).collect(engine="streaming").item() or 0)


def _likeness(name: str) -> int:
    """Return how far a name is from that of an id: 0, 1 or 2."""
    plain = name.lower()
    if plain in {"id", "record_id", "uuid", "key"}:
        return 0
    return 1 if plain.endswith(("id", "uuid", "key")) else 2


def _subject(names: list[str], facts: dict[str, int]) -> str | None:
    likely = [name for name in names if any(word in name.lower() for word in _PEOPLE) and not facts[f"null {name}"]]
    return likely[0] if likely else None
