"""List the files of one version of a table with a log (Delta Lake, Iceberg), for engines that read Parquet files alone.

What cannot be read from its files alone is refused by name: deletion vectors, delete files, and renamed columns.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import polars as pl
import pyarrow as pa

from dptext_etl.errors import InputError, seam
from dptext_etl.runner.source.table import TABLE_HINT, Files

_READ_HINT = "run with the engine polars, which reads it by its log; or give a frame of the table to run_frame"
_FEATURES = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
"""Features of Delta Lake under which the files of a version are its rows."""


@dataclass(frozen=True)
class TableVersion:
    """One version of a table."""

    table: str  # what identifies the table among all that were ever at its place
    root: str  # folder or URL of the table
    files: tuple[tuple[str, int], ...]  # paths or URLs and sizes of its Parquet files, sorted
    partition_by: tuple[str, ...]  # columns whose values are in the names of folders
    columns: Any = field(repr=False)  # the schema: that of Arrow, or as Delta Lake (and Spark) writes it in JSON

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(path for path, _ in self.files)

    @property
    def digest(self) -> str:
        """The SHA-256 of what identifies the version: its table and its files, which are written once."""
        return hashlib.sha256(json.dumps([self.table, self.files]).encode()).hexdigest()


def table_version(files: Files, *, from_files: bool = True) -> TableVersion:
    """Describe a version; with `from_files`, refuse one whose rows are not those of its files."""
    source, version = files.paths[0], int(files.version or 0)
    with seam("opening the source", InputError, TABLE_HINT):
        if files.format == "delta":
            return _delta(source, version, files.storage, from_files=from_files)
        return _iceberg(source, version, files.storage, from_files=from_files)


def _delta(source: str, version: int, storage: dict[str, Any], *, from_files: bool) -> TableVersion:
    from deltalake import DeltaTable

    table = DeltaTable(source, version=version, storage_options=storage or None)
    protocol, metadata = table.protocol(), table.metadata()
    if from_files:
        features = sorted({*(protocol.reader_features or ())} - _FEATURES)
        if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
            features.append("columnMapping")
        if features:
            raise _refused("a table of Delta Lake", f"the features {', '.join(dict.fromkeys(features))}")
    sizes = pl.DataFrame(table.get_add_actions())["size_bytes"].to_list()  # in the order of `file_uris`
    files = tuple(sorted(zip(map(_plain, table.file_uris()), sizes, strict=True)))
    columns = json.loads(table.schema().to_json())
    return TableVersion(str(metadata.id), source.rstrip("/"), files, tuple(metadata.partition_columns), columns)


def _iceberg(source: str, version: int, storage: dict[str, Any], *, from_files: bool) -> TableVersion:
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(source, properties=dict(storage))
    tasks = list(table.scan(snapshot_id=version).plan_files())
    if from_files:
        names: dict[int, set[str]] = {}
        for schema in table.schemas().values():
            for item in schema.fields:
                names.setdefault(item.field_id, set()).add(item.name)
        used = [name for found in names.values() for name in found]
        problems = (
            ("delete files, which say what rows are gone", any(task.delete_files for task in tasks)),
            ("columns that were renamed, or came back", len(used) > len(names) or len(set(used)) < len(used)),
            ("columns in nanoseconds, which Spark does not read", any(map(_in_nanoseconds, table.schema().as_arrow()))),
            ("files of other formats than Parquet", any(task.file.file_format != "PARQUET" for task in tasks)),
            (
                "files that were added from folders, and partitions, whose columns the files may lack",
                table.spec().fields and "schema.name-mapping.default" in table.properties,
            ),
        )
        for problem, found in problems:
            if found:
                raise _refused("a table of Iceberg", problem)
    files = tuple(sorted((task.file.file_path.removeprefix("file://"), task.file.file_size_in_bytes) for task in tasks))
    return TableVersion(str(table.metadata.table_uuid), table.location(), files, (), table.schema().as_arrow())


def _in_nanoseconds(column: pa.Field) -> bool:
    return bool(pa.types.is_timestamp(column.type) and column.type.unit == "ns")


def _refused(what: str, problem: str) -> InputError:
    return InputError(f"the source is {what} with {problem}: its files alone are not its rows", _READ_HINT)


def _plain(uri: str) -> str:
    return unquote(uri.removeprefix("file://")) if uri.startswith("file://") else uri
