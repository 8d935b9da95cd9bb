"""Read a source in Delta Lake or Iceberg by its own log, because its folder also holds files of deleted rows.

A run reads the version that is current when it begins, and states this version in the manifest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import polars as pl

from dptext_etl import extras
from dptext_etl.errors import InputError, seam

Kind = Literal["delta", "iceberg"]

DELTA_LOG = "_delta_log"
ICEBERG = ".metadata.json"
"""Ending of the files that describe a version of an Iceberg table."""
EXTRA = "tables"
_LIBRARY = {"delta": "deltalake", "iceberg": "pyiceberg"}
_NAMES = {"delta": "Delta Lake", "iceberg": "Iceberg"}
_MAGIC = "*?["
_HINT = "check that the table is complete, and of a version that the library reads"


def kind_of(source: str, storage: dict[str, Any]) -> Kind | None:
    """Return the format of the table that a source names, or None for plain files."""
    if source.endswith(ICEBERG):
        return "iceberg"
    if "://" in source:
        named = PurePosixPath(source).suffix or set(source) & set(_MAGIC)
        return "delta" if not named and _has_log(source.rstrip("/"), storage) else None
    return "delta" if (Path(source) / DELTA_LOG).is_dir() else None


def refuse_objects(source: str, storage: dict[str, Any]) -> None:
    """Refuse objects below a folder that is a table of Delta Lake: some of them may hold rows that were deleted."""
    folder = re.split(r"[*?\[]", source, maxsplit=1)[0].rpartition("/")[0]
    if folder.count("/") > 1 and _has_log(folder, storage):
        msg = f"the objects of {source} belong to a table of Delta Lake, which also keeps files of deleted rows"
        raise InputError(msg, f'name the table itself: source = "{folder}"')


def _has_log(folder: str, storage: dict[str, Any]) -> bool:
    """Say whether a folder of an object store holds a log of Delta Lake; a store that cannot be reached fails later."""
    try:
        log = pl.scan_lines(f"{folder}/{DELTA_LOG}/*.json", storage_options=storage)
        return log.head(1).collect().height > 0
    except (OSError, pl.exceptions.PolarsError):
        return False


def refuse_parts(source: str, files: Iterable[str]) -> None:
    """Refuse files that belong to a table of such a format: some of them may hold rows that were deleted."""
    for folder in sorted({parent for file in files for parent in Path(file).absolute().parents}):
        if (folder / DELTA_LOG).is_dir():
            msg = f"the files of {source} belong to a table of Delta Lake, which also keeps files of deleted rows"
            raise InputError(msg, f'name the table itself: source = "{folder}"')
        if (folder / "metadata").is_dir() and any((folder / "metadata").glob(f"*{ICEBERG}")):
            msg = f"the files of {source} belong to a table of Iceberg, which also keeps files of deleted rows"
            raise InputError(msg, "name the version that its catalog says is current: FOLDER/metadata/….metadata.json")


def version_of(source: str, kind: Kind, storage: dict[str, Any]) -> str:
    """Return the current version of a table."""
    _require(kind)
    with seam(f"opening the source ({_NAMES[kind]})", InputError, _HINT):
        if kind == "delta":
            from deltalake import DeltaTable

            return str(DeltaTable(source, storage_options=storage or None).version())
        from pyiceberg.table import StaticTable

        snapshot = StaticTable.from_metadata(source, properties=dict(storage)).current_snapshot()
        if snapshot is None:
            raise InputError("the source (Iceberg) has no version yet", "write rows to it first")
        return str(snapshot.snapshot_id)


def scan(source: str, kind: Kind, version: str, storage: dict[str, Any]) -> pl.LazyFrame:
    """Scan one version of a table without its deleted rows."""
    _require(kind)
    with seam(f"opening the source ({_NAMES[kind]})", InputError, _HINT):
        if kind == "delta":
            return pl.scan_delta(source, version=int(version), storage_options=storage or None)
        return pl.scan_iceberg(source, snapshot_id=int(version), storage_options=storage or None)


def _require(kind: Kind) -> None:
    if find_spec(_LIBRARY[kind]) is None:
        msg = (
            f"the source is a table of {_NAMES[kind]}, which is read by its log, and {_LIBRARY[kind]} is not installed"
        )
        raise InputError(msg, f"`{extras.install(EXTRA)}`; its files alone would bring deleted rows back")
