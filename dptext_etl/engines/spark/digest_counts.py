"""Count digests among all rows of a cluster: tasks pack them by their first bits, others count each pack whole.

A row here is a pack: a name, the number of its bucket, and bytes. Digests of one bucket and name meet in one task, so
the counts of all tasks add up (`checks.comparison`). The last word of a name says what is done with the pack; packs of
other kinds pass unchanged.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl import errors
from dptext_etl.checks.comparison import Cells, Counted, counted
from dptext_etl.engines.spark.shards import local_frame
from dptext_etl.errors import DPTextError, bare, seam
from dptext_etl.runner.shard.records import StagedShard

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


SCHEMA = "name string, bucket int, cells binary"
DIGESTS = "w"
"""Kind of the packs of digests that are counted. Width in bytes follows: "NAME w32"."""
COUNTS = "counts"
"""Kind of the packs that hold counts of digests."""
_BITS = 8
_CELLS_PER_TASK = 1 << 18

Work = Callable[[str, Iterable[tuple[int, Cells]]], Iterable["Pack"]]
"""Turns the cells of one name, bucket by bucket, into packs."""


class Pack(NamedTuple):
    """A row that travels between tasks, or to the driver."""

    name: str  # what it holds
    bucket: int  # what all its cells have in common, such as their first bits; any number for other packs
    cells: bytes


def packed(name: str, rows: Cells, kind: str = DIGESTS, bits: int = _BITS) -> Iterator[Pack]:
    """Pack rows by their first bits."""
    front = rows[:, 0].astype(np.int64) << 8 | rows[:, 1]
    yield from grouped(name, rows, front >> (16 - bits), kind)


def grouped(name: str, rows: Cells, buckets: npt.NDArray[np.int64], kind: str) -> Iterator[Pack]:
    """Pack rows by bucket."""
    order = np.argsort(buckets, kind="stable")
    ordered, found = rows[order], buckets[order]
    edges = [0, *(np.flatnonzero(np.diff(found)) + 1).tolist(), len(rows)]
    for begin, end in pairwise(edges):
        if begin < end:
            yield Pack(f"{name} {kind}{rows.shape[1]}", int(found[begin]), ordered[begin:end].tobytes())


def tasks_for(cells: int) -> int:
    """Return among how many tasks so many cells are spread, so that each holds few."""
    return 1 + cells // _CELLS_PER_TASK


def batch_of(packs: Iterable[Pack]) -> pa.RecordBatch:
    """Write packs as a batch of `SCHEMA`."""
    names, buckets, cells = zip(*packs, strict=True)
    arrays = [pa.array(names, pa.string()), pa.array(buckets, pa.int32()), pa.array(cells, pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, names=["name", "bucket", "cells"])


def exchanged(frame: DataFrame, tasks: int | None = None, **work: Work) -> DataFrame:
    """Bring the packs of a bucket together in one task, which counts digests and does what is asked for other kinds."""
    spread = frame.repartition("bucket") if tasks is None else frame.repartition(tasks, "bucket")
    return spread.sortWithinPartitions("name", "bucket").mapInArrow(partial(_done, work), SCHEMA)


def collected(frame: DataFrame) -> list[Pack]:
    """Collect packs; those of digests must have been counted."""
    return [Pack(row[0], row[1], bytes(row[2])) for row in frame.collect()]


def counts_of(packs: Iterable[Pack]) -> dict[str, Counted]:
    """Add up the counts of digests, by what was counted."""
    total: dict[str, Counted] = {}
    for name, counts in of_kind(packs, COUNTS):
        total[name] = total.get(name, Counted()).plus(Counted(*counts))
    return total


def of_kind(packs: Iterable[Pack], wanted: str) -> Iterator[tuple[str, list[int]]]:
    """Yield what packs of one kind counted, with the name of what was counted."""
    for pack in packs:
        name, _, kind = pack.name.rpartition(" ")
        if kind == wanted:
            yield name, json.loads(pack.cells)


def _done(work: Mapping[str, Work], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for name, packs in groupby(_packs(batches), key=lambda pack: pack.name):
        what, kind, width = _parsed(name)
        if kind == DIGESTS:
            yield batch_of([_counting(what, _buckets(packs, width))])
        elif kind in work:
            yield from (batch_of([pack]) for pack in work[kind](what, _buckets(packs, width)))
        else:
            yield from (batch_of([pack]) for pack in packs)


def _counting(name: str, buckets: Iterable[tuple[int, Cells]]) -> Pack:
    total = Counted()
    for _, rows in buckets:
        total = total.plus(counted(rows))
    return Pack(f"{name} {COUNTS}", -1, json.dumps(total).encode())


def _buckets(packs: Iterable[Pack], width: int) -> Iterator[tuple[int, Cells]]:
    for bucket, together in groupby(packs, key=lambda pack: pack.bucket):
        yield bucket, np.frombuffer(b"".join(pack.cells for pack in together), np.uint8).reshape(-1, width)


def _packs(batches: Iterator[pa.RecordBatch]) -> Iterator[Pack]:
    for batch in batches:
        columns = (batch.column(at) for at in range(3))
        yield from (Pack(*(cell.as_py() for cell in row)) for row in zip(*columns, strict=True))


def _parsed(name: str) -> tuple[str, str, int]:
    """Take the name of a pack of cells apart: what they are, their kind, and bytes per cell; no kind for others."""
    what, _, last = name.rpartition(" ")
    return (what, last[0], int(last[1:])) if last[1:].isdigit() else (name, "", 0)


Do = Callable[[int, StagedShard], Iterable[Pack]]
"""Does something with a staged shard, which has a place in the order of the run."""
DoText = Callable[[int, str], Iterable[Pack]]
"""Does something with a text of ours, which has a place in the order of the run."""

_REFUSED = "refused"


def over_shards(spark: SparkSession, shards: Iterable[StagedShard], do: Do) -> DataFrame:
    """Do something with each staged shard on an executor."""
    return over_texts(spark, [json.dumps(shard.as_dict()) for shard in shards], partial(_with_shard, do))


def over_texts(spark: SparkSession, records: list[str], do: DoText) -> DataFrame:
    """Do something with each text of ours on an executor, one per task."""
    from pyspark.sql.types import IntegerType, StringType, StructField, StructType

    schema = StructType([StructField("place", IntegerType()), StructField("shard", StringType())])
    rows = pl.DataFrame({"place": pl.Series(range(len(records)), dtype=pl.Int32), "shard": records})
    frame = local_frame(spark, rows, schema)
    if hasattr(frame, "repartitionById"):
        spread = frame.repartitionById(len(records), "place")
    else:  # before Spark 4.1
        spread = frame.repartitionByRange(len(records), "place")
    return spread.mapInArrow(_task(do), SCHEMA)


def refuse(packs: Iterable[Pack]) -> None:
    """Raise what an executor refused with its type and message."""
    for pack in packs:
        if pack.name == _REFUSED:
            name, message, hint = json.loads(pack.cells)
            raise getattr(errors, name, DPTextError)(message, hint)


def _with_shard(do: Do, place: int, record: str) -> Iterable[Pack]:
    return do(place, StagedShard.from_dict(json.loads(record)))


def _task(do: DoText) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for pack in _done_texts(do, batches):
            yield batch_of([pack])

    return work


@bare
def _done_texts(do: DoText, batches: Iterator[pa.RecordBatch]) -> Iterator[Pack]:
    os.environ.setdefault("DPTEXT_THREADS", "1")
    try:
        with seam("reading staged rows on an executor", DPTextError):
            for batch in batches:
                for place, record in zip(*(_values(batch, at) for at in range(2)), strict=True):
                    yield from do(place, record)
    except DPTextError as failure:
        yield refusal(failure)


def refusal(failure: DPTextError) -> Pack:
    """Write a refusal of ours as a pack, which `refuse` reads."""
    if type(failure) is DPTextError:
        raise failure
    return Pack(_REFUSED, -1, json.dumps([type(failure).__name__, failure.message, failure.hint]).encode())


def _values(batch: pa.RecordBatch, at: int) -> list[Any]:
    values: list[Any] = batch.column(at).to_pylist()
    return values
