"""Guess the roles of columns from their names and types alone: no cell is read, and no parameter follows from one.

A role that someone names is not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from dptext_etl.errors import InputError, by_place
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.source.roles import id_kind
from dptext_etl.runner.source.table import Files, schema_of

_TEXTS = frozenset(
    (
        *("abstract", "answer", "body", "comment", "comments", "complaint", "content", "description", "feedback"),
        *("letter", "message", "messages", "narrative", "note", "notes", "opinion", "post", "question", "remark"),
        *("remarks", "reply", "report", "request", "review", "reviews", "sentence", "summary", "text", "texts"),
        *("transcript", "transcription", "turn", "tweet", "utterance", "utterances"),
    )
)
"""A column of strings with such a word in its name is taken for texts."""
_PEOPLE = ("user", "subject", "author", "customer", "patient", "person", "account", "member", "reviewer", "client")
_IDS = frozenset(("id", "record_id", "row_id", "uuid", "key"))
_ID_ENDS = frozenset(("id", "uuid", "key", "ref", "userid", "recordid"))
_NAME = re.compile(r"[^\W\d][\w.-]{0,39}( [\w.-]{1,20}){0,2}")
"""What a name looks like that is guessed and written; a longer one may be a text."""
_NUMBER = re.compile(r"[-+]?[\d.,:/-]*\d[\d.,:/-]*")
_HEADER = "Does the file have a header line?"
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


@dataclass(frozen=True)
class Guess:
    """The guessed roles of the columns of a table.

    Attributes:
        id: Column of record ids.
        subject: Column of the person behind a record, or None.
        texts: Text columns.
        others: Columns without a guess, by place ("column 3"), because their names may be texts.
        file_format: "parquet", "csv" or "ndjson".
    """

    id: str
    subject: str | None
    texts: tuple[str, ...]
    others: tuple[str, ...]
    file_format: str


def guess(source: str, id: str | None = None, subject: str | None = None, texts: Sequence[str] = ()) -> Guess:  # noqa: A002
    """Guess the roles of the columns of a table."""
    files = Files.find(Layout.of_source(source))
    schema = schema_of(files.scan())
    _require(source, schema, [name for name in (id, subject) if name is not None], texts)
    people = [name for name in schema if _NAME.fullmatch(name) and any(word in name.lower() for word in _PEOPLE)]
    named = sorted((rank, place, name) for place, name in enumerate(schema) if (rank := _rank(name, schema[name])) < 2)
    cells = [name for name in schema if _NUMBER.fullmatch(name.strip())] if files.format == "csv" else []
    if cells and not named and not any(_TEXTS.intersection(_parts(name)) for name in schema):
        msg = f"the first line of {source} holds a number ({by_place(cells, schema)}), so it is a record and no header"
        raise InputError(msg, "write a first line with the names of the columns")
    guessed = [name for _, _, name in named if name not in people] or [name for _, _, name in named]
    ids = [name for name in guessed if name != subject] if id is None else [id]
    texts = tuple(texts) or _texts(source, schema, ids, [*people, *([] if subject is None else [subject])])
    ids = [name for name in ids if name not in texts]
    if not ids:
        raise InputError(
            f"none of the {len(schema)} columns of {source} is named like an id, and every record needs one",
            f"{_HEADER} Name one with `dptext init --id`. If there is none, take a key of the system that the rows come "
            "from, or a hash of columns that never change: numbers of rows shift when a table is exported again",
        )
    likely = [name for name in people if name not in {ids[0], *texts} and id_kind(schema[name]) is not None]
    person = subject or next(iter(likely), None)
    named_so = {ids[0], person, *texts}
    others = tuple(f"column {place}" for place, name in enumerate(schema, start=1) if name not in named_so)
    return Guess(ids[0], person, texts, others, files.format)


def _require(source: str, schema: pl.Schema, keys: Sequence[str], texts: Sequence[str]) -> None:
    """Refuse names that are no columns of the table, or columns that cannot have that role."""
    for name in (*keys, *texts):
        if name not in schema:
            raise InputError(f"{source} has no column {name}, and {len(schema)} others", _HEADER)
    if len({*keys, *texts}) < len([*keys, *texts]):
        raise InputError("a column has one role: id, subject or text", "name another column for one of them")
    for name in keys:
        if id_kind(schema[name]) is None:
            raise InputError(
                f"{name} is a column of {schema[name]}", "ids are strings, whole numbers, dates and the like"
            )
    for name in texts:
        if schema[name] != pl.String:
            raise InputError(f"{name} is no column of strings, but of {schema[name]}", "texts are strings")


def _texts(source: str, schema: pl.Schema, ids: list[str], people: list[str]) -> tuple[str, ...]:
    """Return the columns of strings that are named like texts; a single column of strings needs no such name."""
    strings = [name for name, dtype in schema.items() if dtype == pl.String and name not in ids]
    texts = tuple(name for name in strings if _NAME.fullmatch(name) and _TEXTS.intersection(_parts(name)))
    nameless = tuple(name for name in strings if name not in people and _NAME.fullmatch(name))
    if not texts and len(nameless) == 1:
        return nameless
    if not texts:
        there = f"columns of strings are {by_place(strings, schema)}" if strings else "it has no column of strings"
        raise InputError(
            f"no column of {source} is named like a text; {there}",
            f"{_HEADER} Name it with `dptext init --text`, or rename it to `text`",
        )
    return texts


def _rank(name: str, dtype: pl.DataType) -> int:
    """Return how far a column is from an id by its name and type: 0, 1, or 2 for none."""
    plain = name.lower()
    if not _NAME.fullmatch(name):
        return 2
    if id_kind(dtype) is None or (not dtype.is_integer() and dtype != pl.String):
        return 2
    return 0 if plain in _IDS else 1 if _ID_ENDS.intersection(_parts(name)[-1:]) else 2


def _parts(name: str) -> list[str]:
    """Return the words of a column's name in lower case.

    >>> _parts("reviewText"), _parts("user_ID")
    (['review', 'text'], ['user', 'id'])
    """
    return [part.lower() for part in _PARTS.findall(name)]
