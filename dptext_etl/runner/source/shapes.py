"""Measure the shape of columns for a first policy: how many values differ, how many are null, how long they are.

Only these counts leave this module, never a value.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from dptext_etl.errors import InputError, seam
from dptext_etl.runner.source.table import READ_HINT

ROWS = 50_000
"""So many first rows are looked at."""
ENOUGH = 100
"""With fewer rows, shapes say nothing."""
_DATE = r"^\d{1,4}[-./]\d{1,2}[-./]\d{1,4}|^\d{1,2}:\d{2}"


@dataclass(frozen=True)
class Shape:
    """The shape of a column.

    Attributes:
        rows: Rows that were looked at.
        nulls: Share of them that are null.
        distinct: Distinct values.
        length: Mean number of characters of a value, 0 for columns without strings.
        words: Mean number of words, likewise.
        dates: Share of the values that look like a date or a time.
        header: Whether the column's name is one of its values: then it may be a cell, and is never written.
    """

    rows: int
    nulls: float
    distinct: int
    length: float
    words: float
    dates: float
    header: bool

    def __str__(self) -> str:
        long = f", {self.length:.0f} characters on average" if self.length else ""
        return f"{self.distinct:,} values in {self.rows:,} rows, {self.nulls:.0%} null{long}"

    @property
    def share(self) -> float:
        """Share of the values that are distinct."""
        return self.distinct / max(1.0, self.rows * (1 - self.nulls))

    @property
    def like_text(self) -> bool:
        """Whether values are sentences, and mostly differ."""
        return self.rows >= ENOUGH and self.words >= 4 and self.share >= 0.3

    @property
    def like_id(self) -> bool:
        """Whether each row has a short value of its own."""
        return self.rows >= ENOUGH and self.nulls == 0 and self.distinct == self.rows and self.words <= 1

    @property
    def like_person(self) -> bool:
        """Whether values are short, are many, and occur several times each: ids or names of people do."""
        plain = self.words <= 4 and self.length <= 60 and self.dates < 0.1 and self.nulls <= 0.5
        return self.rows >= ENOUGH and plain and self.distinct >= 20 and 0.005 <= self.share <= 0.9

    @property
    def like_category(self) -> bool:
        """Whether there are few values for many rows, as of labels."""
        return self.rows >= ENOUGH and 2 <= self.distinct <= 64 and self.share <= 0.05 and self.words <= 4


def shapes_of(frame: pl.LazyFrame, schema: pl.Schema) -> dict[str, Shape]:
    """Measure the columns of a scan that hold strings, numbers or booleans, from its first rows."""
    plain = [name for name, dtype in schema.items() if dtype == pl.String or dtype.is_integer() or dtype == pl.Boolean]
    if not plain:
        return {}
    with seam("looking at the columns", InputError, READ_HINT):
        rows = frame.select(plain).head(ROWS).collect(engine="streaming")
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
