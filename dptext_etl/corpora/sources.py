"""Read public texts from Parquet, CSV and text files: the raw material of a corpus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dptext_etl.errors import InputError, seam

if TYPE_CHECKING:
    import polars as pl

COLUMN = "text"
_TABLES = {".parquet": "Parquet", ".csv": "CSV"}
_PLAIN = frozenset({".txt", ".text", ""})
_HINT = "a source is a .parquet or .csv file with a column of texts, or a .txt file with one text per line"


@dataclass(frozen=True)
class Source:
    """Name a file of public texts.

    Attributes:
        path: A Parquet or CSV file, or a text file with one text per line.
        column: The column of texts; a text file has none.
        label: A column of public labels, or None.
    """

    path: Path
    column: str = COLUMN
    label: str | None = None

    def rows(self) -> Iterator[tuple[str, str | None]]:
        """Yield the texts and their labels (None without a column of labels); nulls are left out."""
        kind = self.path.suffix.lower()
        if not self.path.is_file():
            raise InputError(f"there is no file {self.path}", _HINT)
        if kind in _PLAIN:
            yield from ((text, None) for text in self._lines())
        elif kind in _TABLES:
            yield from self._table(kind)
        else:
            raise InputError(f"{self.path.name} is no source of texts: its suffix is {kind}", _HINT)

    def texts(self) -> Iterator[str]:
        """Yield the texts in the file's order; errors are those of `rows`."""
        return (text for text, _ in self.rows())

    def _lines(self) -> Iterator[str]:
        with seam(f"reading {self.path.name}", InputError, "a text file is UTF-8"):
            whole = self.path.read_text("utf-8")
        if self.label is not None:
            raise InputError(f"{self.path.name} has no column of labels", "name a .parquet or .csv file")
        yield from whole.splitlines()

    def _table(self, kind: str) -> Iterator[tuple[str, str | None]]:
        import polars as pl

        with seam(f"reading {self.path.name}", InputError, _HINT):
            frame = pl.scan_parquet(self.path) if kind == ".parquet" else pl.scan_csv(self.path)
            schema = frame.collect_schema()
        for name in (self.column, *([] if self.label is None else [self.label])):
            if name not in schema:
                msg = f"{self.path.name} has no column {name!r}, and {len(schema)} others"
                raise InputError(msg, "name it with --text")
        if schema[self.column] != pl.String:
            raise InputError(f"column {self.column!r} of {self.path.name} is {schema[self.column]}; allowed: strings")
        wanted: list[pl.Expr] = [pl.col(self.column).alias("text")]
        label = pl.lit(None, pl.String) if self.label is None else pl.col(self.label).cast(pl.String)
        with seam(f"reading {self.path.name}", InputError, _HINT):
            rows = frame.select(*wanted, label.alias("label")).collect(engine="streaming")
        for text, named in rows.iter_rows():
            if text is not None:
                yield text, named


def read(sources: Sequence[Source]) -> Iterator[str]:
    """Yield the texts of several sources, one file after the other."""
    for source in sources:
        yield from source.texts()
