"""Look at a table for a first policy: how a CSV file is written, and the shape of columns. Only counts decide."""

from __future__ import annotations

import codecs
import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import polars as pl

from dptext_etl.errors import InputError, seam
from dptext_etl.policy.terms import CsvSpec
from dptext_etl.runner.source.table import READ_HINT

_SEPARATORS = ",;\t|"
_BLOCK = 1 << 20
_HEAD = 1 << 16
_LINES = 50
_CP1252 = frozenset(range(0x80, 0xA0)) - {0x81, 0x8D, 0x8F, 0x90, 0x9D}
_ROWS, _ENOUGH = 50_000, 100
"""The first rows that are looked at, and the fewest from which anything follows."""
_DATE = r"^\d{1,4}[-./]\d{1,2}[-./]\d{1,4}|^\d{1,2}:\d{2}"


def sniff(path: str) -> CsvSpec:
    """Return how a local CSV file is written: its encoding, separator, and quotes."""
    with seam("looking at the CSV file", InputError, READ_HINT):
        encoding = _encoding(Path(path))
        with Path(path).open("rb") as file:
            raw = file.read(_HEAD)
        head = codecs.getincrementaldecoder(encoding)(errors="replace").decode(raw)
        lines = head.splitlines()
        lines = lines[:_LINES] if len(lines) > _LINES else (lines[:-1] if len(raw) == _HEAD else lines)
        quote = "'" if _around(lines, "'") > _around(lines, '"') else '"'
        best = max(_SEPARATORS, key=lambda separator: _fit(lines, separator, quote))
    return CsvSpec(separator=best, encoding=encoding, quote=quote)


def _encoding(path: Path) -> Literal["utf-8", "utf-16", "cp1252", "latin-1"]:
    """Return the encoding: by the mark at the file's begin, else UTF-8 if all bytes are, else one with a byte each."""
    decoder, utf8, windows, other = codecs.getincrementaldecoder("utf-8")(), True, False, False
    with path.open("rb") as file:
        if file.read(2) in {codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE}:
            return "utf-16"
        file.seek(0)
        while block := file.read(_BLOCK):
            try:
                decoder.decode(block, final=False)
            except UnicodeDecodeError:
                utf8 = False
            found = set(block)
            windows |= bool(found & _CP1252)
            other |= bool(found & (set(range(0x80, 0xA0)) - _CP1252))
    if utf8 and not decoder.getstate()[0]:
        return "utf-8"
    return "cp1252" if windows and not other else "latin-1"


def _around(lines: list[str], quote: str) -> int:
    """Count fields that begin with a quote right after a separator, or at the begin of a line."""
    starts = [f"{separator}{quote}" for separator in _SEPARATORS]
    return sum(line.startswith(quote) + sum(map(line.count, starts)) for line in lines)


def _fit(lines: list[str], separator: str, quote: str) -> tuple[bool, float, int, int]:
    """Rate a separator: whether the header has several fields, and the share of records with as many."""
    records = list(csv.reader(lines, delimiter=separator, quotechar=quote))
    width = len(records[0]) if records else 0
    same = sum(len(record) == width for record in records) / max(1, len(records))
    return (width > 1 and same > 0.5, round(same, 1), width, -_SEPARATORS.index(separator))


@dataclass(frozen=True)
class Shape:
    """Counts of the values of a column; a value itself never leaves this module."""

    rows: int
    nulls: float  # share of the rows
    distinct: int
    length: float  # mean number of characters of a value, 0 for columns without strings
    words: float  # mean number of words, likewise
    dates: float  # share of the values that look like a date or a time
    header: bool  # whether the column's name is one of its values: then it may be a cell, and is never written

    def __str__(self) -> str:
        long = f", {self.length:.0f} characters on average" if self.length else ""
        return f"{self.distinct:,} values in {self.rows:,} rows, {self.nulls:.0%} null{long}"

    @property
    def _distinct_share(self) -> float:
        return self.distinct / max(1.0, self.rows * (1 - self.nulls))

    @property
    def like_text(self) -> bool:
        """Whether values are sentences, and mostly differ."""
        return self.rows >= _ENOUGH and self.words >= 4 and self._distinct_share >= 0.3

    @property
    def like_id(self) -> bool:
        """Whether each row has a short value of its own."""
        return self.rows >= _ENOUGH and self.nulls == 0 and self.distinct == self.rows and self.words <= 1

    @property
    def like_person(self) -> bool:
        """Whether values are short, are many, and occur several times each: ids or names of people do."""
        plain = self.words <= 4 and self.length <= 60 and self.dates < 0.1 and self.nulls <= 0.5
        return self.rows >= _ENOUGH and plain and self.distinct >= 20 and 0.005 <= self._distinct_share <= 0.9

    @property
    def like_category(self) -> bool:
        """Whether there are few values for many rows, as of labels."""
        return self.rows >= _ENOUGH and 2 <= self.distinct <= 64 and self._distinct_share <= 0.05 and self.words <= 4


def shapes_of(frame: pl.LazyFrame, schema: pl.Schema) -> dict[str, Shape]:
    """Count in the first rows of the columns that hold strings, whole numbers, or booleans."""
    plain = [name for name, dtype in schema.items() if dtype == pl.String or dtype.is_integer() or dtype == pl.Boolean]
    if not plain:
        return {}
    with seam("looking at the columns", InputError, READ_HINT):
        rows = frame.select(plain).head(_ROWS).collect(engine="streaming")
        return {name: _shape(rows[name]) for name in plain}


def _shape(column: pl.Series) -> Shape:
    values = column.drop_nulls()
    nulls = column.null_count() / max(1, column.len())
    if values.dtype != pl.String:
        return Shape(column.len(), nulls, values.n_unique(), 0.0, 0.0, 0.0, header=False)
    length = float(values.str.len_chars().mean() or 0.0)  # type: ignore[arg-type]
    words = float((values.str.count_matches(r"\s+") + 1).mean() or 0.0)  # type: ignore[arg-type]
    dates = float(values.str.contains(_DATE).mean() or 0.0)  # type: ignore[arg-type]
    header = bool((values == column.name).any())
    return Shape(column.len(), nulls, values.n_unique(), length, words, dates, header)
