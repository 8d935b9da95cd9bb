"""Exchange rows of bytes between tasks: those of one bucket meet in one task, which counts equal digests among them.

A row of the exchange is a pack: cells of one kind, name, and bucket, or anything else for the driver. Digests of one
bucket and name meet in one task, so the counts of all tasks add up (`checks.comparison`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from dptext_etl.buckets import ByteRows
from dptext_etl.checks.comparison import Counted, counted
from dptext_etl.engines.spark.spark_types import local_frame
from dptext_etl.engines.spark.tasks import raise_refused, refused
from dptext_etl.errors import DPTextError, bare, seam
from dptext_etl.runner.shard.records import StagedShard

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "kind string, name string, bucket int, width int, cells binary"
DIGESTS, COUNTS, REFUSED = "digests", "counts", "refused"
"""Kinds of packs: digests to count, counts of digests, and what a task refused."""


class Pack(NamedTuple):
    kind: str  # what is done with it; a task passes on kinds that it does not know
    name: str
    bucket: int  # what all its cells have in common, such as their first bits; any number for other packs
    width: int  # bytes per cell; any number for other packs
    cells: bytes


def computed(action: str, packs: Iterable[Pack]) -> Iterator[Pack]:
    """Compute packs on an executor, with one thread; what is refused goes to the driver as a pack."""
    os.environ.setdefault("DPTEXT_THREADS", "1")
    try:
        with seam(action, DPTextError):
            yield from packs
    except DPTextError as error:
        yield facts_pack(REFUSED, refused(error))


def facts_pack(kind: str, facts: object, name: str = "", bucket: int = -1) -> Pack:
    return Pack(kind, name, bucket, 0, json.dumps(facts).encode())


def packed(name: str, rows: ByteRows) -> Iterator[Pack]:
    """Pack digests by their first byte."""
    order = np.argsort(rows[:, 0], kind="stable")
    ordered, found = rows[order], rows[order, 0]
    edges = [0, *(np.flatnonzero(np.diff(found)) + 1).tolist(), len(rows)]
    for begin, end in pairwise(edges):
        if begin < end:
            yield Pack(DIGESTS, name, int(found[begin]), rows.shape[1], ordered[begin:end].tobytes())


def exchanged(frame: DataFrame) -> DataFrame:
    """Bring the packs of a bucket together in one task, which counts digests."""
    return frame.repartition("bucket").sortWithinPartitions("kind", "name", "bucket").mapInArrow(exchange, SCHEMA)


def collected(frame: DataFrame) -> list[Pack]:
    """Collect packs, and raise what a task refused."""
    packs = [Pack(row[0], row[1], row[2], row[3], bytes(row[4])) for row in frame.collect()]
    for pack in packs:
        if pack.kind == REFUSED:
            raise_refused(json.loads(pack.cells))
    return packs


def totals(packs: Iterable[Pack]) -> dict[str, Counted]:
    """Add up the counts in packs, by what was counted."""
    total: dict[str, Counted] = {}
    for pack in packs:
        if pack.kind == COUNTS:
            total[pack.name] = total.get(pack.name, Counted()).plus(Counted(*json.loads(pack.cells)))
    return total


def batch_of(pack: Pack) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([pack._asdict()], _ARROW)


_ARROW = pa.schema(
    [
        ("kind", pa.string()),
        ("name", pa.string()),
        ("bucket", pa.int32()),
        ("width", pa.int32()),
        ("cells", pa.binary()),
    ]
)


def exchange(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    packs = (Pack(**row) for batch in batches for row in batch.to_pylist())
    for (kind, name), some in groupby(packs, key=lambda pack: pack[:2]):
        yield from map(batch_of, [_counted(name, some)] if kind == DIGESTS else some)  # noqa: B031  (only one of them)


def _counted(name: str, packs: Iterable[Pack]) -> Pack:
    total = Counted()
    for (_, width), some in groupby(packs, key=lambda pack: pack[2:4]):
        total = total.plus(counted(np.frombuffer(b"".join(pack.cells for pack in some), np.uint8).reshape(-1, width)))
    return facts_pack(COUNTS, total, name)


DoShard = Callable[[int, StagedShard], Iterable[Pack]]
"""Does something with a staged shard, which has a place in the order of the run."""
DoText = Callable[[int, str], Iterable[Pack]]


def over_shards(spark: SparkSession, shards: Iterable[StagedShard], do: DoShard) -> DataFrame:
    """Do something with each staged shard on an executor."""
    return over_texts(spark, [json.dumps(shard.as_dict()) for shard in shards], partial(_with_shard, do))


def _with_shard(do: DoShard, place: int, record: str) -> Iterable[Pack]:
    return do(place, StagedShard.from_dict(json.loads(record)))


def over_texts(spark: SparkSession, records: list[str], do: DoText) -> DataFrame:
    from pyspark.sql.types import IntegerType, StringType, StructField, StructType

    schema = StructType([StructField("place", IntegerType()), StructField("shard", StringType())])
    rows = pl.DataFrame({"place": pl.Series(range(len(records)), dtype=pl.Int32), "shard": records})
    frame = local_frame(spark, rows, schema)
    if hasattr(frame, "repartitionById"):
        spread = frame.repartitionById(len(records), "place")
    else:  # before Spark 4.1
        spread = frame.repartitionByRange(len(records), "place")
    return spread.mapInArrow(partial(_done_texts, do), SCHEMA)


@bare
def _done_texts(do: DoText, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    packs = (pack for batch in batches for row in batch.to_pylist() for pack in do(*row.values()))
    yield from map(batch_of, computed("reading staged rows on an executor", packs))
