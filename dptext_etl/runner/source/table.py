"""Read a raw table lazily from files or object stores, or as a version of a table with a log; list its partitions.

Names of files that begin with "." or "_" are excluded, unless a pattern has this character there. A file or folder that
cannot be listed or opened is refused by its path: a file that is excluded in silence is lost rows.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import json
import os
import pickle
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property, partial
from glob import has_magic
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from stat import S_ISDIR, S_ISREG
from types import TracebackType
from typing import Any
from urllib.parse import unquote

import polars as pl
import pyarrow as pa

from dptext_etl import extensions, object_stores
from dptext_etl.data_types import by_name, kind_of
from dptext_etl.errors import DPTextError, InputError, PolicyError, by_place, seam
from dptext_etl.file_formats import FORMATS, PARQUET, TABLES, FileFormat, Reading, Source, format_of, suffixes
from dptext_etl.object_stores import require_no_code, require_place
from dptext_etl.policy import PARTITION, Policy
from dptext_etl.policy.terms import PLAIN_CSV, TABLE, CsvSpec
from dptext_etl.runner.layout import Layout, is_remote
from dptext_etl.storage import Storage

TABLE_HINT = "check that the table is complete, and of a version that the library reads"
_DELTA_LOG = "_delta_log"
_ICEBERG = ".metadata.json"
"""Ending of the files that describe a version of an Iceberg table."""
_FEATURES = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
"""Features of Delta Lake under which the files of a version are its rows."""
_MAPPING = "columnMapping"
_IN_POLARS = frozenset({*_FEATURES, "deletionVectors", "variantType", "variantType-preview"})


def table_format(source: str, storage: Mapping[str, Any]) -> str | None:
    """Return the format of the table with a log that a source names, or None for plain files."""
    if source.endswith(_ICEBERG):
        return "iceberg"
    if is_remote(source):
        named = PurePosixPath(source).suffix or has_magic(source)
        return "delta" if not named and has_delta_log(source.rstrip("/"), storage) else None
    return "delta" if (Path(source) / _DELTA_LOG).is_dir() else None


def has_delta_log(folder: str, storage: Mapping[str, Any]) -> bool:
    """Return whether a folder of an object store holds a log; a store that cannot be reached fails later."""
    try:
        log = pl.scan_lines(f"{folder}/{_DELTA_LOG}/*.json", storage_options=dict(storage))
        return log.head(1).collect().height > 0
    except (OSError, pl.exceptions.PolarsError):
        return False


def part_of_delta(what: str, source: str, folder: Path | str) -> InputError:
    msg = f"the {what} of {source} belong to a table of Delta Lake, which also keeps files of deleted rows"
    return InputError(msg, f'name the table itself: source = "{folder}"')


def refuse_parts_of_tables(source: str, files: Iterable[str]) -> None:
    paths = {Path(file).resolve() if Path(file).is_symlink() else Path(file).absolute() for file in files}
    places = {path.parent for path in paths} | {path.parent.resolve() for path in paths}
    for folder in sorted({folder for place in places for folder in (place, *place.parents)}):
        if (folder / _DELTA_LOG).is_dir():
            raise part_of_delta("files", source, folder)
        if (folder / "metadata").is_dir() and any((folder / "metadata").glob(f"*{_ICEBERG}")):
            msg = f"the files of {source} belong to a table of Iceberg, which also keeps files of deleted rows"
            raise InputError(msg, "name the version that its catalog says is current: FOLDER/metadata/….metadata.json")


def require_library(kind: str) -> None:
    title, library = TABLES[kind]
    if find_spec(library) is None:
        msg = f"the source is a table of {title}, which is read by its log, and {library} is not installed"
        raise InputError(msg, f"`{extensions.pip_install('tables')}`; reading only its files returns deleted rows")


@dataclass(frozen=True)
class Version:
    """One version of a table with a log."""

    source: str  # folder or URL of a Delta Lake table, or the metadata file of an Iceberg table
    format: str  # "delta" or "iceberg"
    name: str  # the number of the version; in Iceberg, the ids of snapshot and schema
    storage: Mapping[str, Any] = field(default_factory=dict, repr=False)  # options of the object store, resolved

    @classmethod
    def current(cls, source: str, kind: str, storage: Mapping[str, Any]) -> Version:
        require_library(kind)
        with seam(f"opening the source ({TABLES[kind][0]})", InputError, TABLE_HINT):
            if kind == "delta":
                name = str(_delta_table(source, storage).version())
            else:
                name = _iceberg_version(_iceberg_table(source, storage))
        return cls(source, kind, name, storage)

    def scan(self) -> pl.LazyFrame:
        with seam(f"opening the source ({TABLES[self.format][0]})", InputError, TABLE_HINT):
            table, options = self._opened(), dict(self.storage) or None
            if self.format == "iceberg":
                return pl.scan_iceberg(table, storage_options=options)
            _refuse_features(table, _IN_POLARS)
            return pl.scan_delta(table, storage_options=options)

    @property
    def digest(self) -> str:
        """The SHA-256 of the id of the table, of the name and the schema of the version, and of its list of files."""
        with seam("opening the source", InputError, TABLE_HINT):
            table = self._opened()
            if self.format == "delta":
                facts = [str(table.metadata().id), table.schema().to_json(), _delta_files(table)]
            else:
                listed = (task.file for task in table.scan().plan_files())
                files = sorted((file.file_path, file.file_size_in_bytes) for file in listed)
                mapping = table.metadata.name_mapping()
                names = None if mapping is None else mapping.model_dump_json()
                facts = [str(table.metadata.table_uuid), table.schema().model_dump_json(), names, files]
        return hashlib.sha256(json.dumps([self.name, *facts]).encode()).hexdigest()

    def arrow_schema(self) -> pa.Schema:
        """Return the current schema of an Iceberg table."""
        with seam("opening the source", InputError, TABLE_HINT):
            return self._opened().schema().as_arrow()

    def iceberg_files(self) -> list[bytes]:
        """Return the data files of a version of an Iceberg table with the rows that are deleted from them, pickled."""
        with seam("opening the source", InputError, TABLE_HINT):
            return [pickle.dumps(task) for task in self._opened().scan().plan_files()]

    def data_files(self) -> tuple[str, ...]:
        """Return the paths or URLs of the Parquet files that hold the rows, sorted."""
        with seam("opening the source", InputError, TABLE_HINT):
            table = self._opened()
            if self.format == "delta":
                return tuple(path for path, _ in _delta_files(table))
            return tuple(sorted(_plain(task.file.file_path) for task in table.scan().plan_files()))

    def iceberg_batches(self, files: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
        """Read the rows of some `iceberg_files` by the ids of the columns, under the current schema."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files

        table = self._opened()
        scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
        for file in files:
            task = [pickle.loads(file)]  # noqa: S301  (from the driver)
            deleted = _read_all_delete_files(table.io, task)
            # the public method holds all rows of a file at once
            yield from scan._record_batches_from_scan_tasks_and_deletes(task, deleted)  # noqa: SLF001

    def _opened(self) -> Any:
        """Open this version by the library of its format."""
        if self.format == "delta":
            return _delta_table(self.source, self.storage, int(self.name))
        table = _iceberg_table(self.source, self.storage)
        if _iceberg_version(table) != self.name:
            raise InputError(f"the metadata file {self.source} was replaced while it was read", "run again")
        return table

    def delta_files(self) -> DeltaFiles:
        """Describe a version of a Delta Lake table for a reader of its files; refuse one that has other rows."""
        with seam("opening the source", InputError, TABLE_HINT):
            table = self._opened()
            _refuse_features(table, _FEATURES)
            paths = tuple(path for path, _ in _delta_files(table))
            partitions = tuple(table.metadata().partition_columns)
            return DeltaFiles(self.source.rstrip("/"), paths, partitions, json.loads(table.schema().to_json()))


@dataclass(frozen=True)
class DeltaFiles:
    root: str  # folder or URL of the table
    paths: tuple[str, ...]  # paths or URLs of its Parquet files, sorted
    partition_by: tuple[str, ...]  # columns whose values are in the names of folders
    schema: Any  # as Delta Lake (and Spark) writes it in JSON


def _delta_table(source: str, storage: Mapping[str, Any], version: int | None = None) -> Any:
    from deltalake import DeltaTable

    return DeltaTable(source, version=version, storage_options=dict(storage) or None)


def _refuse_features(table: Any, known: frozenset[str]) -> None:
    features = {*(table.protocol().reader_features or ())} - known
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        features.add(_MAPPING)
    if not features:
        return
    listed = ", ".join(sorted(features))
    msg = f"the source is a table of Delta Lake with the features {listed}: its files do not show its rows"
    own = 'read it by Spark with the package of Delta Lake: source = "table:NAME" and --engine spark, or run_frame'
    raise InputError(msg, own if features - _IN_POLARS else f"run with the engine polars, which reads it; or {own}")


def _delta_files(table: Any) -> list[tuple[str, int]]:
    sizes = pl.DataFrame(table.get_add_actions())["size_bytes"].to_list()  # in the order of `file_uris`
    return sorted(zip(map(_plain, table.file_uris()), sizes, strict=True))


def _plain(uri: str) -> str:
    return unquote(uri.removeprefix("file://")) if uri.startswith("file://") else uri


def _iceberg_table(source: str, storage: Mapping[str, Any]) -> Any:
    """Load the table that one reading of a metadata file describes, unless its properties name code."""
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.io import load_file_io
    from pyiceberg.serializers import FromInputFile
    from pyiceberg.table import StaticTable

    metadata = FromInputFile.table_metadata(load_file_io(dict(storage), source).new_input(source))
    require_no_code(metadata.properties)
    io = load_file_io({**storage, **metadata.properties}, location=source)
    return StaticTable(("source", source), metadata, source, io, NoopCatalog("source"))


def _iceberg_version(table: Any) -> str:
    snapshot = table.current_snapshot()
    return f"{'none' if snapshot is None else snapshot.snapshot_id}, schema {table.schema().schema_id}"


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
        names = [place.as_posix() for place in places(str(path).replace(PARTITION, "*"))]
        folder, parts = Path(path.anchor), [*path.parts[1:]]
        while PARTITION not in parts[0] and is_name(folder, parts[0]):
            folder /= parts.pop(0)
        pattern = re.escape(f"{folder.as_posix().rstrip('/')}/") + _pattern("/".join(parts))
    matches = (re.fullmatch(pattern, name) for name in names)
    return sorted({match["partition"] for match in matches if match})


def _pattern(template: str) -> str:
    """Write a glob template as a regular expression that captures the first partition and repeats it."""
    first, *rest = object_stores.expression_of(template.replace(PARTITION, "\0")).split("\0")
    return f"{first}(?P<partition>[^/]+)" + "(?P=partition)".join(rest)


READ_HINT = (
    "is the file whole, of the format that its suffix says (of CSV files also: as [csv] says), readable, "
    "and not being written?"
)
_FAULT_HINT = "is it whole? Write it again, or name the other files by a pattern"
_MOST_SEARCHED = 1 << 28  # bytes of a file whose lines are searched, in memory, for the first that cannot be read
_TYPES_HINT = "do all values of a column have one type? Write the columns alike, such as no true next to 1"
_COMPRESSED = frozenset((".gz", ".bz2", ".xz", ".zst", ".zip"))


Probe = Callable[["Files", Sequence[str]], Iterable[str | None]]


@dataclass(frozen=True)
class Files:
    """The files of a table in the order of their rows, or one version of a table with its own log."""

    paths: tuple[str, ...]  # local files in sorted order, or one object-store URL
    format: str  # a name of `FORMATS`; "delta" or "iceberg" for a table with its own log
    storage: dict[str, Any] = field(default_factory=dict, repr=False)  # options for object stores, resolved
    version: Version | None = None  # the version of a table with a log
    csv: CsvSpec = PLAIN_CSV
    raw: bool = False  # whether others wrote the files, so that the rows of CSV files are checked before they are read

    @property
    def origin(self) -> dict[str, str] | None:
        return None if self.version is None else {"format": self.format, "version": self.version.name}

    @classmethod
    def find(cls, layout: Layout) -> Files:
        source = layout.source
        if source.startswith(TABLE):  # then it is the metadata file of the version that the catalog says is current
            if not layout.catalog:
                msg = f"the source {source} is a table of Spark's catalog, which only Spark reads"
                hint = "run with --engine spark, or describe a catalog of Iceberg: source_catalog = { … }"
                raise InputError(msg, hint)
            require_library("iceberg")
            from dptext_etl.table_formats.iceberg import metadata_file

            source = metadata_file(source.removeprefix(TABLE), layout.catalog)
        files = cls.at(source, layout.storage_options, layout.csv)
        if not files.kind.dialect and layout.csv != PLAIN_CSV:
            msg = f"the policy has an entry csv, and the source holds {files.format} files"
            raise InputError(msg, "remove [csv], or name CSV files as the source", {"entry": "csv"})
        return files

    @classmethod
    def at(cls, source: str, storage: dict[str, Any] | None = None, csv: CsvSpec = PLAIN_CSV) -> Files:
        """Find the files that a path, folder, glob or URL names."""
        require_place(source)
        storage = storage or {}
        with seam(f"looking for the source {source}", InputError, "may you read it, and the folders above it?"):
            log = table_format(source, storage)
            paths = [source] if log or is_remote(source) else _local_files(source)
        if log is not None:
            return cls((source,), log, storage, Version.current(source, log, storage))
        if is_remote(source):
            folder = re.split(r"[*?\[]", source, maxsplit=1)[0].rpartition("/")[0]
            if folder.count("/") > 1 and has_delta_log(folder, storage):
                raise part_of_delta("objects", source, folder)
        else:
            refuse_parts_of_tables(source, paths)
        if not paths:
            raise InputError(f"the source {source} has no files", f"known suffixes: {', '.join(suffixes())}")
        for path in paths:
            if _is_compressed(path):
                hint = "decompress it first, and name the result as the source"
                raise InputError(f"the file {path} is compressed", hint)
            if path.lower().endswith(".json"):
                hint = "if every line is an object, rename it to .ndjson; otherwise, write its objects so"
                raise InputError(f"the file {path} may be one JSON array, and a run reads one object per line", hint)
        formats = {format_of(path) for path in paths}
        recognized = [kind for kind in formats if kind is not None]
        if len(formats) != 1 or not recognized:
            listed = ", ".join(sorted(kind.name for kind in recognized)) or "none that is known"
            msg = f"the source {source} must hold files of one known format, got: {listed}"
            raise InputError(msg, f"known suffixes: {', '.join(suffixes())}; name files by a glob such as FOLDER/*.csv")
        kind = recognized[0]
        return cls(tuple(paths), kind.name, storage, csv=kind.for_suffix(paths, csv), raw=True)

    @property
    def kind(self) -> FileFormat:
        """The format of the files; Parquet for a table with its own log."""
        return FORMATS.get(self.format, PARQUET)

    def scan(
        self,
        *,
        all_text: bool = False,
        paths_as: str | None = None,
        schema: Mapping[str, pl.DataType] | None = None,
        in_json: Mapping[str, pl.DataType] | None = None,
    ) -> pl.LazyFrame:
        """Scan the files, with their paths as a column if it is named; `file_formats.Reading` has the rest."""
        if self.version is not None:
            return self.version.scan()
        with seam(f"opening the source ({self.format})", InputError, READ_HINT):
            _ = self.facts  # problems are named before a reader fails
            how = Reading(self.csv, all_text, schema, in_json)
            return self.kind.scan(self.each, how, storage_options=self.storage, include_file_paths=paths_as)

    @cached_property
    def each(self) -> tuple[str, ...]:
        """The files by name; a pattern of objects is expanded as `listing` does for files."""
        listed = self.raw and is_remote(self.paths[0])
        return tuple(object_stores.matching(self.paths[0], self.storage)) if listed else self.paths

    @cached_property
    def facts(self) -> Any:
        """The facts from a check of raw files, before they are read."""
        return self.kind.check(self.each, self.csv, self.storage) if self.raw and self.kind.checked else None

    def refuse_drift(self, columns: Iterable[str]) -> None:
        """Refuse files whose columns differ, and name the file and the column.

        Objects of a store, and lines of NDJSON, are compared when they are read.
        """
        wanted = list(columns)
        first = self._columns(self.paths[0]) if self.version is None and len(self.paths) > 1 else None
        if first is None:
            return
        for path in self.paths[1:]:
            here = self._columns(path) or pl.Schema()
            for name in dict.fromkeys([*(name for name in wanted if name in first), *first, *here]):
                if here.get(name) != first.get(name):
                    place = f"column {name!r}" if name in wanted else by_place([name], here if name in here else first)
                    first_has = f"the first file {self.paths[0]} has {_column_at(name, place, first)}"
                    msg = f"the file {path} has {_column_at(name, place, here)}, and {first_has}"
                    raise InputError(msg, "write the files alike, or name those that are: a run reads one table")

    def fault(self, wanted: Sequence[str], probe: Probe | None = None) -> InputError | None:
        """Return a refusal of the first file that cannot be read by itself, or with those before it; None if all can.

        `wanted` are the columns that are read, none for all: tables with a log have other names in their files.
        """
        if self.version is not None:
            return Files(self.version.data_files(), PARQUET.name, self.storage).fault((), probe)
        paths, read_by = self.each, f"be read as {self.kind.title}"
        whys = map(partial(self.why, wanted), paths) if probe is None else probe(self, wanted)
        path, why = next(((path, why) for path, why in zip(paths, whys, strict=True) if why is not None), ("", None))
        size = Path(path).stat().st_size if Path(path).is_file() else None
        if size == 0:
            return InputError(f"the file {path} is empty", _FAULT_HINT)
        if self.kind.holds == "json" and size is not None and size <= _MOST_SEARCHED:
            content = Path(path).read_bytes().removeprefix(codecs.BOM_UTF8)
            ends = [*(match.end() for match in re.finditer(b"\n", content)), len(content)]
            line = 1 + bisect_left(ends, True, key=lambda end: bool(self.why(wanted, io.BytesIO(content[:end]))))
            msg = f"line {line} of the file {path} cannot be read with the lines before it ({why})"
            return InputError(msg, _TYPES_HINT, {"line": line})
        if why is not None:
            return InputError(f"the file {path} cannot {read_by} ({why})", _FAULT_HINT)
        count = bisect_left(range(len(paths)), True, key=lambda count: bool(self.why(wanted, *paths[: count + 1])))
        if count == len(paths):
            return None
        return InputError(f"the file {paths[count]} cannot {read_by} with the files before it", _TYPES_HINT)

    def why(self, wanted: Sequence[str], *sources: Source) -> str | None:
        """Return the name of the exception with which some files cannot be read; None if they can."""
        try:
            with seam("reading", InputError):
                rows = self.kind.scan(sources, Reading(self.csv, all_text=True), storage_options=self.storage)
                names = [name for name in rows.collect_schema().names() if not wanted or name in wanted]
                for _ in rows.select(map(by_name, names)).collect_batches():
                    pass
        except InputError as error:
            if "exception" not in error.fields:
                raise
            return str(error.fields["exception"])
        return None

    def _columns(self, path: str) -> pl.Schema | None:
        with seam(f"opening the file {path}", InputError, READ_HINT):
            return self.kind.columns(path, self.csv)


class naming_file(seam):  # noqa: N801
    """Let a failure of a reader in the block name the file (`Files.fault`)."""

    def __init__(
        self, files: Callable[[], Files | None], wanted: Sequence[str] = (), probe: Probe | None = None
    ) -> None:
        super().__init__("reading the source")
        self._files, self._wanted, self._probe = files, wanted, probe

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        if not isinstance(exc, DPTextError) or kind not in {InputError, DPTextError} or "exception" not in exc.fields:
            return
        source = self._files()
        fault = None if source is None else source.fault(self._wanted, self._probe)
        if fault is not None:
            self.leave(fault)


def schema_of(frame: pl.LazyFrame) -> pl.Schema:
    with seam("reading the source", InputError, READ_HINT):
        return frame.collect_schema()


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


def _is_compressed(name: str) -> bool:
    path = PurePosixPath(name.lower())
    return path.suffix in _COMPRESSED and (path.stem.endswith(".json") or format_of(path.stem) is not None)


def _local_files(source: str) -> list[str]:
    path = Path(source)
    if path.is_dir():
        names = matching(str(path / "**"))
        tables = [name for name in names if format_of(name) or _is_compressed(name)]
        return tables or [name for name in names if name.lower().endswith(".json")]
    paths = matching(source)
    if path.is_file():
        if {*paths} - {str(path)}:
            msg = f"the source {source} is the name of a file, and also a pattern that names other files"
            raise InputError(msg, "rename the file, or name the folder")
        return [str(path)]
    if not paths and not has_magic(source):
        raise InputError(f"there is no file {source}", "is the path right, and relative to the policy's folder?")
    return paths


_HIDDEN = (".", "_")
_HINT = "repair it, remove it, or name the other files by a pattern such as FOLDER/2026-*.parquet; no budget used"


def matching(pattern: str) -> list[str]:
    """Return the files that a pattern names, in the order of their paths; `**` spans folders."""
    return sorted({str(path) for path in places(pattern) if not path.is_dir()})


def places(pattern: str, check: Callable[[Path], Path] | None = None) -> Iterator[Path]:
    """Yield the files and folders that a pattern names; a part that is a folder as it is written is that folder.

    Raises:
        InputError: A folder cannot be listed, a file cannot be opened, or a link leads to nothing or in a circle.
    """
    path = Path(pattern)
    return _below(Path(path.anchor), path.parts[bool(path.anchor) :], (), check or _opened)


def existing_paths(source: str) -> list[Path]:
    """List the files and folders that exist under a path or pattern; they may be unreadable."""
    path = Path(source)
    return [place for place in ([path] if path.exists() else places(source, lambda at: at)) if place.exists()]


def is_name(folder: Path, part: str) -> bool:
    """Return whether a part of a pattern is the name of a folder: names may hold `?` and `[`."""
    return not has_magic(part) or (part != "**" and (folder / part).is_dir())


def _below(
    folder: Path, parts: Sequence[str], above: tuple[tuple[int, int], ...], check: Callable[[Path], Path]
) -> Iterator[Path]:
    part, *rest = parts
    if is_name(folder, part):
        if rest:
            yield from _below(folder / part, rest, above, check)
        elif os.path.lexists(folder / part):
            yield check(folder / part)
        return
    if not folder.is_dir():
        return
    if part == "**" and rest:
        yield from _below(folder, rest, above, check)
    stat = folder.stat()
    identity = stat.st_dev, stat.st_ino
    if identity in above:
        raise InputError(f"a link leads from {folder} back to a folder above it", _HINT)
    above = (*above, identity)
    for name in _names(folder):
        if name.startswith(_HIDDEN) and not part.startswith(name[0]):
            continue
        if part == "**" or fnmatchcase(name, part):
            child = check(folder / name)
            if (rest or part == "**") and child.is_dir():
                yield from _below(child, parts if part == "**" else rest, above, check)
            if not rest:
                yield child


def _names(folder: Path) -> list[str]:
    try:
        return [child.name for child in folder.iterdir()]
    except OSError as error:
        problem = f"the folder {folder} cannot be listed: {error.strerror}"
    raise InputError(problem, _HINT)


def _opened(path: Path) -> Path:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        problem = f"cannot be opened: {error.strerror}"
    else:
        readable = os.access(path, os.R_OK)
        if readable and (S_ISREG(mode) or S_ISDIR(mode)):
            return path
        problem = "is neither a file nor a folder" if readable else "cannot be read: you have no permission"
    raise InputError(f"{'the link ' if path.is_symlink() else ''}{path} {problem}", _HINT)
