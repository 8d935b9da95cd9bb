"""Read the rows of a staged part, canary rows among them, in one file or in two.

A part whose rows are published as they are staged holds those rows alone, byte for byte as readers will get them. Its
canary rows stand in a file beside it. Any other part holds both, and a column that marks canary rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from dptext_etl.arrays import to_arrow
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
    places = pl.Series(PLACE, to_arrow(np.flatnonzero(marked.to_numpy()).astype(np.uint32)))
    others = [name for name in frame.columns if name != CANARY]
    return frame[others].filter(~marked), pl.DataFrame([*frame[places].get_columns(), places])


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


def canary_rows(batch: pl.DataFrame) -> pl.DataFrame:
    """Return the marked rows of a batch. Most batches hold none, or nothing else: that is told without a query."""
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


def batches(*parts: Path) -> Iterator[pl.DataFrame]:
    """Read parts in batches of at most `BATCH_ROWS` rows; canary rows of other files come last, few of them together.

    Args:
        parts: The parts; their rows come in this order.
    """
    beside = []
    for part in parts:
        if _divided(part):
            yield from (batch.with_columns(pl.lit(value=False).alias(CANARY)) for batch in _read(part))
            beside.append(canaries_beside(part))
        else:
            yield from _read(part)
    yield from _gathered(batch.drop(PLACE) for file in beside for batch in _read(file))


def _gathered(batches: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Put small batches of the same columns together."""
    held, rows = list[pl.DataFrame](), 0
    for batch in batches:
        if held and (rows + batch.height > BATCH_ROWS or batch.schema != held[0].schema):
            yield pl.concat(held)
            held, rows = [], 0
        held.append(batch)
        rows += batch.height
    if held:
        yield pl.concat(held)


def _read(part: Path) -> Iterator[pl.DataFrame]:
    return pl.scan_parquet(part).collect_batches(chunk_size=BATCH_ROWS, maintain_order=True)


def _divided(part: Path) -> bool:
    return CANARY not in pq.read_schema(part).names and canaries_beside(part).exists()
