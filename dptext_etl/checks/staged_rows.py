"""Read the rows of a staged part, canary rows among them, in one file or in two.

A part whose rows are published as they are staged holds those rows alone, byte for byte as readers will get them. Its
canary rows stand in a file beside it. Any other part holds both, and a column that marks canary rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from dptext_etl.checks.canaries.rows import CANARY, PLACE

BATCH_ROWS = 20_000
"""Rows that are held in memory at a time."""


def canaries_beside(part: Path) -> Path:
    """Return the file of the canary rows of a part that holds none."""
    return part.with_suffix(".canaries")


def apart(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Divide the rows of a shard.

    Args:
        frame: All rows, with their mark.

    Returns:
        The rows to publish, without a mark; the canary rows, with their places.
    """
    marked = frame[CANARY]
    canaries = frame.with_columns(pl.int_range(frame.height, dtype=pl.UInt32).alias(PLACE)).filter(marked)
    return frame.filter(~marked).drop(CANARY), canaries


def together(rows: pl.DataFrame, canaries: pl.DataFrame) -> pl.DataFrame:
    """Put together what `apart` divided, in the same order.

    >>> frame = pl.DataFrame({"id": [1, 2, 3], CANARY: [True, False, True]})
    >>> together(*apart(frame)).equals(frame)
    True
    """
    places = canaries[PLACE].to_numpy()
    order = np.empty(rows.height + len(places), dtype=np.int64)
    others = np.ones(len(order), dtype=bool)
    others[places] = False
    order[others], order[places] = np.arange(rows.height), np.arange(rows.height, len(order))
    marked = rows.with_columns(pl.lit(value=False).alias(CANARY))
    return pl.concat([marked, canaries.select(marked.columns)])[order]


def whole(part: Path) -> pl.DataFrame:
    """Read all rows of a part, canary rows in their places."""
    rows = pl.read_parquet(part)
    return together(rows, pl.read_parquet(canaries_beside(part))) if _divided(part) else rows


def schema(part: Path) -> pl.Schema:
    """Return the columns and types of a part, the mark of canary rows included."""
    found = pl.Schema(pl.read_parquet_schema(part))
    return pl.Schema({**found, CANARY: pl.Boolean()}) if _divided(part) else found


def count(part: Path) -> int:
    """Count the rows of a part, canary rows included.

    Raises:
        OSError: A file is gone.
        ValueError: A file is damaged.
    """
    files = [part, canaries_beside(part)] if _divided(part) else [part]
    return sum(int(pq.read_metadata(file).num_rows) for file in files)


def batches(part: Path) -> Iterator[pl.DataFrame]:
    """Read a part in batches of at most `BATCH_ROWS` rows; canary rows of another file are a batch of their own."""
    if not _divided(part):
        yield from _read(part)
        return
    for batch in _read(part):
        yield batch.with_columns(pl.lit(value=False).alias(CANARY))
    for batch in _read(canaries_beside(part)):
        yield batch.drop(PLACE)


def _read(part: Path) -> Iterator[pl.DataFrame]:
    return pl.scan_parquet(part).collect_batches(chunk_size=BATCH_ROWS, maintain_order=True)


def _divided(part: Path) -> bool:
    return CANARY not in pq.read_schema(part).names and canaries_beside(part).exists()
