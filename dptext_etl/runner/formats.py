"""Write rows as readers get them, in the format of the sink."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import IO

import polars as pl

from dptext_etl.runner.source.cutting import size_of

GROUP_BYTES = 4 << 20
"""About so many bytes of strings are in a row group: groups are encoded, and read, side by side."""


def writer(frame: pl.DataFrame, file_format: str) -> Callable[[IO[bytes]], object]:
    """Return what writes rows into an open file; equal rows give equal bytes."""
    lazy = frame.lazy()
    if file_format == "parquet":
        return partial(lazy.sink_parquet, row_group_size=_group_rows(lazy, frame.height))
    others: dict[str, Callable[[IO[bytes]], object]] = {"csv": lazy.sink_csv, "ndjson": lazy.sink_ndjson}
    return others[file_format]


def _group_rows(rows: pl.LazyFrame, height: int) -> int | None:
    """Return how many rows a row group has; None if one group holds them all. It follows from the rows alone."""
    size = rows.select(size_of(rows.collect_schema()).sum()).collect().item()
    groups = round(size / GROUP_BYTES)
    return -(-height // groups) if groups > 1 else None
