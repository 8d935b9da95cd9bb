"""Carry out orders about staged shards on the executors, one shard per task, and bring back packs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from dptext_etl import errors
from dptext_etl.engines.spark.digest_counts import SCHEMA, Pack, batch_of
from dptext_etl.engines.spark.shards import local_frame
from dptext_etl.errors import DPTextError, bare, seam
from dptext_etl.runner.shard.records import StagedShard

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    return do(place, StagedShard.from_json(record))


def _task(do: DoText) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for pack in _done(do, batches):
            yield batch_of([pack])

    return work


@bare
def _done(do: DoText, batches: Iterator[pa.RecordBatch]) -> Iterator[Pack]:
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
