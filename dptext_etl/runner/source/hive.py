"""Read columns that stand in folder names, as Hive writes them: `date=2026-01-01/part-0.parquet`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from urllib.parse import unquote

import polars as pl

PATHS = "__dptext_path"
"""Column of file paths while such columns are read."""
_NULL = "__HIVE_DEFAULT_PARTITION__"


def columns_of(paths: Sequence[str]) -> dict[str, dict[str, str | None]]:
    """Return the columns that stand in the folder names of all files: values by path, by column.

    >>> columns_of(["/raw/day=1/a.parquet", "/raw/day=2/b.parquet"])
    {'day': {'/raw/day=1/a.parquet': '1', '/raw/day=2/b.parquet': '2'}}
    """
    each = {path: _pairs(path) for path in paths}
    shared = set.intersection(*(set(pairs) for pairs in each.values())) if each else set()
    return {name: {path: pairs[name] for path, pairs in each.items()} for name in sorted(shared)}


def with_columns(frame: pl.LazyFrame, paths: Sequence[str], names: Iterable[str]) -> pl.LazyFrame:
    """Add columns of folder names to a scan that holds its file paths, as text, and drop the paths."""
    found = columns_of(paths)
    made = (
        pl.col(PATHS).replace_strict(list(found[name]), list(found[name].values()), return_dtype=pl.String).alias(name)
        for name in names
    )
    return frame.with_columns(*made).drop(PATHS)


def _pairs(path: str) -> dict[str, str | None]:
    split = (part.partition("=") for part in PurePosixPath(path).parent.parts)
    return {unquote(name): None if value == _NULL else unquote(value) for name, sign, value in split if sign and name}
