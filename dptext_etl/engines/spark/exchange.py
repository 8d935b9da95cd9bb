"""Exchange rows of bytes between tasks: those of one bucket meet in one task, which counts equal digests among them.

A row of the exchange is a pack: cells of one kind, name, and bucket, or anything else for the driver. Digests of one
bucket and name meet in one task, so the counts of all tasks add up (`checks.comparison`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl.buckets import ByteRows
from dptext_etl.checks.comparison import Counted, Mismatches, counted
from dptext_etl.engines.spark.spark_types import local_frame
from dptext_etl.engines.spark.tasks import raise_refused, refused
from dptext_etl.errors import DPTextError, bare, seam
from dptext_etl.runner.shard.records import StagedShard

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "kind string, name string, bucket int, width int, cells binary"
DIGESTS, COUNTS, REFUSED = "digests", "counts", "refused"
"""Kinds of packs: digests to count, counts of digests, and what a task refused."""
_BITS = 8
_CELLS_PER_TASK = 1 << 20
"""Each task goes through all batches of a release for the cells that it looks up: so few tasks read less in all."""

Count = TypeVar("Count", Counted, Mismatches)
Buckets = Iterable[tuple[int, ByteRows]]
Work = Callable[[str, Buckets], Iterable["Pack"]]
"""Turns the cells of one name, bucket by bucket, into packs."""


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


def packed(name: str, rows: ByteRows, kind: str = DIGESTS, bits: int = _BITS) -> Iterator[Pack]:
    front = rows[:, 0].astype(np.int64) << 8 | rows[:, 1]
    yield from grouped(name, rows, front >> (16 - bits), kind)


def grouped(name: str, rows: ByteRows, buckets: npt.NDArray[np.int64], kind: str) -> Iterator[Pack]:
    order = np.argsort(buckets, kind="stable")
    ordered, found = rows[order], buckets[order]
    edges = [0, *(np.flatnonzero(np.diff(found)) + 1).tolist(), len(rows)]
    for begin, end in pairwise(edges):
        if begin < end:
            yield Pack(kind, name, int(found[begin]), rows.shape[1], ordered[begin:end].tobytes())


def tasks_for(cells: int) -> int:
    """Return among how many tasks so many cells are spread, so that each holds few."""
    return 1 + cells // _CELLS_PER_TASK


def exchanged(frame: DataFrame, tasks: int | None = None, **work: Work) -> DataFrame:
    """Bring the packs of a bucket together in one task, which counts digests and does the work for other kinds."""
    spread = frame.repartition("bucket") if tasks is None else frame.repartition(tasks, "bucket")
    ordered = spread.sortWithinPartitions("kind", "name", "bucket")
    return ordered.mapInArrow(partial(exchange, {DIGESTS: count_digests, **work}), SCHEMA)


def collected(frame: DataFrame) -> list[Pack]:
    """Collect packs, and raise what a task refused."""
    packs = [Pack(row[0], row[1], row[2], row[3], bytes(row[4])) for row in frame.collect()]
    for pack in packs:
        if pack.kind == REFUSED:
            raise_refused(json.loads(pack.cells))
    return packs


def totals(packs: Iterable[Pack], kind: str, count: type[Count]) -> dict[str, Count]:
    """Add up the counts in packs of a kind, by what was counted."""
    total: dict[str, Count] = {}
    for pack in packs:
        if pack.kind == kind:
            total[pack.name] = total.get(pack.name, count()).plus(count(*json.loads(pack.cells)))
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


def exchange(work: Mapping[str, Work], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    packs = (Pack(**row) for batch in batches for row in batch.to_pylist())
    for (kind, name), some in groupby(packs, key=lambda pack: pack[:2]):
        made = work[kind](name, _buckets(some)) if kind in work else some  # noqa: B031  (only one of them)
        yield from map(batch_of, made)


def count_digests(name: str, buckets: Buckets) -> Iterator[Pack]:
    total = Counted()
    for _, rows in buckets:
        total = total.plus(counted(rows))
    yield facts_pack(COUNTS, total, name)


def _buckets(packs: Iterable[Pack]) -> Iterator[tuple[int, ByteRows]]:
    for (bucket, width), some in groupby(packs, key=lambda pack: pack[2:4]):
        yield bucket, np.frombuffer(b"".join(pack.cells for pack in some), np.uint8).reshape(-1, width)


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
