"""Guess how a file is written and the roles of its columns, and count the variants of ids of persons."""

from __future__ import annotations

import codecs
import csv
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from dptext_etl.data_types import all_plain, by_name, kind_of
from dptext_etl.errors import InputError, by_place, counted, meant, seam
from dptext_etl.keys import normalized
from dptext_etl.policy.terms import CsvSpec, Encoding
from dptext_etl.runner.forecast import EVERY_STEP
from dptext_etl.runner.layout import Layout, is_remote
from dptext_etl.runner.source.column_types import logical_types, restored
from dptext_etl.runner.source.roles import can_be_label, id_kind, why_hidden
from dptext_etl.runner.source.table import READ_HINT, Files, naming_file, schema_of

_TEXTS = frozenset(
    (
        *("abstract", "answer", "body", "comment", "comments", "complaint", "content", "description", "feedback"),
        *("letter", "message", "messages", "narrative", "note", "notes", "opinion", "post", "question", "remark"),
        *("remarks", "reply", "report", "request", "review", "reviews", "sentence", "summary", "text", "texts"),
        *("transcript", "transcription", "turn", "tweet", "utterance", "utterances"),
    )
)
"""A column of strings with such a word in its name counts as texts."""
_PEOPLE = ("user", "subject", "author", "customer", "patient", "person", "account", "member", "reviewer", "client")
_LABELS = frozenset(("category", "class", "intent", "label", "rating", "sentiment", "stars", "topic", "type"))
"""A column with few values and such a word in its name is a label before all others."""
_NEVER_LABELS = frozenset(("agent", "author", "email", "name", "owner", "user"))
_ABOUT = frozenset(
    (
        *("age", "agent", "browser", "city", "class", "country", "currency", "date", "gender", "group", "language"),
        *("level", "locale", "plan", "platform", "rating", "region", "role", "score", "segment", "since", "state"),
        *("status", "tier", "time", "timezone", "type", "zone", "count", "number"),
    )
)
"""The last word of a name that says something about a person, and not who it is: `user_timezone`."""
_IDS = frozenset(("id", "record_id", "row_id", "uuid", "key"))
_ID_ENDS = frozenset(("id", "uuid", "key", "ref", "userid", "recordid"))
_NAME = re.compile(r"[^\W\d][\w.-]{0,39}( [\w.-]{1,20}){0,2}")
"""The form of a name that is guessed and written; a longer one may be a text."""
_NULLS = frozenset(("na", "nan", "nil", "none", "null", "inf", "missing", "unknown"))
"""Words in the place of a number: such a name of a column may be a cell."""
_HEADER = "Does the file have a header line?"
_LETTERS = re.compile(r"[^\W\d_]+")
_HUMP = re.compile(r"(?<=[a-zß-ÿ])(?=[A-ZÀ-Þ])|(?<=[A-Z])(?=[A-Z][a-z])")
NO_ONE = ""
"""In the place of a subject: records stand for themselves."""
_CHOSEN, _NAMED, _SHAPED = "you named it", "by its name", "by the shape of its values; make sure of it"


@dataclass(frozen=True)
class Guess:
    id: str
    subject: str | None
    texts: tuple[str, ...]
    label: str | None  # the column of labels that someone named, or one that looks like it
    others: tuple[str, ...]  # columns without a role; by place ("column 3") where `why_hidden` says so
    csv: CsvSpec | None  # of CSV files
    other_byte: int | None  # line of a CSV file with the first byte that is not UTF-8, if an encoding was guessed
    why: Mapping[str, str]  # why a column has its role, by name
    shapes: Mapping[str, str]  # facts about the values of each column, by its name in `others`
    known_ids: bool  # whether ids look like ticket numbers or addresses, which people outside know
    spellings: Mapping[str, int]  # `persons` as they are spelled, and `alike` without case and blanks
    rows_of_persons: tuple[int, ...]  # how many rows each person has; empty without a column of persons
    rows: int  # of the whole table

    def roles(self) -> list[tuple[str, str, str]]:
        """Return role, column, and reason of every column, and which roles no column has."""
        roles = [("id", self.id, self.why[self.id])]
        why = f"{self.why[NO_ONE]}: records stand for themselves"
        if self.subject is not None:
            most, persons = max(self.rows_of_persons, default=0), counted(len(self.rows_of_persons), "person")
            why = f"{self.why[self.subject]}; {persons}, with {counted(most, 'row')} at most"
        roles.append(("person", self.subject or "none", why))
        roles += [("text", name, self.why[name]) for name in self.texts]
        if self.label is not None:
            roles.append(("label", self.label, self.why[self.label]))
        roles += [("excluded", name, self.shapes.get(name, "not a string")) for name in self.others]
        return roles


@dataclass(frozen=True)
class _Columns:
    source: str
    schema: pl.Schema
    shapes: Mapping[str, Shape]
    hidden: str | None  # why messages do not list the names
    header: bool  # whether the first line of a CSV file is surely one; other files name their columns

    def writable(self, name: str) -> bool:
        """Return whether a name may be written: it looks like one, and is not a cell of a file without a header."""
        fits = self.header and _NAME.fullmatch(name) is not None
        return fits and not (name in self.shapes and self.shapes[name].header)

    @property
    def remark(self) -> str:
        return f"{_HEADER} Names of columns are not shown: {self.hidden}." if self.hidden else _HEADER

    def listing(self, names: Iterable[str]) -> str:
        return by_place(names, self.schema, shown=self.hidden is None)

    def unique(self, without: Sequence[str] = ()) -> str:
        """List the columns that may be ids, with the share of the first rows that have a unique value."""
        most = sorted(self.shapes, key=lambda name: -self.shapes[name].unique)
        fit = [name for name in most if name not in without and self.shapes[name].words < 4]
        return ", ".join(f"{self.listing([name])} {self.shapes[name].unique:.0%}" for name in fit[:_FEW])

    def people(self, without: Sequence[str]) -> list[str]:
        """Return the columns that are named like a person; few values for many rows are a category."""
        names = [name for name in self.schema if self.writable(name) and name not in without]
        named = [name for name in names if any(word in name.lower() for word in _PEOPLE)]
        whole = [name for name in named if not _ABOUT.intersection(_parts(name)[-1:])]
        return [name for name in whole if not (name in self.shapes and "category" in self.shapes[name].kinds)]

    def labels(self, without: Sequence[str] = ()) -> list[str]:
        """Return the columns that look like labels, those with such a name first; others are strings."""
        few = [name for name in self.shapes if name not in without and self.writable(name)]
        few = [name for name in few if not _NEVER_LABELS.intersection(_parts(name))]
        named = [name for name in few if "label" in self.shapes[name].kinds and _LABELS.intersection(_parts(name))]
        strings = [name for name in few if self.schema[name] == pl.String]
        return named + [name for name in strings if "category" in self.shapes[name].kinds]

    def only(self, kind: str, without: Sequence[str]) -> str | None:
        """Return the one column of strings whose values have a shape; None if there are several, or none."""
        strings = [name for name in self.shapes if name not in without and self.schema[name] == pl.String]
        writable = [name for name in strings if self.writable(name) and not _LABELS.intersection(_parts(name))]
        candidates = [name for name in writable if kind in self.shapes[name].kinds]
        return candidates[0] if len(candidates) == 1 else None


def guess(  # noqa: PLR0917
    source: str,
    id: str | None = None,  # noqa: A002
    subject: str | None = None,
    texts: Sequence[str] = (),
    encoding: Encoding | None = None,
    label: str | None = None,
) -> Guess:
    """Guess the roles of the columns of a table; `subject=NO_ONE` says that no column names a person.

    A column that you name as `label` gets no other role.
    """
    files, other_byte = Files.find(Layout(source.removeprefix("file://"), "")), None
    if files.kind.dialect and not is_remote(source):
        csv, other_byte = sniff(files.paths[0], encoding)
        files = replace(files, csv=csv)
    with naming_file(lambda: files):
        types = logical_types(files)
        scanned = restored(files.scan(), types)
        rows = all_plain(scanned, schema_of(scanned))
        schema = schema_of(rows)
        with seam("looking at the rows", InputError, READ_HINT):
            if rows.head(1).collect(engine="streaming").is_empty():
                raise InputError(f"{source} has no rows", "roles of columns follow from values: give some rows")
        hidden, shapes = why_hidden(rows), shapes_of(rows, id)
        with seam("counting the rows", InputError, READ_HINT):
            total = int(rows.select(pl.len()).collect(engine="streaming").item())
    header = not files.kind.dialect or hidden is None
    for name, dtype in schema.items():  # some names cannot be values: "id", or a word above numbers
        number = dtype.is_numeric() and _NAME.fullmatch(name) is not None and name.lower() not in _NULLS
        header = header or number or name.lower() in _IDS - {"key"}
    columns = _Columns(source, schema, shapes, hidden, header)
    _require(columns, [name for name in (id, subject) if name], texts, label)
    why = dict.fromkeys([*filter(None, (id, subject, label)), *texts], _CHOSEN)
    labels = [label] if label else []
    people = columns.people(labels)
    named = sorted((rank, place, name) for place, name in enumerate(schema) if (rank := _rank(columns, name)) < 2)
    guessed = [name for _, _, name in named if name not in people] or [name for _, _, name in named]
    ids = [name for name in guessed if name not in {subject, label}] if id is None else [id]
    if not ids and (shaped := columns.only("id", [*people, *texts, *labels])) is not None:
        ids, why[shaped] = [shaped], _SHAPED
    texts = tuple(texts) or _texts(columns, [*ids, *labels], [*people, *filter(None, [subject])], why)
    ids = [name for name in ids if name not in texts]
    if not ids:
        raise InputError(
            f"none of the {len(schema)} columns of {source} is named like an id, and every record needs one; share "
            f"of rows with a unique value: {columns.unique(texts) or 'no column has any'}",
            f"{columns.remark} Name one with `dptext init --id`. If there is none, use a key of the system that the "
            "rows come from, or a hash of columns that never change: numbers of rows shift when a table is exported "
            "again",
        )
    person = _person(columns, subject, people, [ids[0], *texts, *labels], why)
    taken = [name for name in (ids[0], person, *texts) if name is not None]
    label = next(iter(labels or columns.labels(taken)), None)
    for name in taken:
        why.setdefault(name, _NAMED)
    why[NO_ONE] = "you said so" if subject == NO_ONE else "no column looks like one"
    if (shape := shapes.get(ids[0])) is not None and shape.unique < 1:
        if shape.nulls == 1:
            raise InputError(f"all ids are null: column {ids[0]}", f"name another with --id: {columns.unique(ids)}")
        share = f"only {math.floor(100 * shape.unique)}% of the rows have a unique value"
        why[ids[0]] += f"; {share}, and a run refuses other ids; others: {columns.unique([ids[0], *texts])}"
    if label is not None and label in shapes:
        why[label] = f"{why.get(label, 'by its name and shape')}; {shapes[label]}"
    rest = [name for name in schema if name not in {*taken, label}]
    others = tuple(columns.listing([name]) for name in rest)
    figures = {columns.listing([name]): str(shapes[name]) for name in rest if name in shapes}
    facts = (ids[0], person, texts, label, others, files.csv if files.kind.dialect else None, other_byte, why, figures)
    with naming_file(lambda: files):
        return Guess(*facts, shape is not None and "known_id" in shape.kinds, *_persons(rows, person), total)


def _persons(rows: pl.LazyFrame, name: str | None) -> tuple[dict[str, int], tuple[int, ...]]:
    """Count the variants of ids of persons as `Spelled` does, and the rows of each id without case and blanks."""
    if name is None:
        return {}, ()
    with seam("counting the rows of persons", InputError, READ_HINT):
        person = by_name(name)
        counts = rows.filter(person.is_not_null()).group_by(person).len("rows").collect(engine="streaming")
    spellings = {}
    if counts.schema[name] == pl.String and counts.height:
        spelled = pl.Series(name, normalized(counts[name].to_arrow(), EVERY_STEP), dtype=pl.String)
        alike = counts.with_columns(spelled).group_by(person).agg(pl.sum("rows"))
        spellings, counts = {"persons": counts.height, "alike": alike.height}, alike
    return spellings, tuple(counts["rows"].to_list())


def _person(
    columns: _Columns, subject: str | None, people: list[str], taken: list[str], why: dict[str, str]
) -> str | None:
    """Return the column of persons: the one that you name, the first by its name, or the only one by its shape."""
    if subject is not None:
        return subject or None
    likely = [name for name in people if name not in taken and id_kind(columns.schema[name]) is not None]
    if not likely and (shaped := columns.only("person", taken)) is not None:
        likely, why[shaped] = [shaped], _SHAPED
    return next(iter(likely), None)


def _require(columns: _Columns, keys: Sequence[str], texts: Sequence[str], label: str | None) -> None:
    """Refuse names that are not columns of the table, or columns that cannot have that role."""
    schema, named = columns.schema, [*keys, *texts, *filter(None, [label])]
    for name in named:
        if name not in schema:
            hint = f"{_HEADER} {meant([name], schema.names(), columns.hidden)}"
            raise InputError(f"{columns.source} has no column {name}, and {len(schema)} others", hint)
    if len({*named}) < len(named):
        raise InputError("a column has one role: id, subject, text, or label", "name another column for one of them")
    if label is not None and not can_be_label(schema[label]):
        labels = "labels are strings, whole numbers, or booleans"
        raise InputError(f"{labels}, and {label} is a column of {kind_of(schema[label])}", "cast it, or name another")
    for name in keys:
        if id_kind(schema[name]) is None:
            msg = f"{name} is a column of {kind_of(schema[name])}"
            raise InputError(msg, "ids are strings, whole numbers, dates and the like")
    for name in texts:
        if schema[name] != pl.String:
            raise InputError(f"{name} is not a column of strings, but of {kind_of(schema[name])}", "texts are strings")


def _texts(columns: _Columns, ids: list[str], people: list[str], why: dict[str, str]) -> tuple[str, ...]:
    """Return the columns of strings that are named like texts; a single one needs no such name."""
    schema = columns.schema
    strings = [name for name, dtype in schema.items() if dtype == pl.String and name not in ids]
    texts = tuple(name for name in strings if columns.writable(name) and _TEXTS.intersection(_parts(name)))
    nameless = tuple(name for name in strings if name not in people and columns.writable(name))
    if texts:
        return texts
    shaped = nameless[0] if len(nameless) == 1 else columns.only("text", [*ids, *people])
    if shaped is not None:
        why[shaped] = _SHAPED if len(nameless) > 1 else "the only column of strings"
        return (shaped,)
    there = f"columns of strings are {columns.listing(strings)}" if strings else "it has no column of strings"
    raise InputError(
        f"no column of {columns.source} is named like a text; {there}",
        f"{columns.remark} Name it with `dptext init --text`, or rename it to `text`",
    )


def _rank(columns: _Columns, name: str) -> int:
    """Return how far a column is from an id by its name and type: 0, 1, or 2 for none."""
    dtype = columns.schema[name]
    if not columns.writable(name) or id_kind(dtype) is None or not (dtype.is_integer() or dtype == pl.String):
        return 2
    return 0 if name.lower() in _IDS else 1 if _ID_ENDS.intersection(_parts(name)[-1:]) else 2


def look_of(name: str, shape: Shape | None) -> str | None:
    """Say what makes a column look like free text, or like names or ids of people; None if nothing does."""
    parts = _parts(name)
    if not _ABOUT.intersection(parts[-1:]):
        if _TEXTS.intersection(parts):
            return "is named like free text"
        if "name" in parts or any(word in name.lower() for word in _PEOPLE):
            return "is named like names or ids of people"
    return "looks like free text" if shape is not None and "text" in shape.kinds else None


def _parts(name: str) -> list[str]:
    """Return the words of a column's name in lower case.

    >>> _parts("reviewText"), _parts("user_ID")
    (['review', 'text'], ['user', 'id'])
    """
    return [part.lower() for word in _LETTERS.findall(name) for part in _HUMP.split(word)]


_SEPARATORS = ",;\t|"
_BLOCK = 1 << 20
_HEAD = 1 << 16
_LINES = 50
_CONTROLS = frozenset((0x81, 0x8D, 0x8F, 0x90, 0x9D))
"""Bytes that are not a character of cp1252."""
_CP1252 = frozenset(range(0x80, 0xA0)) - _CONTROLS
_ROWS, _ENOUGH = 50_000, 100
"""The first rows that are looked at, and the fewest from which anything follows."""
_WELL_KNOWN = r"^\p{L}{1,8}[-_/# ]\d{2,}$|^\p{L}{2,8}\d{3,}$|^\S+@\S+\.\S+$"
"""Matches letters before a number ("T-00123"), and e-mail addresses."""
_NEARLY = 0.9
_MOST_LABELS = 64
_FEW = 5
"""Columns that a message proposes, at most."""
_DATE = r"^\d{1,4}[-./]\d{1,2}[-./]\d{1,4}|^\d{1,2}:\d{2}"


def sniff(path: str, encoding: Encoding | None = None) -> tuple[CsvSpec, int | None]:
    """Return how a local CSV file is written: its encoding, separator, and quotes.

    Also return the line of the first byte that is not UTF-8, if the encoding is a guess that you must check.
    """
    with seam("looking at the CSV file", InputError, READ_HINT):
        codec, other_byte = _encoding(Path(path)) if encoding is None else (encoding, None)
        with Path(path).open("rb") as file:
            raw = file.read(_HEAD)
        head = codecs.getincrementaldecoder(codec)(errors="replace").decode(raw).removeprefix("\ufeff")
        lines = head.splitlines()
        lines = lines[:_LINES] if len(lines) > _LINES else (lines[:-1] if len(raw) == _HEAD else lines)
        quote = "'" if _around(lines, "'") > _around(lines, '"') else '"'
        best = max(_SEPARATORS, key=lambda separator: _fit(lines, separator, quote))
    return CsvSpec(separator=best, encoding=codec, quote=quote), other_byte


def _encoding(path: Path) -> tuple[Encoding, int | None]:
    """Return the encoding: by the mark at the file's begin, else UTF-8 if all bytes are, else one with a byte each."""
    decoder, line, other_byte, right, wrong = codecs.getincrementaldecoder("utf-8")("replace"), 1, None, 0, 0
    codes = set[int]()
    with path.open("rb") as file:
        if (mark := file.read(3))[:2] in {codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE}:
            return "utf-16", None
        file.seek(0)
        while True:
            block = file.read(_BLOCK)
            text = decoder.decode(block, final=not block)
            before, other, _ = text.partition("\ufffd")
            if other_byte is None and other:
                other_byte = line + before.count("\n")
            line += text.count("\n")
            others = text.count("\ufffd")
            wrong += others
            right += len(text) - len(text.encode("ascii", "ignore")) - others
            codes |= set(block)
            if not block:
                break
    if other_byte is None:
        return "utf-8", None
    if mark == codecs.BOM_UTF8 or right >= wrong:
        msg = f"the file {path} is mostly in UTF-8, and line {other_byte} holds the first byte that is not"
        hint = "correct the file, or name an encoding that all of it has: `dptext init FILE --encoding cp1252`"
        raise InputError(msg, hint, {"line": other_byte})
    return ("cp1252" if codes & _CP1252 and not codes & _CONTROLS else "latin-1"), other_byte


def _around(lines: list[str], quote: str) -> int:
    """Count fields that begin with a quote right after a separator, or at the begin of a line."""
    starts = [f"{separator}{quote}" for separator in _SEPARATORS]
    return sum(line.startswith(quote) + sum(map(line.count, starts)) for line in lines)


def _fit(lines: list[str], separator: str, quote: str) -> tuple[bool, bool, float, int, int]:
    """Rate a separator: whether the header has several fields, and the share of records with as many."""
    records = list(csv.reader(lines, delimiter=separator, quotechar=quote))
    width = len(records[0]) if records else 0
    same = sum(len(record) == width for record in records) / max(1, len(records))
    return (width > 1 and same > 0.5, width > 1, round(same, 1), width, -_SEPARATORS.index(separator))


@dataclass(frozen=True)
class Shape:
    """Counts of the values of a column; a value itself never leaves this module."""

    rows: int
    nulls: float  # share of the rows
    distinct: int
    words: float  # mean number of words of a value, 0 for columns without strings
    header: bool  # whether the column's name is one of its values: then it may be a cell, and is never written
    kinds: frozenset[str]  # of values, by their look: "text", "id", "known_id", "person", "label", "category"

    def __str__(self) -> str:
        return f"{self.distinct:,} values in {self.rows:,} rows, {self.nulls:.0%} null"

    @property
    def unique(self) -> float:
        """Return the share of distinct values that are not null in the rows."""
        return self.distinct / max(1, self.rows)


def shapes_of(frame: pl.LazyFrame, id: str | None = None) -> dict[str, Shape]:  # noqa: A002
    """Count in the first rows of the columns that hold strings, whole numbers, or booleans, and of the ids."""
    schema = schema_of(frame)
    plain = [name for name, dtype in schema.items() if name == id or can_be_label(dtype)]
    if not plain:
        return {}
    with seam("looking at the columns", InputError, READ_HINT):
        rows = frame.select(map(by_name, plain)).head(_ROWS).collect(engine="streaming")
        return {name: _shape(rows[name].alias("values"), name) for name in plain}


def _shape(column: pl.Series, name: str) -> Shape:
    values, length, words, dates, well_known, header = column.drop_nulls(), 0.0, 0.0, 0.0, 0.0, False
    rows, nulls, distinct = column.len(), column.null_count() / max(1, column.len()), values.n_unique()
    if values.dtype == pl.String:
        cell = pl.col("values").str
        counts = cell.len_chars(), cell.count_matches(r"\s+") + 1, cell.contains(_DATE), cell.contains(_WELL_KNOWN)
        means = (count.mean().fill_null(0.0).alias(str(place)) for place, count in enumerate(counts))
        length, words, dates, well_known = values.to_frame().select(means).row(0)
        header = bool((values == name).any())
    enough, differing = rows >= _ENOUGH, distinct / max(1.0, rows * (1 - nulls))
    kinds = {
        "text": enough and words >= 4 and differing >= 0.3,  # sentences
        "id": enough and nulls == 0 and distinct == rows and words <= 1,
        "known_id": round(rows * (1 - nulls)) >= _ENOUGH and well_known > _NEARLY,  # known to people outside
        # ids or names of people are short, are many, and occur several times each
        "person": (enough and words <= 4 and length <= 60 and dates < 0.1 and nulls <= 0.5)
        and (distinct >= 20 and 0.005 <= differing <= 0.9),
        "label": distinct >= 2 and differing <= 0.2 and words <= 4,  # in a column that has such a name
        "category": enough and 2 <= distinct <= _MOST_LABELS and differing <= 0.05 and words <= 4,
    }
    return Shape(rows, nulls, distinct, words, header, frozenset(kind for kind, fits in kinds.items() if fits))
