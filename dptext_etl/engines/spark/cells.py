"""Count digests among all rows of a cluster: tasks pack them by their first byte, others count each pack whole.

A row here is a pack: a name, the number of its bucket, and bytes. Digests of one bucket and name meet in one task, so
the counts of all tasks add up (`checks.repeats`). Packs of other kinds pass unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from dptext_etl.checks.buckets import BUCKETS, Cells
from dptext_etl.checks.repeats import Counted, counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "name string, bucket int, cells binary"
_WIDTH = "w"
"""What stands before the bytes per row in the name of a pack of digests: the second word of "NAME w32"."""


class Pack(NamedTuple):
    """A row that travels between tasks, or to the driver.

    Attributes:
        name: What it holds.
        bucket: The first byte of its digests; any number for other packs.
        cells: The bytes.
    """

    name: str
    bucket: int
    cells: bytes


def packed(name: str, rows: Cells) -> Iterator[Pack]:
    """Pack digests by their first byte.

    Args:
        name: What they are digests of.
        rows: Shape (rows, bytes per row); the digest is in front.
    """
    ordered = rows[np.argsort(rows[:, 0], kind="stable")]
    edges = np.searchsorted(ordered[:, 0], np.arange(BUCKETS + 1))
    for bucket in np.flatnonzero(np.diff(edges)).tolist():
        yield Pack(f"{name} {_WIDTH}{rows.shape[1]}", bucket, ordered[edges[bucket] : edges[bucket + 1]].tobytes())


def batch_of(packs: Iterable[Pack]) -> pa.RecordBatch:
    """Write packs as a batch of `SCHEMA`."""
    names, buckets, cells = zip(*packs, strict=True)
    arrays = [pa.array(names, pa.string()), pa.array(buckets, pa.int32()), pa.array(cells, pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, names=["name", "bucket", "cells"])


def gathered(frame: DataFrame) -> list[Pack]:
    """Count the digests of a frame of packs on the executors, and collect counts and other packs.

    Args:
        frame: Packs, with the columns of `SCHEMA`.
    """
    together = frame.repartition("bucket").sortWithinPartitions("name", "bucket")
    return [Pack(row[0], row[1], bytes(row[2])) for row in together.mapInArrow(_counting, SCHEMA).collect()]


def counts_of(packs: Iterable[Pack]) -> dict[str, Counted]:
    """Add up the counts that `gathered` returned, by what was counted."""
    total: dict[str, Counted] = {}
    for pack in packs:
        if _is_digests(pack.name):
            name = pack.name.rpartition(" ")[0]
            total[name] = total.get(name, Counted()).plus(Counted(*json.loads(pack.cells)))
    return total


def _counting(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for name, packs in groupby(_packs(batches), key=lambda pack: pack.name):
        if not _is_digests(name):
            yield from (batch_of([pack]) for pack in packs)
            continue
        width, total = int(name.rpartition(_WIDTH)[2]), Counted()
        for _, together in groupby(packs, key=lambda pack: pack.bucket):
            rows = np.frombuffer(b"".join(pack.cells for pack in together), np.uint8).reshape(-1, width)
            total = total.plus(counted(rows))
        yield batch_of([Pack(name, -1, json.dumps(total).encode())])


def _packs(batches: Iterator[pa.RecordBatch]) -> Iterator[Pack]:
    for batch in batches:
        columns = (batch.column(at) for at in range(3))
        yield from (Pack(*(cell.as_py() for cell in row)) for row in zip(*columns, strict=True))


def _is_digests(name: str) -> bool:
    return name.rpartition(" ")[2].startswith(_WIDTH)
