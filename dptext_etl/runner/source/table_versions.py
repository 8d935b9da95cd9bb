"""Read one version of a table of Delta Lake or Iceberg by its log.

Folders of such tables hold files of deleted rows, too. So a run reads the version that is current when it begins, and
refuses the single files. In Iceberg, a version is a snapshot and a schema, and columns are found by their ids.
"""

from __future__ import annotations

import glob
import hashlib
import json
import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

import polars as pl
import pyarrow as pa

from dptext_etl import extensions
from dptext_etl.errors import InputError, seam
from dptext_etl.object_stores import require_no_code
from dptext_etl.runner.layout import is_remote
from dptext_etl.table_formats.table_format import LIBRARIES, NAMES

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
        named = PurePosixPath(source).suffix or glob.has_magic(source)
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
    if find_spec(LIBRARIES[kind]) is None:
        msg = (
            f"the source is a table of {NAMES[kind]}, which is read by its log, and {LIBRARIES[kind]} is not installed"
        )
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
        with seam(f"opening the source ({NAMES[kind]})", InputError, TABLE_HINT):
            if kind == "delta":
                name = str(_delta_table(source, storage).version())
            else:
                name = _iceberg_version(_iceberg_table(source, storage))
        return cls(source, kind, name, storage)

    def scan(self) -> pl.LazyFrame:
        with seam(f"opening the source ({NAMES[self.format]})", InputError, TABLE_HINT):
            options = dict(self.storage) or None
            if self.format == "iceberg":
                return pl.scan_iceberg(self._iceberg(), storage_options=options)
            table = _delta_table(self.source, self.storage, int(self.name))
            _refuse_features(table, _IN_POLARS)
            return pl.scan_delta(table, storage_options=options)

    @property
    def digest(self) -> str:
        """The SHA-256 of the id of the table, of the name and the schema of the version, and of its list of files."""
        with seam("opening the source", InputError, TABLE_HINT):
            if self.format == "delta":
                table = _delta_table(self.source, self.storage, int(self.name))
                facts = [str(table.metadata().id), table.schema().to_json(), _delta_files(table)]
            else:
                table = self._iceberg()
                files = sorted(
                    (task.file.file_path, task.file.file_size_in_bytes) for task in table.scan().plan_files()
                )
                mapping = table.metadata.name_mapping()
                names = None if mapping is None else mapping.model_dump_json()
                facts = [str(table.metadata.table_uuid), table.schema().model_dump_json(), names, files]
        return hashlib.sha256(json.dumps([self.name, *facts]).encode()).hexdigest()

    def arrow_schema(self) -> pa.Schema:
        """Return the current schema of an Iceberg table."""
        with seam("opening the source", InputError, TABLE_HINT):
            return self._iceberg().schema().as_arrow()

    def iceberg_files(self) -> list[bytes]:
        """Return the data files of a version of an Iceberg table with the rows that are deleted from them, pickled."""
        with seam("opening the source", InputError, TABLE_HINT):
            return [pickle.dumps(task) for task in self._iceberg().scan().plan_files()]

    def data_files(self) -> tuple[str, ...]:
        """Return the paths or URLs of the Parquet files that hold the rows, sorted."""
        with seam("opening the source", InputError, TABLE_HINT):
            if self.format == "delta":
                return tuple(path for path, _ in _delta_files(_delta_table(self.source, self.storage, int(self.name))))
            return tuple(sorted(_plain(task.file.file_path) for task in self._iceberg().scan().plan_files()))

    def iceberg_batches(self, files: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
        """Read the rows of some `iceberg_files` by the ids of the columns, under the current schema."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files

        table = self._iceberg()
        scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
        for file in files:
            task = [pickle.loads(file)]  # noqa: S301  (from the driver)
            deleted = _read_all_delete_files(table.io, task)
            # the public method holds all rows of a file at once
            yield from scan._record_batches_from_scan_tasks_and_deletes(task, deleted)  # noqa: SLF001

    def _iceberg(self) -> Any:
        table = _iceberg_table(self.source, self.storage)
        if _iceberg_version(table) != self.name:
            raise InputError(f"the metadata file {self.source} was replaced while it was read", "run again")
        return table

    def delta_files(self) -> DeltaFiles:
        """Describe a version of a Delta Lake table for a reader of its files; refuse one that has other rows."""
        with seam("opening the source", InputError, TABLE_HINT):
            table = _delta_table(self.source, self.storage, int(self.name))
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
    name = "source"
    return StaticTable((name, source), metadata, source, io, NoopCatalog(name))


def _iceberg_version(table: Any) -> str:
    snapshot = table.current_snapshot()
    return f"{'none' if snapshot is None else snapshot.snapshot_id}, schema {table.schema().schema_id}"
