"""Assign the rows of a frame to shards by their ids, so that every attempt gets the same shards.

If caps are per subject, all rows of a subject are in one shard. The cap then admits rows in the order of their record
ids, whatever order the tasks run in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from dptext_etl.checks.canaries import CANARY, CanaryPlan
from dptext_etl.errors import InputError, seam
from dptext_etl.id_forms import spelling
from dptext_etl.policy import Policy
from dptext_etl.runner.shard.canaries import by_shard
from dptext_etl.runner.source.examine import Examined
from dptext_etl.runner.source.roles import wanted_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

SHARD = "__dptext_shard"
"""Column that holds the number of a row's shard for the tasks."""
_DEVIATIONS = 4
"""Standard deviations of spare room per shard: shards of hashed rows differ in size but stay below `shard_rows`."""


def numbers(source: Examined[DataFrame], policy: Policy) -> range:
    """Return the numbers of the shards of a source."""
    first, rows, most = source.first, source.wanted, policy.shard_rows
    if not rows:
        return range(first, first)
    room = max(1, most - _DEVIATIONS * math.isqrt(most))
    return range(first, first + (1 if rows <= most else -(-rows // room)))


def named(name: str) -> Column:
    """Return a column by its exact name, dots and blanks included."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.col(f"`{name.replace('`', '``')}`")


def planted(frame: DataFrame, plans: Sequence[CanaryPlan], shards: range, policy: Policy) -> DataFrame:
    """Add the canary rows of all shards to a frame, and group the rows of a shard in the order of their ids."""
    own = _numbered(frame, shards, policy, by_person=policy.cap is not None)
    whole = own.unionByName(_canaries(frame, by_shard(plans, shards), policy)) if plans else own
    return _grouped(whole, shards, policy)


def spread(frame: DataFrame, shards: range, policy: Policy) -> DataFrame:
    """Group the rows of a shard in the order of their ids, with all rows of a person in one shard."""
    return _grouped(_numbered(frame, shards, policy, by_person=True), shards, policy)


def _numbered(frame: DataFrame, shards: range, policy: Policy, *, by_person: bool) -> DataFrame:
    """Add the number of its shard to each row, and the mark that it is no canary row."""
    from pyspark.sql import functions as F  # noqa: N812

    key = named(policy.id_columns.get("subject", policy.id) if by_person else policy.id)
    if by_person and policy.normalize:
        key = F.udf(partial(spelling, how=policy.normalize), "string", useArrow=False)(key.cast("string"))
    place = F.xxhash64(key)
    if policy.on_null_subject == "own":  # rows without a person are persons of their own, and stand among all others
        place = F.when(key.isNull(), F.xxhash64(named(policy.id))).otherwise(place)
    shard = (F.pmod(place, F.lit(len(shards))) + F.lit(shards[0])).cast("int")
    return frame.select("*", F.lit(False).alias(CANARY), shard.alias(SHARD))


def _grouped(whole: DataFrame, shards: range, policy: Policy) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    first, count = shards[0], len(shards)
    if hasattr(whole, "repartitionById"):
        spread = whole.repartitionById(count, (F.col(SHARD) - F.lit(first)).cast("int"))
    else:  # before Spark 4.1
        spread = whole.repartitionByRange(count, SHARD)
    ordered = spread.sortWithinPartitions(F.col(SHARD), named(policy.id))
    return ordered.toDF(*(f"c{at}" for at in range(len(whole.columns) - 2)), CANARY, SHARD)


def _canaries(frame: DataFrame, sets: Mapping[int, Sequence[CanaryPlan]], policy: Policy) -> DataFrame:
    from pyspark.sql.types import BooleanType, IntegerType, StructField, StructType

    fields = [StructField(field.name, field.dataType, nullable=True) for field in frame.schema.fields]
    schema = StructType([*fields, StructField(CANARY, BooleanType()), StructField(SHARD, IntegerType())])
    plans = [plan for some in sets.values() for plan in some]
    rows = [row for plan in plans for row in plan.rows]
    cells: dict[str, pl.Series] = {
        policy.id: pl.concat([plan.ids() for plan in plans]),
        **{item.name: pl.Series([row.texts[item.name] for row in rows], dtype=pl.String) for item in policy.columns},
        CANARY: pl.Series([True] * len(rows), dtype=pl.Boolean),
        SHARD: pl.Series([shard for shard, some in sets.items() for plan in some for _ in plan.rows], dtype=pl.Int32),
    }
    nothing = pl.Series([None] * len(rows), dtype=pl.Null)
    whole = pl.DataFrame({field.name: cells.get(field.name, nothing) for field in schema.fields})
    with seam("adding canary rows"):
        return local_frame(frame.sparkSession, whole, schema)


def local_frame(spark: SparkSession, rows: pl.DataFrame, schema: StructType) -> DataFrame:
    """Make a frame of rows that the driver holds; from Spark 4.0 on, no Python worker takes part in reading them."""
    import pyspark

    if pyspark.__version__ < "4":
        return spark.createDataFrame(rows.rows(), schema)
    return spark.createDataFrame(rows.to_arrow(compat_level=pl.CompatLevel.oldest()), schema)


def pieces(
    batches: Iterable[pa.RecordBatch], names: tuple[str, ...], most: int, step: int
) -> Iterator[tuple[int, pl.DataFrame]]:
    """Cut the rows of a task, which come shard by shard, into numbered frames that are computed together."""
    held: list[pl.DataFrame] = []
    count, shard, number = 0, -1, -1
    for batch in batches:
        table = pl.DataFrame(batch)
        table.columns = [*names, CANARY, SHARD]
        for part in table.partition_by(SHARD, maintain_order=True):
            if part[SHARD][0] != shard:
                if count:
                    yield number, _whole(held)
                held, count = [], 0
                number = shard = part[SHARD][0]
            held.append(part.drop(SHARD))
            count += part.height
            while count > most:
                rows = _whole(held)
                yield number, rows.head(most)
                held, count, number = [rows.slice(most)], count - most, number + step
    if count:
        yield number, _whole(held)


def _whole(frames: list[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(frames).rechunk()


def require_free_names(frame: DataFrame, policy: Policy) -> None:
    """Refuse a frame that has columns with our names, or two columns with one name."""
    for name in (CANARY, SHARD):
        if name in frame.columns:
            raise InputError(f"the column {name} is ours", "rename it in the source")
    twice = sorted(name for name in wanted_columns(policy) if frame.columns.count(name) > 1)
    if twice:
        said = ", ".join(map(repr, twice))
        raise InputError(f"the frame has several columns {said}", "select or rename them before")
