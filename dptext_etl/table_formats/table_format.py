"""Define the methods of a table format: describe the current version, commit files as the next, retire old ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import polars as pl

from dptext_etl.data_types import kind_of, parts_of
from dptext_etl.errors import BusyError, InputError
from dptext_etl.file_formats import TABLES


class DataFile(NamedTuple):
    path: str  # from the folder of the table
    rows: int
    size: int  # bytes


class Facts(NamedTuple):
    """The facts about a publication in a commit."""

    release: int  # number of the publication
    digest: str  # of its manifest
    properties: Mapping[str, str]  # the claims on its text columns, for readers of a catalog


@dataclass(frozen=True)
class TableState:
    """The current version of a table."""

    version: str  # as the format names it
    files: frozenset[str]  # paths of the data files, from the folder of the table
    release: int | None  # number of the newest publication that is committed; None if no run has committed


class OtherWriterError(BusyError):
    """Another writer has committed to the table since it was looked at; nothing was committed."""


class TableFormat(Protocol):
    """The current version of one table, and the means to replace it in one commit."""

    name: str  # "delta" or "iceberg"

    def require_columns(self, columns: Mapping[str, pl.DataType]) -> None:
        """Refuse columns that the format, or the table as it is, cannot hold."""

    def require_writable(self) -> None:
        """Refuse a table in an object store whose log these credentials cannot write; nothing is written."""

    def state(self) -> TableState | None:
        """Return the current version, or None if there is no table."""

    def commit(self, files: Sequence[DataFile], schema: pl.Schema, facts: Facts, before: TableState | None) -> None:
        """Replace the files of `before` by others in one commit.

        `OtherWriterError` if the table is no longer in the state `before`.
        """

    def version_of(self, digest: str) -> str | None:
        """Return the version whose commit holds the digest of a manifest, if the table still knows it."""

    def retire(self, folders: Sequence[str] | None) -> None:
        """Forget older versions, and delete their files: those that hold files of these folders, or all (None)."""


def require_type(name: str, column: str, dtype: Any, types: tuple[Any, ...], *, zoned: bool) -> None:
    """Refuse a column whose type the format `name` does not have; `zoned` allows moments in any time zone."""
    fits = all(
        part.time_unit == "us" and ((zoned and part is dtype) or part.time_zone in {None, "UTC"})
        if isinstance(part, pl.Datetime)
        else isinstance(part, (pl.List, pl.Struct, *types))
        for part in parts_of(dtype)
    )
    if not fits:
        kind, title = kind_of(dtype), TABLES[name][0]
        msg = f"column {column!r} of type {kind} cannot be stored in a table of {title}; no budget used"
        raise InputError(msg, "cast it in the source, or do not keep it", {"column": column})
