"""Read a raw table lazily from files or object stores, or as a version of a table with a log; list its partitions."""

from __future__ import annotations

import codecs
import glob
import io
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import Any

import polars as pl

from dptext_etl import object_stores
from dptext_etl.data_types import by_name, kind_of, plain_type
from dptext_etl.errors import DPTextError, InputError, PolicyError, by_place, seam, unlike_names
from dptext_etl.file_formats import FORMATS, PARQUET, FileFormat, Reading, Source, format_of, suffixes
from dptext_etl.object_stores import require_place
from dptext_etl.policy import PARTITION, Policy
from dptext_etl.policy.terms import PLAIN_CSV, TABLE, CsvSpec
from dptext_etl.runner.layout import Layout, is_remote
from dptext_etl.runner.source import listing, table_versions
from dptext_etl.runner.source.table_versions import Version
from dptext_etl.storage import Storage


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
        source = _in_catalog(layout) if layout.source.startswith(TABLE) else layout.source
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
            log = table_versions.table_format(source, storage)
            paths = [source] if log or is_remote(source) else _local_files(source)
        if log is not None:
            return cls((source,), log, storage, Version.current(source, log, storage))
        if is_remote(source):
            folder = re.split(r"[*?\[]", source, maxsplit=1)[0].rpartition("/")[0]
            if folder.count("/") > 1 and table_versions.has_delta_log(folder, storage):
                raise table_versions.part_of_delta("objects", source, folder)
        else:
            table_versions.refuse_parts_of_tables(source, paths)
        if not paths:
            raise InputError(f"the source {source} has no files", f"known suffixes: {', '.join(suffixes())}")
        _refuse_by_suffix(paths)
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
        if self.version is not None or len(self.paths) < 2:
            return
        wanted, first = list(columns), self._columns(self.paths[0])
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

        Args:
            wanted: Columns that are read; none for all. Tables with a log have other names in their files.
            probe: Says of each of some files why it cannot be read.
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


@contextmanager
def naming_file(
    files: Callable[[], Files | None], wanted: Sequence[str] = (), probe: Probe | None = None
) -> Iterator[None]:
    """Let a failure of a reader name the file (`Files.fault`)."""
    fault: DPTextError
    try:
        yield
    except DPTextError as error:
        if type(error) not in {InputError, DPTextError} or "exception" not in error.fields:
            raise
        fault, source = error, files()
        fault = error if source is None else source.fault(wanted, probe) or error
    else:
        return
    raise fault


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
