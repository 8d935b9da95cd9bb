"""Read a raw table lazily from files or object stores, or as a version of a table with a log; list its partitions."""

from __future__ import annotations

import glob
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any

import polars as pl

from dptext_etl import object_stores
from dptext_etl.data_types import by_name, kind_of, plain_type
from dptext_etl.errors import DPTextError, InputError, PolicyError, by_place, seam, unlike_names
from dptext_etl.files import literal
from dptext_etl.object_stores import require_place
from dptext_etl.policy import PARTITION, Policy
from dptext_etl.policy.terms import PLAIN_CSV, TABLE, CsvSpec
from dptext_etl.runner.layout import FORMATS, Layout, format_of, is_remote
from dptext_etl.runner.source import listing, table_versions
from dptext_etl.runner.source.table_versions import Version
from dptext_etl.storage import Storage

if TYPE_CHECKING:
    from dptext_etl.json_files import Kinds


def partitions_of_source(policy: Policy) -> list[str]:
    """List the values of "{partition}" for which a file or a folder exists, or an object in a store, sorted."""
    template = policy.source.removeprefix("file://")
    if template.startswith(TABLE):
        raise PolicyError("the partitions of a table in a catalog cannot be listed", "name one: --partition NAME")
    if is_remote(template):
        above = re.split(r"[*?\[{]", template, maxsplit=1)[0].rpartition("/")[0]
        pattern = _pattern(template.removeprefix(f"{above}/").rstrip("/")) + "(?:/.*)?"
        names = Storage.open(above, policy.storage_options).names()
    else:
        path = Path(template).absolute()
        names = [place.as_posix() for place in listing.places(str(path).replace(PARTITION, "*"))]
        folder, parts = Path(path.anchor), [*path.parts[1:]]
        while PARTITION not in parts[0] and listing.is_name(folder, parts[0]):
            folder /= parts.pop(0)
        pattern = re.escape(f"{folder.as_posix().rstrip('/')}/") + _pattern("/".join(parts))
    matches = (re.fullmatch(pattern, name) for name in names)
    return sorted({match["partition"] for match in matches if match})


def _pattern(template: str) -> str:
    """Write a glob template as a regular expression that captures the first partition and repeats it."""
    first, *rest = template.split(PARTITION)
    return _any(first) + "(?P<partition>[^/]+)" + "(?P=partition)".join(map(_any, rest))


def _any(part: str) -> str:
    """Write the glob characters of a path part as a regular expression."""
    pattern = re.escape(part).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
    return pattern.replace(r"\[", "[").replace(r"\]", "]")


INFERRED_ROWS = 10_000
"""The rows from which the column types of an untyped file are inferred."""
READ_HINT = (
    "is the file whole, of the format that its suffix says (of CSV files also: as [csv] says), readable, "
    "and not being written?"
)
_COMPRESSED = frozenset((".gz", ".bz2", ".xz", ".zst", ".zip"))


@dataclass(frozen=True)
class Files:
    """The files of a table in the order of their rows, or one version of a table with its own log."""

    paths: tuple[str, ...]  # local files in sorted order, or one object-store URL
    format: str  # "parquet", "csv" or "ndjson"; "delta" or "iceberg" for a table with its own log
    storage: dict[str, Any] = field(default_factory=dict, repr=False)  # options for object stores, resolved
    version: Version | None = None  # the version of a table with a log
    csv: CsvSpec = PLAIN_CSV
    raw: bool = False  # whether others wrote the files, so that the rows of CSV files are checked before they are read

    @property
    def origin(self) -> dict[str, str] | None:
        return None if self.version is None else {"format": self.format, "version": self.version.name}

    @classmethod
    def find(cls, layout: Layout) -> Files:
        source = _in_catalog(layout) if layout.source.startswith(TABLE) else layout.source
        files = cls.at(source, layout.storage_options, layout.csv)
        if files.format != "csv" and layout.csv != PLAIN_CSV:
            msg = f"the policy has an entry csv, and the source holds {files.format} files"
            raise InputError(msg, "remove [csv], or name CSV files as the source", {"entry": "csv"})
        return files

    @classmethod
    def at(cls, source: str, storage: dict[str, Any] | None = None, csv: CsvSpec = PLAIN_CSV) -> Files:
        """Find the files that a path, folder, glob or URL names."""
        require_place(source)
        storage = storage or {}
        with seam(f"looking for the source {source}", InputError, "may you read it, and the folders above it?"):
            kind = table_versions.table_format(source, storage)
            paths = [source] if kind or is_remote(source) else _local_files(source)
        if kind is not None:
            return cls((source,), kind, storage, Version.current(source, kind, storage))
        if is_remote(source):
            folder = re.split(r"[*?\[]", source, maxsplit=1)[0].rpartition("/")[0]
            if folder.count("/") > 1 and table_versions.has_delta_log(folder, storage):
                raise table_versions.part_of_delta("objects", source, folder)
        else:
            table_versions.refuse_parts_of_tables(source, paths)
        if not paths:
            raise InputError(f"the source {source} has no files", f"known suffixes: {', '.join(FORMATS)}")
        _refuse_by_suffix(paths)
        formats = {format_of(path) for path in paths}
        recognized = {name for name in formats if name is not None}
        if len(formats) != 1 or not recognized:
            listed = ", ".join(sorted(recognized)) or "none that is known"
            msg = f"the source {source} must hold files of one known format, got: {listed}"
            raise InputError(msg, f"known suffixes: {', '.join(FORMATS)}; name files by a glob such as FOLDER/*.csv")
        if csv == CsvSpec(types=csv.types) and all(path.lower().endswith(".tsv") for path in paths):
            csv = CsvSpec(separator="\t", types=csv.types)
        return cls(tuple(paths), recognized.pop(), storage, csv=csv, raw=True)

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
            return self.version.scan()
        paths = [path if is_remote(path) else literal(Path(path)) for path in self.paths]
        options: dict[str, Any] = {"storage_options": self.storage, "include_file_paths": paths_as}
        with seam(f"opening the source ({self.format})", InputError, READ_HINT):
            if self.format == "parquet":
                return pl.scan_parquet(paths, hive_partitioning=False, **options)
            options["infer_schema_length"] = INFERRED_ROWS
            if self.format == "ndjson":
                _ = self.kinds
                sources = self._without_marks(paths_as) or paths
                if schema is None and in_json is None and len(sources) > 1:  # Polars infers types from the first file
                    schema = self._json_schema
                return pl.scan_ndjson(sources, schema=schema, schema_overrides=in_json, **options)
            overrides = {**(schema or {}), **dict.fromkeys(text_like, pl.String())}
            all_text |= schema is not None
            return self._scan_csv(self.each, paths_as, schema_overrides=overrides, infer_schema=not all_text, **options)

    @cached_property
    def each(self) -> tuple[str, ...]:
        """The files by name, after a check of all rows of raw CSV files against their headers.

        Parquet files in a store are listed if the extra for objects is installed.
        """
        remote, paths = is_remote(self.paths[0]), self.paths
        if remote and self.raw and (self.format != "parquet" or find_spec("obstore") is not None):
            paths = tuple(object_stores.matching(paths[0], self.storage))
        if self.format != "csv" or not self.raw:
            return paths
        from dptext_etl.csv_files import require_local_rows, require_rows

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

    @cached_property
    def kinds(self) -> tuple[Kinds, ...]:
        """The kinds of the values of raw NDJSON files, after a check of all their lines."""
        if self.format != "ndjson" or not self.raw:
            return ()
        from dptext_etl.json_files import require_lines, require_local_lines

        if not is_remote(self.paths[0]):
            return tuple(map(require_local_lines, self.each))
        return tuple(require_lines(object_stores.chunks(path, self.storage), path, marked=False) for path in self.each)

    @cached_property
    def _json_schema(self) -> pl.Schema:
        """The types of the columns of all NDJSON files together."""
        sources: Sequence[IO[bytes] | str] = self._without_marks(None) or [literal(Path(path)) for path in self.paths]
        scans = (pl.scan_ndjson(source, infer_schema_length=INFERRED_ROWS) for source in sources)
        return pl.concat([scan.collect_schema().to_frame() for scan in scans], how="diagonal_relaxed").schema

    def _without_marks(self, paths_as: str | None) -> list[IO[bytes]] | None:
        """Read NDJSON files into memory, if one begins with the byte-order mark, which Polars does not read."""
        from dptext_etl.json_files import without_mark

        contents = {path: None if is_remote(path) else without_mark(path) for path in self.paths}
        marked = [path for path, content in contents.items() if content is not None]
        if marked and paths_as is not None:
            msg = f"the file {marked[0]} begins with a byte-order mark, and folder names hold columns of the policy"
            raise InputError(msg, "remove the mark: the first three bytes of the file")
        read = (Path(path).read_bytes() if content is None else content for path, content in contents.items())
        return [io.BytesIO(content) for content in read] if marked else None

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
                return pl.Schema(pl.read_parquet_schema(literal(Path(path))))
            return self._scan_csv([path], None, infer_schema=False).collect_schema()


def schema_of(frame: pl.LazyFrame) -> pl.Schema:
    with seam("reading the source", InputError, READ_HINT):
        return frame.collect_schema()


def why_hidden(rows: pl.LazyFrame) -> str | None:
    """Say why messages must not hold the names of the columns; None if they look like names and are not values."""

    def compared() -> tuple[int, bool]:
        words = [name for name, dtype in schema.items() if dtype == pl.Boolean or plain_type(dtype) == pl.String]
        lower = {name: by_name(name).cast(pl.String).str.strip_chars().str.to_lowercase() for name in words}
        equal = pl.any_horizontal(pl.lit(value=False), *((cell == name.lower()).any() for name, cell in lower.items()))
        return rows.select(pl.len(), repeats_name=equal).collect(engine="streaming").row(0)

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
            count, repeats_name = compared()
    except DPTextError:
        return "the values below them cannot be read"
    return (
        "there is no row to compare them with" if not count else "a column holds its own name" if repeats_name else None
    )


def batches(frame: pl.LazyFrame, rows: int) -> Iterator[pl.DataFrame]:
    """Read a scan in order, in frames of exactly `rows` rows (the last may be shorter), a few at a time in memory."""
    with seam("reading the source", InputError, READ_HINT):
        chunks = iter(frame.collect_batches(chunk_size=rows, maintain_order=True))
    while True:
        with seam("reading the source", InputError, READ_HINT):
            chunk = next(chunks, None)
        if chunk is None:
            return
        yield chunk


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
        names = listing.matching(str(path / "**"))
        tables = [name for name in names if format_of(name) or _is_compressed(name)]
        return tables or [name for name in names if name.lower().endswith(".json")]
    paths = listing.matching(source)
    if path.is_file():
        if {*paths} - {str(path)}:
            msg = f"the source {source} is the name of a file, and also a pattern that names other files"
            raise InputError(msg, "rename the file, or name the folder")
        return [str(path)]
    if not paths and not glob.has_magic(source):
        raise InputError(f"there is no file {source}", "is the path right, and relative to the policy's folder?")
    return paths


def _in_catalog(layout: Layout) -> str:
    """Return the metadata file of the version that a catalog of Iceberg says is current."""
    name = layout.source.removeprefix(TABLE)
    if not layout.catalog:
        msg = f"the source {layout.source} is a table of Spark's catalog, which only Spark reads"
        raise InputError(msg, "run with --engine spark, or describe a catalog of Iceberg: source_catalog = { … }")
    table_versions.require_library("iceberg")
    from dptext_etl.table_formats.iceberg import metadata_file

    return metadata_file(name, layout.catalog)
