"""Commit files to a table of Iceberg, through its catalog.

The metadata of a table are published, too. The manifests of Iceberg hold paths, sizes, and row counts of files, but no
bounds of cells (`write.metadata.metrics.default` is `none`). So no entry outlives the rows that it describes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl

from dptext_etl import files, object_stores
from dptext_etl.errors import InputError, PolicyError, counted, seam
from dptext_etl.object_stores import CATALOG, require_no_code
from dptext_etl.storage import Storage
from dptext_etl.table_formats.table_format import DataFile, Facts, OtherWriterError, TableState, require_type

_HINT = (
    "does the catalog answer, and may you read and write the table? Run the same policy again: it continues from here"
)
_RELEASE, _DIGEST = "dptext.release", "dptext.manifest"
"""Property of the table with the number of the publication; entry of a snapshot with the digest of its manifest."""
_PROPERTIES = {"write.metadata.metrics.default": "none", "commit.retry.num-retries": "0"}
"""No bounds of cells, and no second try over another writer's commit."""
_BOUNDS = re.compile(r"write\.metadata\.metrics\.(?!default$)")
_TYPES = (pl.String, pl.Boolean, pl.Binary, pl.Date, pl.Int32, pl.Int64, pl.Float32, pl.Float64, pl.Decimal)
_S3 = {
    "s3.endpoint": "aws_endpoint_url",
    "s3.access-key-id": "aws_access_key_id",
    "s3.secret-access-key": "aws_secret_access_key",
    "s3.session-token": "aws_session_token",
    "s3.region": "aws_region",
}
"""Properties of catalogs, and the options of a store that mean the same."""
_NO_ROWS = ("metadata/", "_", ".")  # beginnings of the names of files that hold no rows


class Iceberg:
    """A table of Iceberg: its name in a catalog, and the folder or URL that holds its files."""

    name = "iceberg"

    def __init__(self, files: Storage, table: str, catalog: Mapping[str, str]) -> None:
        self._files = files.absolute()
        self._table, self._properties = table, catalog

    @property
    def _root(self) -> str:
        return self._files.url if self._files.remote else f"file://{self._files.url}"

    def require_columns(self, columns: Mapping[str, pl.DataType]) -> None:
        for column, dtype in columns.items():
            require_type(self.name, column, dtype, _TYPES, zoned=False)
        with seam("looking at the table in its catalog", InputError, _HINT):
            table = self._open()
            there = pl.Schema(columns)
            if table is not None:
                there = pl.Schema(pl.DataFrame(table.schema().as_arrow().empty_table()).schema)
        if list(there.items()) != list(columns.items()):
            msg = f"the table {self._table} has other columns than this policy publishes; no budget used"
            raise InputError(msg, "name a new table: table.name, and sink", {"entry": "table.name"})

    def require_writable(self) -> None:
        """Try the catalog's credentials for S3, which write the metadata, or else the sink's credentials."""
        if not self._files.remote:
            return
        with seam("looking at the table in its catalog", InputError, _HINT):
            table = self._open()
            properties = object_stores.resolved(self._properties, CATALOG) if table is None else table.io.properties
        credentials = {option: str(properties[name]) for name, option in _S3.items() if properties.get(name)}
        if self._files.url.startswith("s3") and "aws_access_key_id" in credentials:
            plain = credentials.get("aws_endpoint_url", "").startswith("http://")
            options = {**credentials, "aws_allow_http": str(plain).lower()}
        else:
            options = object_stores.resolved(dict(self._files.options))
        object_stores.probe(self._files.child("metadata").url, options)

    def state(self) -> TableState | None:
        with seam("looking at the table in its catalog", InputError, _HINT):
            table = self._open()
            if table is None:
                return None
            if table.spec().fields:
                msg = f"another writer has given the table {self._table} partitions, and a run writes none"
                raise InputError(msg, "replace its partition spec by an empty one, or name a new table")
            files = set[str]()
            for task in table.scan().plan_files():
                files.add(self._relative(task.file.file_path))
                files.update(self._relative(deleted.file_path) for deleted in task.delete_files)
            release = table.properties.get(_RELEASE)
            return TableState(_version(table), frozenset(files), None if release is None else int(release))

    def commit(self, files: Sequence[DataFile], schema: pl.Schema, facts: Facts, before: TableState | None) -> None:
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
        from pyiceberg.io.pyarrow import parquet_file_to_data_file

        listed = {f"{self._root}/{file.path}" for file in files}
        with seam("committing to the table", InputError, _HINT):
            table = self._open()
            if (table is None) == (before is None) and (before is None or _version(table) == before.version):
                there = {} if table is None else {task.file.file_path: task.file for task in table.scan().plan_files()}
                change = self._created(schema) if table is None else table.transaction()
                # also where another writer changed them
                change.set_properties({**facts.properties, _RELEASE: str(facts.release), **_PROPERTIES})
                change.remove_properties(*filter(_BOUNDS.match, change.table_metadata.properties))
                snapshot = change.update_snapshot(snapshot_properties={_DIGEST: facts.digest})
                removed = [file for path, file in there.items() if path not in listed]
                with snapshot.overwrite() if removed else snapshot.fast_append() as rows:
                    io, metadata = change._table.io, change.table_metadata  # noqa: SLF001  (as `add_files` does)
                    for path in sorted(listed - there.keys()):
                        rows.append_data_file(parquet_file_to_data_file(io, metadata, path))
                    for file in removed:
                        rows.delete_data_file(file)
                with suppress(CommitFailedException, TableAlreadyExistsError):
                    change.commit_transaction()
                    return
        raise OtherWriterError("another writer has committed to the table meanwhile", "run the same policy again")

    def version_of(self, digest: str) -> str | None:
        with seam("looking at the table in its catalog", InputError, _HINT):
            table = self._open()
            for snapshot in reversed([] if table is None else table.snapshots()):
                if snapshot.summary is not None and snapshot.summary.get(_DIGEST) == digest:
                    return str(snapshot.snapshot_id)
            return None

    def retire(self, folders: Sequence[str] | None) -> None:
        """Expire the snapshots that list files of these folders, or, without `folders`, all except the current one."""
        with seam("expiring older snapshots of the table", InputError, _HINT):
            table = self._open()
            if table is None:
                return
            current = table.current_snapshot()
            old = [
                snapshot.snapshot_id
                for snapshot in table.snapshots()
                if (current is None or snapshot.snapshot_id != current.snapshot_id)
                and (folders is None or self._lists(table, snapshot.snapshot_id, folders))
            ]
            heads = [name for name, ref in table.refs().items() if ref.snapshot_id in old]
            if heads:
                keeping = counted(len(heads), "tag or branch", "tags or branches")
                msg = f"older snapshots of the table {self._table} stay with their files, because of {keeping}"
                raise InputError(msg, "drop them in the catalog, and repeat this call: it continues from here")
            if old:
                table.maintenance.expire_snapshots().by_ids(old).commit()
        if folders is None:
            state = self.state()
            kept = frozenset[str]() if state is None else state.files
            for name in self._files.names():
                if name not in kept and not name.startswith(_NO_ROWS):
                    self._files.delete(name)

    def _lists(self, table: Any, snapshot: int, folders: Iterable[str]) -> bool:
        paths = (self._relative(task.file.file_path) for task in table.scan(snapshot_id=snapshot).plan_files())
        return any(path.startswith(tuple(f"{folder}/" for folder in folders)) for path in paths)

    def _relative(self, path: str) -> str:
        return path.removeprefix(f"{self._root}/")

    def _created(self, schema: pl.Schema) -> Any:
        """Begin the transaction that makes the table, with the schema by which files without field ids are read."""
        catalog = self._catalog()
        catalog.create_namespace_if_not_exists(self._table.rpartition(".")[0])
        arrow = pl.DataFrame(schema=schema).to_arrow(compat_level=pl.CompatLevel.oldest()).schema
        change = catalog.create_table_transaction(self._table, arrow, location=self._root, properties=_PROPERTIES)
        mapping = change.table_metadata.schema().name_mapping.model_dump_json()
        change.set_properties({"schema.name-mapping.default": mapping})
        return change

    def _catalog(self, **more: str) -> Any:
        from pyiceberg.catalog import load_catalog

        homes = {files.home(), Path(os.environ["PYICEBERG_HOME"]) if os.environ.get("PYICEBERG_HOME") else None}
        if Path(".pyiceberg.yaml").is_file() and Path.cwd() not in homes:
            msg = "the working folder has a file .pyiceberg.yaml, which can name code, and pyiceberg would read it"
            raise PolicyError(
                msg, "if the file is yours: move it to your home folder, or to the folder in PYICEBERG_HOME"
            )
        properties = object_stores.resolved(self._properties, CATALOG) | more
        catalog = load_catalog(properties.pop("name", "default"), **properties)
        require_no_code(catalog.properties)  # a server may add some
        load = catalog._load_file_io  # noqa: SLF001  (every catalog calls it with the properties of a table)

        def checked(properties: dict[str, Any] | None = None, location: str | None = None) -> Any:
            require_no_code(properties or {})
            return load(properties or {}, location)

        catalog._load_file_io = checked  # type: ignore[method-assign]  # noqa: SLF001
        return catalog

    def _open(self) -> Any | None:
        """Open the table if there is one; this makes neither a catalog nor, in a database, its tables."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        uri = str(self._properties.get("uri"))
        if uri.startswith("sqlite:///"):  # to look into a catalog makes it, but a plan writes nothing
            place = Path(uri.removeprefix("sqlite:///"))
            if not place.exists() and os.access(place.parent, os.W_OK):
                return None
        catalog = self._catalog(init_catalog_tables="false")
        if (engine := getattr(catalog, "engine", None)) is not None:  # of a catalog in a database
            from sqlalchemy import inspect

            if not inspect(engine).has_table("iceberg_tables"):
                return None
        try:
            return catalog.load_table(self._table)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None


def metadata_file(name: str, catalog: Mapping[str, str]) -> str:
    """Return the path or URL of the metadata of the current version of a table; its folder is not known before."""
    with seam("looking for the source in its catalog", InputError, "does the catalog answer, and may you read it?"):
        table = Iceberg(Storage(os.curdir), name, catalog)._open()  # noqa: SLF001  (of this module)
    if table is None:
        raise InputError(f"the catalog has no table {name}", "is the name of the source right?")
    return str(table.metadata_location).removeprefix("file://")


def _version(table: Any) -> str:
    snapshot = table.current_snapshot()
    return "none" if snapshot is None else str(snapshot.snapshot_id)
