"""Cut rows in their order into shards and parts, bounded by rows and bytes.

Where a shard ends follows only from the rows, so every attempt at a run over the same source gets the same shards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from dptext_etl.data_types import size_of
from dptext_etl.policy import Policy
from dptext_etl.runner.shard.charging import refunds
from dptext_etl.runner.source.table import batches

READ_ROWS = 1 << 14
"""Rows that are read at a time; shards are put together from them."""
COUNT_ROWS = 1 << 18
"""Rows whose sizes are counted at a time."""
KEPT_BYTES, KEPT_ROWS = 64 << 20, 1 << 19
"""The most bytes of strings, and rows, that are kept in memory from when they are examined until they are computed."""
ANY_SIZE = 1 << 62
"""More bytes than there are."""

Sizes = npt.NDArray[np.int64]


class Cutter:
    """Say where shards begin in rows that come batch by batch. A single row that is too large is a separate shard."""

    def __init__(self, rows: int, size: int) -> None:
        self._most = (rows, size)
        self._rows = self._size = 0

    def begins(self, sizes: Sizes) -> list[int]:
        """Return the places in a batch at which another shard begins; a batch at the start begins none.

        >>> cutter = Cutter(rows=3, size=100)
        >>> cutter.begins(np.array([40, 60, 1, 1, 1, 1, 500, 2])), cutter.begins(np.array([98, 1]))
        ([2, 5, 6, 7], [1])
        """
        ends = np.cumsum(sizes)
        places, at = [], 0
        while at < len(sizes):
            before = int(ends[at - 1]) if at else 0
            by_size = int(np.searchsorted(ends, before + self._most[1] - self._size, side="right"))
            end = min(by_size, at + self._most[0] - self._rows, len(sizes))
            if end <= at and not self._rows:
                end = at + 1
            if end > at:
                self._rows += end - at
                self._size += int(ends[end - 1]) - before
            at = max(at, end)
            if at < len(sizes):
                places.append(at)
                self._rows = self._size = 0
        return places


class ShardCount:
    """Counts the shards of rows whose sizes come batch by batch."""

    def __init__(self, policy: Policy) -> None:
        self._cutter, self._begun, self._rows = Cutter(*bounds(policy)), 0, 0

    def add(self, sizes: pl.Series) -> None:
        self._begun += len(self._cutter.begins(sizes.to_numpy()))
        self._rows += len(sizes)

    @property
    def shards(self) -> int:
        return self._begun + (self._rows > 0)


def count(frame: pl.LazyFrame, policy: Policy) -> int:
    """Count the shards of a source; only the lengths of its texts are held in memory."""
    counter = ShardCount(policy)
    for batch in batches(frame.select(size_of(frame.collect_schema())), COUNT_ROWS):
        counter.add(batch["size"])
    return counter.shards


def kept(frame: pl.LazyFrame) -> pl.DataFrame | None:
    """Read the rows of a source into memory, so that they are read once; None if they are many."""
    schema, frames, size = frame.collect_schema(), list[pl.DataFrame](), 0
    for batch in batches(frame, READ_ROWS):
        size += int(batch.select(size_of(schema).sum()).item())
        frames.append(batch)
        if size > KEPT_BYTES or len(frames) * READ_ROWS > KEPT_ROWS:
            return None
    return pl.concat(frames) if frames else schema.to_frame()


def shards(frame: pl.LazyFrame, policy: Policy) -> Iterator[pl.DataFrame]:
    return pieces(frame, *bounds(policy))


def bounds(policy: Policy) -> tuple[int, int]:
    """Return the most rows of a shard, and the most bytes of its texts.

    Where the ledger gives back draws, commits of a shard decide which rows of the next one fit the cap. Then only the
    number of rows ends a shard, so that the admitted rows do not depend on the lengths of texts.
    """
    return policy.shard_rows, ANY_SIZE if refunds(policy) else policy.shard_bytes


def pieces(frame: pl.LazyFrame, rows: int, size: int) -> Iterator[pl.DataFrame]:
    return cut(batches(frame, min(rows, READ_ROWS)), rows, size)


def cut(frames: Iterable[pl.DataFrame], rows: int, size: int) -> Iterator[pl.DataFrame]:
    """Cut rows that come frame by frame; how they are divided into frames does not matter."""
    cutter = Cutter(rows, size)
    slices: list[pl.DataFrame] = []
    for batch in frames:
        at = 0
        for begin in cutter.begins(batch.select(size_of(batch.schema))["size"].to_numpy()):
            slices.append(batch.slice(at, begin - at))
            yield pl.concat(slices)
            slices, at = [], begin
        if at < batch.height:
            slices.append(batch.slice(at))
    if slices:
        yield pl.concat(slices)
