"""Read the rows of staged shards: released rows, and canary rows with a mark, in one Parquet file per shard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from dptext_etl.checks.canaries.rows import CANARY

BATCH_ROWS = 20_000
"""Rows that are held in memory at a time."""


def canary_rows(batch: pl.DataFrame) -> pl.DataFrame:
    """Return the marked rows of a batch. Most batches hold none, or nothing else: that is known without a query."""
    marks = batch[CANARY]
    if not marks.any():
        return batch.clear()
    return batch if marks.all(ignore_nulls=False) else batch.filter(marks)


def other_rows(batch: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of a batch that are not marked, also where a mark is missing."""
    marks = batch[CANARY]
    if not marks.any():
        return batch
    return batch.clear() if marks.all(ignore_nulls=False) else batch.filter(~marks.fill_null(value=False))


def with_id(batch: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return the rows of a batch that have an id."""
    ids = batch[name]
    return batch.filter(ids.is_not_null()) if ids.null_count() else batch


def count(part: Path) -> int:
    """Count the rows of a shard, canary rows included."""
    return int(pq.read_metadata(part).num_rows)


def batches(*parts: Path) -> Iterator[pl.DataFrame]:
    """Read shards in order, in batches of at most `BATCH_ROWS` rows."""
    for part in parts:
        yield from pl.scan_parquet(part).collect_batches(chunk_size=BATCH_ROWS, maintain_order=True)
