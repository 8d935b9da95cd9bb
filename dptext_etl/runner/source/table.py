"""Read a raw table lazily: Parquet, CSV, or NDJSON files in folders or object stores; Delta Lake or Iceberg tables."""

from __future__ import annotations

import glob
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import IO, Any

import polars as pl

from dptext_etl import extensions, object_stores
from dptext_etl.csv_files import require_local_rows, require_rows
from dptext_etl.data_types import kind_of, plain_type
from dptext_etl.errors import DPTextError, InputError, by_place, seam, unlike_names
from dptext_etl.policy.terms import PLAIN_CSV, CsvSpec
from dptext_etl.runner.layout import FORMATS, Layout, format_of, is_remote
from dptext_etl.store_options import require_no_code, require_place

INFERRED_ROWS = 10_000
"""The rows from which the column types of an untyped file are inferred."""
READ_HINT = (
    "is the file whole, of the format that its suffix says (of CSV files also: as [csv] says), readable, "
    "and not being written?"
)
_LIBRARY = {"delta": "deltalake", "iceberg": "pyiceberg"}
_NAMES = {"delta": "Delta Lake", "iceberg": "Iceberg"}
_DELTA_LOG = "_delta_log"
_ICEBERG = ".metadata.json"
"""Ending of the files that describe a version of an Iceberg table."""
_COMPRESSED = frozenset((".gz", ".bz2", ".xz", ".zst", ".zip"))
TABLE_HINT = "check that the table is complete, and of a version that the library reads"


@dataclass(frozen=True)
class Files:
    """The files of a table in the order of their rows, or one version of a table with a log of its own."""

    paths: tuple[str, ...]  # local files in sorted order, or one object-store URL
    format: str  # "parquet", "csv" or "ndjson"; "delta" or "iceberg" for a table with a log of its own
    storage: dict[str, Any] = field(default_factory=dict, repr=False)  # options for object stores, resolved
    version: str | None = None  # the version of a table with a log
    csv: CsvSpec = PLAIN_CSV
    raw: bool = False  # whether others wrote the files, so that the rows of CSV files are checked before they are read

    @property
    def origin(self) -> dict[str, str] | None:
        return None if self.version is None else {"format": self.format, "version": self.version}

    @classmethod
    def find(cls, layout: Layout) -> Files:
        found = cls.at(layout.source, layout.storage_options, layout.csv)
        if found.format != "csv" and layout.csv != PLAIN_CSV:
            msg = f"the policy has an entry csv, and the source holds {found.format} files"
            raise InputError(msg, "remove [csv], or name CSV files as the source", {"entry": "csv"})
        return found

    @classmethod
    def at(cls, source: str, storage: dict[str, Any] | None = None, csv: CsvSpec = PLAIN_CSV) -> Files:
        """Find the files that a path, folder, glob or URL names."""
        require_place(source)
        storage = storage or {}
        kind = _table_format(source, storage)
        if kind is not None:
            return cls((source,), kind, storage, _current_version(source, kind, storage))
        if is_remote(source):
            paths = [source]
            folder = re.split(r"[*?\[]", source, maxsplit=1)[0].rpartition("/")[0]
            if folder.count("/") > 1 and _has_delta_log(folder, storage):
                raise _part_of_delta("objects", source, folder)
        else:
            paths = _local_files(source)
            _refuse_parts_of_tables(source, paths)
        if not paths:
            raise InputError(f"the source {source} has no files", f"known suffixes: {', '.join(FORMATS)}")
        _refuse_by_suffix(paths)
        formats = {format_of(path) for path in paths}
        known = {name for name in formats if name is not None}
        if len(formats) != 1 or not known:
            found = ", ".join(sorted(known)) or "none that is known"
            msg = f"the source {source} must hold files of one known format, got: {found}"
            raise InputError(msg, f"known suffixes: {', '.join(FORMATS)}; name files by a glob such as FOLDER/*.csv")
        if csv == CsvSpec(types=csv.types) and all(path.lower().endswith(".tsv") for path in paths):
            csv = CsvSpec(separator="\t", types=csv.types)
        return cls(tuple(paths), known.pop(), storage, csv=csv, raw=True)

    def scan(
        self,
        text_like: tuple[str, ...] = (),
        *,
        all_text: bool = False,
        paths_as: str | None = None,
        schema: Mapping[str, pl.DataType] | None = None,
        in_json: Mapping[str, pl.DataType] | None = None,
    ) -> pl.LazyFrame:
        """Scan the files without types for some or all CSV columns, and with file paths as a column if it is named.

        CSV and NDJSON files have the types of `schema`, if it is given; for NDJSON, `in_json` gives some of them.
        """
        if self.version is not None:
            return _scan_version(self.paths[0], self.format, self.version, self.storage)
        paths = [path if is_remote(path) else glob.escape(path) for path in self.paths]  # a local name is no pattern
        options: dict[str, Any] = {"storage_options": self.storage, "include_file_paths": paths_as}
        with seam(f"opening the source ({self.format})", InputError, READ_HINT):
            if self.format == "parquet":
                return pl.scan_parquet(paths, hive_partitioning=False, **options)
            options["infer_schema_length"] = INFERRED_ROWS
            if self.format == "ndjson":
                return pl.scan_ndjson(paths, schema=schema, schema_overrides=in_json, **options)
            overrides = {**(schema or {}), **dict.fromkeys(text_like, pl.String())}
            all_text |= schema is not None
            return self._scan_csv(self.each, paths_as, schema_overrides=overrides, infer_schema=not all_text, **options)

    @cached_property
    def each(self) -> tuple[str, ...]:
        """The CSV or NDJSON files by name, after a check of all rows of raw CSV files against their headers."""
        remote, paths = is_remote(self.paths[0]), self.paths
        if remote and self.raw:
            paths = tuple(object_stores.matching(paths[0], self.storage))
        if self.format != "csv" or not self.raw:
            return paths
        dialect = self.csv.separator, self.csv.quote, self.csv.encoding
        first: tuple[str, ...] = ()
        for path in paths:
            if remote:
                names = require_rows(object_stores.chunks(path, self.storage), path, *dialect)
            else:
                names = require_local_rows(path, *dialect)
            first = first or names
            if names != first:
                msg = f"the file {path} has other columns than the first file {paths[0]}, or has them in another order"
                raise InputError(msg, "write the files alike, or name those that are: a run reads one table")
        return paths

    def _scan_csv(self, paths: Sequence[str], paths_as: str | None, **options: Any) -> pl.LazyFrame:
        sources: list[str] | list[IO[bytes]] = [*paths]
        encoding = self.csv.encoding
        if encoding != "utf-8":
            if any(map(is_remote, paths)) or paths_as is not None:
                msg = f"csv.encoding: files in {encoding} are read from a local folder, without columns in folder names"
                raise InputError(msg, "convert them to UTF-8 first", {"entry": "csv.encoding"})
            sources = [_in_utf8(Path(path), encoding) for path in paths]
        dialect: dict[str, Any] = {"separator": self.csv.separator, "quote_char": self.csv.quote or None}
        return pl.scan_csv(sources, glob=False, **dialect, **options)  # the files that were checked, and no others

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
                    place = f"column {name!r}" if name in wanted else by_place([name], here if name in here else first)
                    first_has = f"the first file {self.paths[0]} has {_column_at(name, place, first)}"
                    msg = f"the file {path} has {_column_at(name, place, here)}, and {first_has}"
                    raise InputError(msg, "write the files alike, or name those that are: a run reads one table")

    def _columns(self, path: str) -> pl.Schema:
        with seam(f"opening the file {path}", InputError, READ_HINT):
            if self.format == "parquet":
                return pl.Schema(pl.read_parquet_schema(path))
            return self._scan_csv([path], None, infer_schema=False).collect_schema()


def schema_of(frame: pl.LazyFrame) -> pl.Schema:
    with seam("reading the source", InputError, READ_HINT):
        return frame.collect_schema()


def why_hidden(rows: pl.LazyFrame) -> str | None:
    """Say why messages must not hold the names of the columns; None if they look like names and are no values."""

    def compared() -> tuple[int, bool]:
        words = [name for name, dtype in schema.items() if dtype == pl.Boolean or plain_type(dtype) == pl.String]
        lower = {name: pl.col(name).cast(pl.String).str.strip_chars().str.to_lowercase() for name in words}
        equal = pl.any_horizontal(pl.lit(value=False), *((cell == name.lower()).any() for name, cell in lower.items()))
        return rows.select(pl.len(), found=equal).collect(engine="streaming").row(0)

    schema = schema_of(rows)
    return hidden_by(schema.names(), compared)


def hidden_by(names: Sequence[str], compared: Callable[[], tuple[int, bool]]) -> str | None:
    """Return `why_hidden` by the number of rows, and by whether a column holds its own name.

    Names may be the first row of a file without a header line, so an engine compares them with the values below them.
    """
    if (why := unlike_names(names)) is not None:
        return why
    try:
        with seam("comparing names with values"):
            count, found = compared()
    except DPTextError:
        return "the values below them cannot be read"
    return "there is no row to compare them with" if not count else "a column holds its own name" if found else None


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


def _column_at(name: str, place: str, schema: pl.Schema) -> str:
    return f"{place} of type {kind_of(schema[name])}" if name in schema else f"no such column ({place} of the other)"


def _in_utf8(path: Path, encoding: str) -> IO[bytes]:
    try:
        return io.BytesIO(path.read_bytes().decode(encoding).encode())
    except UnicodeError:
        problem = f"csv.encoding: the file {path} is not in {encoding}"
    raise InputError(
        problem, "correct csv.encoding in the policy; `dptext init FILE` shows one that fits", {"entry": "csv.encoding"}
    )


def _is_compressed(name: str) -> bool:
    path = PurePosixPath(name.lower())
    return path.suffix in _COMPRESSED and (path.stem.endswith(".json") or format_of(path.stem) is not None)


def _refuse_by_suffix(paths: Iterable[str]) -> None:
    """Refuse compressed files, and files that may hold one JSON array or an object per line."""
    for path in paths:
        if _is_compressed(path):
            raise InputError(f"the file {path} is compressed", "decompress it first, and name the result as the source")
        if path.lower().endswith(".json"):
            hint = "if every line is an object, rename it to .ndjson; otherwise, write its objects so"
            raise InputError(f"the file {path} may be one JSON array, and a run reads one object per line", hint)


def _local_files(source: str) -> list[str]:
    path = Path(source)
    if path.is_dir():
        files = (item.relative_to(path) for item in path.rglob("*") if item.is_file())
        shown = (item for item in files if not any(part.startswith((".", "_")) for part in item.parts))
        names = sorted(str(path / item) for item in shown)
        found = [name for name in names if format_of(name) or _is_compressed(name)]
        return found or [name for name in names if name.lower().endswith(".json")]
    if path.is_file():
        return [source]
    matched = glob.glob(source, recursive=True)  # noqa: PTH207  (takes absolute patterns)
    found = sorted(name for name in matched if Path(name).is_file())
    if not found and not glob.has_magic(source):
        raise InputError(f"there is no file {source}", "is the path right, and relative to the policy's folder?")
    return found


# Tables with a log of their own (Delta Lake, Iceberg): their folders also hold files of deleted rows. So a run reads
# them by their log, at the version that is current when it begins, and refuses their single files.


def _table_format(source: str, storage: dict[str, Any]) -> str | None:
    """Return the format of the table with a log that a source names, or None for plain files."""
    if source.endswith(_ICEBERG):
        return "iceberg"
    if is_remote(source):
        named = PurePosixPath(source).suffix or glob.has_magic(source)
        return "delta" if not named and _has_delta_log(source.rstrip("/"), storage) else None
    return "delta" if (Path(source) / _DELTA_LOG).is_dir() else None


def _has_delta_log(folder: str, storage: dict[str, Any]) -> bool:
    """Return whether a folder of an object store holds a log; a store that cannot be reached fails later."""
    try:
        log = pl.scan_lines(f"{folder}/{_DELTA_LOG}/*.json", storage_options=storage)
        return log.head(1).collect().height > 0
    except (OSError, pl.exceptions.PolarsError):
        return False


def _part_of_delta(what: str, source: str, folder: Path | str) -> InputError:
    msg = f"the {what} of {source} belong to a table of Delta Lake, which also keeps files of deleted rows"
    return InputError(msg, f'name the table itself: source = "{folder}"')


def _refuse_parts_of_tables(source: str, files: Iterable[str]) -> None:
    for folder in sorted({parent for file in files for parent in Path(file).absolute().parents}):
        if (folder / _DELTA_LOG).is_dir():
            raise _part_of_delta("files", source, folder)
        if (folder / "metadata").is_dir() and any((folder / "metadata").glob(f"*{_ICEBERG}")):
            msg = f"the files of {source} belong to a table of Iceberg, which also keeps files of deleted rows"
            raise InputError(msg, "name the version that its catalog says is current: FOLDER/metadata/….metadata.json")


def _current_version(source: str, kind: str, storage: dict[str, Any]) -> str:
    if find_spec(_LIBRARY[kind]) is None:
        msg = (
            f"the source is a table of {_NAMES[kind]}, which is read by its log, and {_LIBRARY[kind]} is not installed"
        )
        raise InputError(msg, f"`{extensions.pip_install('tables')}`; its files alone would bring deleted rows back")
    with seam(f"opening the source ({_NAMES[kind]})", InputError, TABLE_HINT):
        if kind == "delta":
            from deltalake import DeltaTable

            return str(DeltaTable(source, storage_options=storage or None).version())
        from pyiceberg.io import load_file_io
        from pyiceberg.serializers import FromInputFile
        from pyiceberg.table import StaticTable

        metadata = FromInputFile.table_metadata(load_file_io(storage, source).new_input(source))
        require_no_code(metadata.properties)
        snapshot = StaticTable.from_metadata(source, properties=dict(storage)).current_snapshot()
        if snapshot is None:
            raise InputError("the source (Iceberg) has no version yet", "write rows to it first")
        return str(snapshot.snapshot_id)


def _scan_version(source: str, kind: str, version: str, storage: dict[str, Any]) -> pl.LazyFrame:
    with seam(f"opening the source ({_NAMES[kind]})", InputError, TABLE_HINT):
        if kind == "delta":
            return pl.scan_delta(source, version=int(version), storage_options=storage or None)
        return pl.scan_iceberg(source, snapshot_id=int(version), storage_options=storage or None)
