"""Read the named columns of a raw table lazily: Parquet, CSV or NDJSON, local or in an object store."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import polars as pl

from dptext_etl.errors import InputError, by_place, seam
from dptext_etl.policy.terms import PLAIN_CSV, CsvSpec
from dptext_etl.runner.layout import FORMATS, Layout, format_of, is_remote
from dptext_etl.runner.source import csv_files, table_formats

INFERRED_ROWS = 10_000
"""The rows from which the column types of an untyped file are inferred."""

READ_HINT = (
    "is the file whole, of the format that its suffix says (of CSV files also: as [csv] says), readable, "
    "and not being written?"
)


@dataclass(frozen=True)
class Files:
    """The files of a table, in the order of their rows.

    Attributes:
        paths: Local files in sorted order, or one object-store URL.
        format: "parquet", "csv" or "ndjson"; "delta" or "iceberg" for a table with a log of its own.
        storage: Options for object stores, resolved.
        version: The version of such a table that is read.
        csv: How CSV files are written.
    """

    paths: tuple[str, ...]
    format: str
    storage: dict[str, Any] = field(default_factory=dict, repr=False)
    version: str | None = None
    csv: CsvSpec = PLAIN_CSV

    @property
    def origin(self) -> dict[str, str] | None:
        """Which version of which kind of table is read; None for plain files."""
        return None if self.version is None else {"format": self.format, "version": self.version}

    @classmethod
    def find(cls, layout: Layout) -> Files:
        """Find the files of the source of a run."""
        found = cls.at(layout.source, layout.storage_options, layout.csv)
        if found.format != "csv" and layout.csv != PLAIN_CSV:
            msg = f"the policy has an entry csv, and the source holds {found.format} files"
            raise InputError(msg, "remove [csv], or name CSV files as the source", {"entry": "csv"})
        return found

    @classmethod
    def at(cls, source: str, storage: dict[str, Any] | None = None, csv: CsvSpec = PLAIN_CSV) -> Files:
        """Find the files that a path, folder, glob or URL names (see `find`)."""
        kind = table_formats.kind_of(source, storage or {})
        if kind is not None:
            return cls((source,), kind, storage or {}, table_formats.version_of(source, kind, storage or {}))
        if is_remote(source):
            paths, formats = [source], {format_of(source)}
            table_formats.refuse_objects(source, storage or {})
        else:
            paths = _local_files(source)
            table_formats.refuse_parts(source, paths)
            formats = {format_of(path) for path in paths}
        if not paths:
            raise InputError(f"the source {source} has no files", f"known suffixes: {', '.join(FORMATS)}")
        known = {name for name in formats if name is not None}
        if len(formats) != 1 or not known:
            found = ", ".join(sorted(known)) or "none that is known"
            msg = f"the source {source} must hold files of one known format, got: {found}"
            raise InputError(msg, f"known suffixes: {', '.join(FORMATS)}; name files by a glob such as FOLDER/*.csv")
        return cls(tuple(paths), known.pop(), storage or {}, csv=csv)

    def scan(
        self, text_like: tuple[str, ...] = (), *, all_text: bool = False, paths_as: str | None = None
    ) -> pl.LazyFrame:
        """Scan the files."""
        if self.version is not None:
            return table_formats.scan(
                self.paths[0], cast("table_formats.Kind", self.format), self.version, self.storage
            )
        paths = [path if is_remote(path) else glob.escape(path) for path in self.paths]  # a name is no pattern
        with seam(f"opening the source ({self.format})", InputError, READ_HINT):
            if self.format == "parquet":
                return pl.scan_parquet(
                    paths, storage_options=self.storage, hive_partitioning=False, include_file_paths=paths_as
                )
            if self.format == "ndjson":
                return pl.scan_ndjson(
                    paths,
                    storage_options=self.storage,
                    infer_schema_length=INFERRED_ROWS,
                    include_file_paths=paths_as,
                )
            return pl.scan_csv(
                csv_files.sources(paths, self.csv, paths_as),
                include_file_paths=paths_as,
                storage_options=self.storage,
                schema_overrides=dict.fromkeys(text_like, pl.String),
                infer_schema=not all_text,
                infer_schema_length=INFERRED_ROWS,
                **csv_files.options(self.csv),
            )

    def refuse_drift(self, columns: Iterable[str]) -> None:
        """Refuse files whose columns differ, and name the file and the column.

        Objects of a store, and lines of NDJSON, are compared when they are read.
        """
        if self.format not in {"parquet", "csv"} or len(self.paths) < 2:
            return
        wanted, first = list(columns), self._columns(self.paths[0])
        for path in self.paths[1:]:
            here = self._columns(path)
            for name in dict.fromkeys([*(name for name in wanted if name in first), *first, *here]):
                if here.get(name) != first.get(name):
                    said = f"column {name!r}" if name in wanted else by_place([name], here if name in here else first)
                    first_has = f"the first file {self.paths[0]} has {_said(name, said, first)}"
                    msg = f"the file {path} has {_said(name, said, here)}, and {first_has}"
                    raise InputError(msg, "write the files alike, or name those that are: a run reads one table")

    def _columns(self, path: str) -> pl.Schema:
        with seam(f"opening the file {path}", InputError, READ_HINT):
            if self.format == "parquet":
                return pl.Schema(pl.read_parquet_schema(path))
            sources = csv_files.sources([glob.escape(path)], self.csv)
            return pl.scan_csv(sources, infer_schema=False, **csv_files.options(self.csv)).collect_schema()


def _said(name: str, said: str, found: pl.Schema) -> str:
    return f"{said} of type {found[name]}" if name in found else f"no such column ({said} of the other)"


def schema_of(frame: pl.LazyFrame) -> pl.Schema:
    """Return the schema of a scan."""
    with seam("reading the source", InputError, READ_HINT):
        return frame.collect_schema()


def batches(frame: pl.LazyFrame, rows: int) -> Iterator[pl.DataFrame]:
    """Read a scan in order, in frames of exactly `rows` rows (the last may be shorter), a few at a time in memory."""
    held: list[pl.DataFrame] = []
    count = 0
    with seam("reading the source", InputError, READ_HINT):
        chunks = iter(frame.collect_batches(chunk_size=rows, maintain_order=True))
    while True:
        with seam("reading the source", InputError, READ_HINT):
            chunk = next(chunks, None)
        if chunk is None:
            break
        held.append(chunk)
        count += chunk.height
        while count >= rows:
            table = pl.concat(held) if len(held) > 1 else held[0]
            yield table.head(rows)
            held, count = [table.slice(rows)], count - rows
    if count:
        yield pl.concat(held) if len(held) > 1 else held[0]


def _local_files(source: str) -> list[str]:
    path = Path(source)
    if path.is_dir():
        inside = (item for item in path.rglob("*") if item.is_file() and format_of(item.name))
        return sorted(str(item) for item in inside if not _hidden(item.relative_to(path)))
    if path.is_file():
        return [source]
    matched = glob.glob(source, recursive=True)  # noqa: PTH207  (takes absolute patterns)
    found = sorted(name for name in matched if Path(name).is_file())
    if not found and not glob.has_magic(source):
        raise InputError(f"there is no file {source}", "is the path right, and relative to the policy's folder?")
    return found


def _hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)
