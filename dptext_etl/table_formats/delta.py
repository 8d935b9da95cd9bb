"""Commit files to a table of Delta Lake.

The log of a table is published, too. A commit holds paths, sizes, and row counts of files, but no statistics of cells,
so that no entry of the log outlives the rows that it describes.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import polars as pl

from dptext_etl import object_stores
from dptext_etl.data_types import parts_of
from dptext_etl.errors import InputError, seam
from dptext_etl.storage import Storage
from dptext_etl.table_formats.table_format import DataFile, Facts, OtherWriterError, TableState, require_type

_HINT = "is the table intact, and may you read and write it? Run the same policy again: it continues from here"
_APP = "dptext"  # name of our transactions in the log; their version is the number of the publication
_DIGEST = "dptext.manifest"  # entry of a commit that holds the digest of the manifest
_STATED = "userMetadata"
"""Entry of a commit that `DESCRIBE HISTORY` shows; setting properties of the table would add features to it."""
_NAIVE = "timestampNtz"
"""Feature that a table of timestamps without a time zone needs; a commit cannot add one to a table."""
_FEATURES = frozenset({_NAIVE, "appendOnly", "invariants"})  # features of a table under which its files are its rows
_VERSIONS = {"reader version": {1, 3}, "writer version": {1, 2, 7}}
"""Versions of the protocol that imply no other features: these state theirs, or have none."""
_SETTINGS = {"delta.dataSkippingNumIndexedCols": "0"}  # other writers keep statistics of no column, too
_NAME = re.compile(r"[^ ,;{}()\n\t=]+")
_TYPES = (
    pl.String, pl.Boolean, pl.Binary, pl.Date, pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.Float32, pl.Float64,
    pl.Decimal,
)  # fmt: skip


class Delta:
    """A table of Delta Lake in a folder, or under a URL of an object store."""

    name = "delta"

    def __init__(self, files: Storage) -> None:
        self._files = files.absolute()
        options = object_stores.resolved(dict(files.options))
        self._options = {name: str(value) for name, value in options.items()} or None

    def require_columns(self, columns: Mapping[str, pl.DataType]) -> None:
        lower = Counter(column.lower() for column in columns)
        for column, dtype in columns.items():
            if lower[column.lower()] > 1:
                msg = f"column {column!r} and another column have the same name in lowercase: Delta Lake forbids this"
                raise InputError(msg, "rename the column in the source; no budget used", {"column": column})
            if not _NAME.fullmatch(column):
                msg = f"the name of column {column!r} has a space or one of ,;{{}}()= in it: Delta Lake forbids these"
                raise InputError(msg, "rename the column in the source; no budget used", {"column": column})
            require_type(self.name, column, dtype, _TYPES, zoned=True)
            if not any(isinstance(part, pl.Datetime) and part.time_zone is None for part in parts_of(dtype)):
                continue
            with seam("reading the log of the table", InputError, _HINT):
                table = self._open()
                features = [_NAIVE] if table is None else table.protocol().reader_features or []
            if _NAIVE not in features:
                msg = f"column {column!r} holds timestamps without a time zone, and the table {self._files.url} was "
                hint = "give them the time zone UTC in the source, or name a new folder as the sink"
                raise InputError(f"{msg}made without the feature {_NAIVE}; no budget used", hint, {"column": column})

    def require_writable(self) -> None:
        if self._files.remote:
            object_stores.require_writable(self._files.child("_delta_log").url, dict(self._files.options))

    def state(self) -> TableState | None:
        with seam("reading the log of the table", InputError, _HINT):
            table = self._open()
            if table is None:
                return None
            files = pl.DataFrame(table.get_add_actions())["path"].to_list()
            protocol = table.protocol()
            features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
            versions = {"reader version": protocol.min_reader_version, "writer version": protocol.min_writer_version}
            features |= {f"{kind} {number}" for kind, number in versions.items() if number not in _VERSIONS[kind]}
            state = TableState(str(table.version()), frozenset(files), table.transaction_version(_APP))
        if features - _FEATURES:
            msg = f"the table {self._files.url} has features that a run does not write: {', '.join(sorted(features))}"
            raise InputError(msg, "name a separate folder as the sink")
        return state

    def commit(self, files: Sequence[DataFile], schema: pl.Schema, facts: Facts, before: TableState | None) -> None:
        from deltalake import CommitProperties, Schema, Transaction
        from deltalake.exceptions import CommitFailedError, DeltaError
        from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

        now = int(time.time() * 1000)
        there = frozenset[str]() if before is None else before.files
        listed = {file.path for file in files}
        actions: list[Any] = [
            AddAction(file.path, file.size, {}, now, data_change=True, stats=json.dumps({"numRecords": file.rows}))
            for file in files
            if file.path not in there
        ]
        stated = {_DIGEST: facts.digest, _STATED: json.dumps(facts.properties)}
        properties = CommitProperties(stated, 0, [Transaction(_APP, facts.release, now)])
        with seam("committing to the table", InputError, _HINT):
            # the format knows moments in UTC, which Parquet writes for any time zone
            zoned = {
                name: pl.Datetime("us", "UTC") if isinstance(dtype, pl.Datetime) and dtype.time_zone else dtype
                for name, dtype in schema.items()
            }
            empty = pl.DataFrame(schema=zoned).to_arrow(compat_level=pl.CompatLevel.oldest())
            columns = Schema.from_arrow(empty.schema)
            if before is None:
                try:
                    create_table_with_add_actions(
                        self._files.url,
                        columns,
                        actions,
                        configuration=_SETTINGS,
                        storage_options=self._options,
                        commit_properties=properties,
                    )
                except DeltaError:
                    if self.state() is None:
                        raise
                else:
                    return
            else:
                table = self._open()
                if table is not None and str(table.version()) == before.version:
                    removed, mode = there - listed, "overwrite"  # removes all files, and may change the schema
                    if removed != there:
                        mode = "append"
                        actions += [
                            RemoveAction(path, data_change=True, deletion_timestamp=now) for path in sorted(removed)
                        ]
                    with suppress(CommitFailedError):
                        table.create_write_transaction(actions, mode, columns, commit_properties=properties)
                        return
        raise OtherWriterError("another writer has committed to the table meanwhile", "run the same policy again")

    def version_of(self, digest: str) -> str | None:
        """Look for the digest in the log, newest version first (the library's `history` holds Python's lock)."""
        with seam("reading the log of the table", InputError, _HINT):
            table = self._open()
            for version in range(-1 if table is None else table.version(), -1, -1):
                content = self._files.read(f"_delta_log/{version:020}.json")
                if content is None:  # the log has been cleaned up
                    break
                entries = map(json.loads, content.splitlines())
                if any(entry.get("commitInfo", {}).get(_DIGEST) == digest for entry in entries):
                    return str(version)
            return None

    def retire(self, folders: Sequence[str] | None) -> None:
        """Delete all files that the current version does not list; the log itself holds no cells."""
        if folders is not None:  # their files are deleted by name
            return
        with seam("deleting the files of older versions of the table", InputError, _HINT):
            table = self._open()
            if table is not None:
                table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)

    def _open(self) -> Any | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(self._files.url, storage_options=self._options)
        except TableNotFoundError:
            return None
