"""Examine a frame on the executors, read published ids there, and assign rows to shards by their ids.

Every attempt gets the same shards. If caps are per subject, all rows of a subject are in one shard: the cap then admits
rows in the order of their record ids, whatever order the tasks run in.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from dptext_etl.arrays import to_arrow
from dptext_etl.checks.canaries import CANARY, CanaryPlan, by_shard
from dptext_etl.checks.comparison import short_digests
from dptext_etl.data_types import named_as, plain_type
from dptext_etl.engines.spark.spark_types import local_frame, named, polars_schema
from dptext_etl.errors import InputError, bare, seam
from dptext_etl.id_forms import IdForm, Normalization, normalized, spelling
from dptext_etl.keys import canonical_ids
from dptext_etl.policy import Policy
from dptext_etl.policy.terms import Kept
from dptext_etl.runner import table_check
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish import own_ids
from dptext_etl.runner.publish.manifest import Manifest
from dptext_etl.runner.source.column_types import coarse
from dptext_etl.runner.source.examine import Examined, IdCounts, refuse_ids
from dptext_etl.runner.source.roles import Table, check_roles, coarse_schema, pinned_orders, wanted_columns
from dptext_etl.runner.source.selection import PAIRS, STAYS, Order, by_digest, require_plain, sum_of_pairs
from dptext_etl.runner.source.table import hidden_by
from dptext_etl.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


_HINT = "check that all published parts exist, and that executors can read them"


def published_ids(table: Table[DataFrame], policy: Policy, layout: Layout, manifest: Manifest) -> DataFrame:
    """Return a frame of one column, which has name and type of the frame's ids."""
    if manifest.file_format != "parquet":
        msg = "an incremental run on Spark can only compare with published parts in Parquet files"
        raise InputError(msg, "set incremental = false: published rows cost nothing a second time")
    if policy.ids == "keep":
        storage, column, names = layout.published, policy.id, [part.path for part in manifest.parts]
    else:
        require_plain(policy, table.schema[policy.id])
        storage, column = layout.staging, "id"
        names = own_ids.lists_of(layout.staging, policy.ledger, (part.sha256 for part in manifest.parts))
    rows = table.frame
    with seam("reading the ids that are published", InputError, _HINT):
        if storage.remote:
            return _from_store(rows, policy.id, storage, column, names)
        if policy.ids != "keep":
            for name in names:
                own_ids.read(storage, name)
        paths = [f"file://{storage.absolute().folder / name}" for name in names]
        kind = rows.schema[policy.id].dataType
        return rows.sparkSession.read.parquet(*paths).select(named(column).cast(kind).alias(policy.id))


def _from_store(rows: DataFrame, id_column: str, storage: Storage, column: str, names: list[str]) -> DataFrame:
    """Let every task read the ids of some objects with the library that wrote them."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StringType, StructField, StructType

    schema = rows.select(named(id_column)).schema
    listed = local_frame(
        rows.sparkSession, pl.DataFrame({"name": names}), StructType([StructField("name", StringType())])
    )
    read = partial(_ids, storage, column, to_arrow_schema(schema))
    return listed.repartition(len(names)).mapInArrow(read, schema)


@bare
def _ids(
    storage: Storage, column: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    os.environ.setdefault("DPTEXT_THREADS", "1")
    kind = pl.Series(pa.array([], schema.field(0).type)).dtype
    with seam("reading the ids that are published", InputError, _HINT):
        for batch in batches:
            for name in batch.column(0).to_pylist():
                with storage.with_own_copies() as own:
                    if column == "id" and name.endswith(".ids"):
                        found = own_ids.read(own, name)
                    else:
                        table = pl.read_parquet(own.local_path(name), columns=[column])
                        found = table.select(named_as(pl.col(column), kind)).to_series()
                    ids = found.drop_nulls().to_arrow(compat_level=pl.CompatLevel.oldest()).cast(schema.field(0).type)
                    yield pa.RecordBatch.from_arrays([ids], schema=schema)


HINT = "check that the frame itself can be computed; Spark's own log says more"


def open_table(frame: DataFrame, policy: Policy, layout: Layout) -> Table[DataFrame]:
    require_free_names(frame, policy)
    schema = pl.Schema({n: plain_type(dtype) for n, dtype in polars_schema(frame, wanted_columns(policy)).items()})
    dropped, kind = check_roles(policy, schema, layout, lambda: hidden_by(frame.columns, lambda: _compared(frame)))
    rows = _in_pinned_order(_without_void(frame), schema, policy)
    return Table(rows, coarse_schema(polars_schema(rows), policy), dropped, kind)


def _compared(frame: DataFrame) -> tuple[int, bool]:
    """Return the number of rows, and whether a column of texts or booleans holds its own name."""
    from pyspark.sql import functions as F  # noqa: N812

    found = F.lit(False)
    for field in frame.schema.fields:
        if field.dataType.typeName() in {"string", "boolean", "varchar", "char"}:
            cell = F.lower(F.trim(named(field.name).cast("string")))
            found = found | F.coalesce(cell == field.name.lower(), F.lit(False))
    count, equal = frame.agg(F.count(F.lit(1)), F.max(found)).collect()[0]
    return count, bool(equal)


def _without_void(frame: DataFrame) -> DataFrame:
    """Return a frame whose columns without a type hold null texts."""
    void = [field.name for field in frame.schema.fields if field.dataType.typeName() == "void"]
    return frame.withColumns({name: named(name).cast("string") for name in void}) if void else frame


def examine(table: Table[DataFrame], policy: Policy, layout: Layout, order: Order | None = None) -> Examined[DataFrame]:
    """Check ids and subjects of a frame; in an incremental run, leave out rows that are published already."""
    return Examined.of(
        table,
        policy,
        layout,
        check=partial(check, table.frame, policy),
        with_persons=partial(with_persons, policy=policy),
        without=lambda rows, manifest: _unpublished(replace(table, frame=rows), policy, layout, manifest),
        at_most=lambda rows, most: at_most(rows, policy, most, order or by_digest),
    )


def present(source: Examined[DataFrame], ids: pl.Series) -> pl.Series:
    """Return those of the given ids that the frame uses, in published rows as well."""
    from pyspark.sql import functions as F  # noqa: N812

    frame, name = source.table.frame, ids.name
    with seam("comparing canary ids with those of the frame", InputError, HINT):
        asked = local_frame(frame.sparkSession, pl.DataFrame({name: ids}), frame.select(named(name)).schema)
        found = frame.select(named(name)).join(F.broadcast(asked), on=name, how="left_semi").collect()
        return pl.Series(name, [row[0] for row in found], dtype=ids.dtype)


def with_persons(rows: DataFrame, policy: Policy) -> DataFrame:
    return rows.filter(named(str(policy.subject)).isNotNull())


def check(rows: DataFrame, policy: Policy) -> tuple[int, int]:
    """Check the ids and subjects of a frame, and return its rows, and how many of them have no subject."""
    from pyspark.sql import functions as F  # noqa: N812

    per_subject = policy.subject is not None and policy.unit == "subject"
    unknown = named(policy.subject).isNull() if per_subject and policy.subject else F.lit(False)
    with seam("reading the ids of the frame", InputError, HINT):
        counts = _count_ids(rows.select(named(policy.id), unknown))
    refuse_ids(policy, counts)
    _require_utf8(rows, policy)
    return counts.rows, counts.null_subjects


def _require_utf8(rows: DataFrame, policy: Policy) -> None:
    """Refuse kept columns with strings that are not UTF-8, which Spark passes on: nothing else reads them before."""
    types = {field.name: field.dataType.json() for field in rows.schema.fields}
    names = [name for name in policy.kept_columns if "string" in types[name]]
    if not names:
        return
    with seam("reading the kept columns of the frame", InputError, HINT):
        plain = rows.select(*map(named, names)).toDF(*(f"c{at}" for at in range(len(names))))
        found = {row[0] for row in plain.mapInArrow(_not_utf8, "place int").distinct().collect()}
    if found:
        wrong = ", ".join(repr(names[place]) for place in sorted(found))
        msg = f"strings of the kept columns {wrong} are not UTF-8; nothing was spent"
        raise InputError(msg, "decode them in the source, or do not keep the column")


@bare
def _not_utf8(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the places of columns that hold strings that are not UTF-8."""
    for batch in batches:
        places = [place for place, column in enumerate(batch.columns) if not _is_utf8(column)]
        yield pa.RecordBatch.from_pydict({"place": pa.array(places, pa.int32())})


def _is_utf8(column: pa.Array) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _unpublished(table: Table[DataFrame], policy: Policy, layout: Layout, manifest: Manifest) -> tuple[DataFrame, int]:
    published = published_ids(table, policy, layout, manifest)
    with seam("comparing the frame with what is published", InputError, HINT):
        new = table.frame.join(published, on=policy.id, how="left_anti")
        return new, new.count()


def at_most(rows: DataFrame, policy: Policy, most: int, order: Order) -> tuple[DataFrame, int, int]:
    """Leave out the records of a person beyond the first `most`, as `runner.source.selection` does."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    pairs = rows.select(named(policy.id), named(str(policy.subject))).filter(named(str(policy.subject)).isNotNull())
    schema = pairs.select(F.col(pairs.columns[0]).alias("id")).schema.add("person", "binary").add("place", "binary")
    by_person = Window.partitionBy("person").orderBy("place")
    placed = pairs.toDF("id", "person").mapInArrow(partial(_places, policy.normalize, order), schema)
    beyond = placed.withColumn("number", F.row_number().over(by_person)).filter(F.col("number") > most)
    if policy.per_subject is not None:
        beyond = beyond.filter(~F.col("place").startswith(F.lit(bytearray(STAYS))))
    left = rows.join(beyond.select(F.col("id").alias(policy.id)), on=policy.id, how="left_anti")
    chosen = left.select(named(policy.id), named(str(policy.subject)))
    sums = chosen.mapInArrow(partial(_pairs, policy.normalize), "rows long, pairs string")
    with seam("choosing the records of each person", InputError, HINT):
        found = sums.collect()
    return left, sum(row[0] for row in found), sum(int(row[1], 16) for row in found) % PAIRS


def _in_pinned_order(frame: DataFrame, schema: pl.Schema, policy: Policy) -> DataFrame:
    """Return the wanted columns of a frame, the fields of composite ids in the pinned order."""
    orders = pinned_orders(schema, policy)
    columns = ((name, named(name)) for name in wanted_columns(policy))
    return frame.select(
        *(_ordered(item, orders[name]).alias(name) if name in orders else item for name, item in columns)
    )


def _ordered(column: Column, form: IdForm) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    if not form.fields:
        return column
    fields = (_ordered(column.getField(name), inner).alias(name) for name, inner in form.fields)
    return F.when(column.isNotNull(), F.struct(*fields))


def _count_ids(frame: DataFrame) -> IdCounts:
    """Count ids in one job: digests travel between executors, and counts alone come back."""
    from pyspark.sql import functions as F  # noqa: N812

    digests = frame.toDF("id", "subject").mapInArrow(_digests, "high long, low long, unknown boolean")
    ids = digests.groupBy("high", "low").agg(F.count("*").alias("rows"), F.count_if("unknown").alias("unknown"))
    known = F.col("high").isNotNull()
    rows, gaps, unknown = F.sum("rows"), F.sum(F.when(~known, F.col("rows"))), F.sum("unknown")
    (found,) = ids.agg(rows, gaps, unknown, F.count_if(known & (F.col("rows") > 1))).collect()
    return IdCounts(*(count or 0 for count in found))


@bare
def _digests(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    os.environ.setdefault("DPTEXT_THREADS", "1")
    with seam("counting ids on an executor", InputError):
        for batch in batches:
            ids, unknown = batch.columns
            known = pl.Series(canonical_ids(ids.drop_null()), dtype=pl.String)
            halves = short_digests(known).view("<i8")  # Spark groups by numbers faster than by bytes
            nulls = pa.nulls(ids.null_count, pa.int64())  # at the end: the order of rows does not matter here
            high, low = (pa.concat_arrays([to_arrow(halves[:, at]), nulls]) for at in (0, 1))
            yield pa.RecordBatch.from_arrays([high, low, unknown], ["high", "low", "unknown"])


@bare
def _places(how: Sequence[Normalization], order: Order, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add to ids a digest of the person and the place of the record among theirs."""
    with seam("counting the records of each person on an executor", InputError):
        for batch in batches:
            ids, persons = batch.column(0), normalized(batch.column(1), how)
            digests = [by_digest(canonical_ids(persons)), order(canonical_ids(ids))]
            binary = [pa.array(found.to_list(), pa.binary()) for found in digests]
            yield pa.RecordBatch.from_arrays([ids, *binary], ["id", "person", "place"])


@bare
def _pairs(how: Sequence[Normalization], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count the records of a task, and add up their digests with their persons."""
    with seam("counting the records of each person on an executor", InputError):
        for batch in batches:
            named_rows = batch.filter(batch.column(1).is_valid())
            persons = canonical_ids(normalized(named_rows.column(1), how))
            pairs = sum_of_pairs(canonical_ids(named_rows.column(0)), persons)
            yield pa.RecordBatch.from_pydict(
                {"rows": pa.array([batch.num_rows], pa.int64()), "pairs": [f"{pairs:032x}"]}
            )


def traced(source: Examined[DataFrame], policy: Policy) -> dict[str, Any]:
    """Count the rows that kept columns single out, in one aggregate over hashes of the values that are published."""
    from pyspark.sql import functions as F  # noqa: N812

    names, (rows, number) = policy.kept_columns, source.shown
    if not policy.keep:
        return {}
    groups = table_check.groups_of(names)
    plain = rows.select(*map(named, names)).toDF(*(f"c{at}" for at in range(len(names))))
    hashed = plain.mapInArrow(partial(_hashes, policy.kept, groups), "place int, hash long")
    size = F.col("rows")
    sums = F.count_if(size == 1), F.sum(F.when(size < table_check.FEW, size).otherwise(0))
    with seam("counting the rows that kept columns single out", InputError, HINT):
        found = hashed.groupBy("place", "hash").agg(F.count("*").alias("rows")).groupBy("place").agg(*sums).collect()
    counts = {place: (single, few) for place, single, few in found}
    by_group = [counts.get(place, (0, 0)) for place in range(len(groups))]
    return table_check.of_source(policy, number, by_group, source.table.schema)


@bare
def _hashes(
    kept: Sequence[Kept], groups: table_check.Groups, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the hashes of the values of each group of kept columns, after coarsening."""
    os.environ.setdefault("DPTEXT_THREADS", "1")
    with seam("counting the rows that kept columns single out, on an executor", InputError):
        for batch in batches:
            frame = pl.DataFrame(batch)
            frame.columns = [item.column for item in kept]
            shown = frame.select(coarse(item, frame.schema[item.column]) for item in kept)
            for place, hashed in enumerate(shown.select(table_check.hashes(groups)).iter_columns()):
                cells = {"place": pa.repeat(pa.scalar(place, pa.int32()), len(hashed))}
                yield pa.RecordBatch.from_pydict({**cells, "hash": to_arrow(hashed.to_numpy().view("<i8"))})


SHARD = "__dptext_shard"
"""Column that holds the number of a row's shard for the tasks."""
_SUMS = 256
"""Shards of a table that is summed, at most: the driver holds the sums of each; a large shard is cut on its worker."""
_DEVIATIONS = 4
"""Standard deviations of spare room per shard: shards of hashed rows differ in size but stay below `shard_rows`."""


def numbers(source: Examined[DataFrame], policy: Policy) -> range:
    first, rows, most = source.first, source.wanted, policy.shard_rows
    if not rows:
        return range(first, first)
    room = max(1, most - _DEVIATIONS * math.isqrt(most))
    shards = 1 if rows <= most else -(-rows // room)
    return range(first, first + (shards if policy.synthetic is None else min(shards, _SUMS)))


def planted(frame: DataFrame, plans: Sequence[CanaryPlan], shards: range, policy: Policy) -> DataFrame:
    """Add the canary rows of all shards to a frame, and group the rows of a shard in the order of their ids."""
    rows = _numbered(frame, shards, policy)
    if plans:
        rows = rows.unionByName(_canaries(frame, by_shard(plans, shards), policy))
    return _grouped(rows, shards, policy)


def _numbered(frame: DataFrame, shards: range, policy: Policy) -> DataFrame:
    """Add the number of its shard to each row, and the mark that it is no canary row."""
    from pyspark.sql import functions as F  # noqa: N812

    by_person = policy.cap is not None
    key = named(policy.id_columns.get("subject", policy.id) if by_person else policy.id)
    if by_person and policy.normalize:
        key = F.udf(partial(spelling, how=policy.normalize), "string", useArrow=False)(key.cast("string"))
    place = F.xxhash64(key)
    if policy.on_null_subject == "own":  # rows without a person are persons of their own, and stand among all others
        place = F.when(key.isNull(), F.xxhash64(named(policy.id))).otherwise(place)
    shard = (F.pmod(place, F.lit(len(shards))) + F.lit(shards[0])).cast("int")
    return frame.select("*", F.lit(False).alias(CANARY), shard.alias(SHARD))


def _grouped(rows: DataFrame, shards: range, policy: Policy) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    first, count = shards[0], len(shards)
    if hasattr(rows, "repartitionById"):
        spread = rows.repartitionById(count, (F.col(SHARD) - F.lit(first)).cast("int"))
    else:  # before Spark 4.1
        spread = rows.repartitionByRange(count, SHARD)
    ordered = spread.sortWithinPartitions(F.col(SHARD), named(policy.id))
    return ordered.toDF(*(f"c{at}" for at in range(len(rows.columns) - 2)), CANARY, SHARD)


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
    canaries = pl.DataFrame({field.name: cells.get(field.name, nothing) for field in schema.fields})
    with seam("adding canary rows"):
        return local_frame(frame.sparkSession, canaries, schema)


def pieces(
    batches: Iterable[pa.RecordBatch], names: tuple[str, ...], most: int, step: int
) -> Iterator[tuple[int, pl.DataFrame]]:
    """Cut the rows of a task, which come shard by shard, into numbered frames that are computed together."""
    frames: list[pl.DataFrame] = []
    count, shard, number = 0, -1, -1
    for batch in batches:
        table = pl.DataFrame(batch)
        table.columns = [*names, CANARY, SHARD]
        for part in table.partition_by(SHARD, maintain_order=True):
            if part[SHARD][0] != shard:
                if count:
                    yield number, pl.concat(frames).rechunk()
                frames, count = [], 0
                number = shard = part[SHARD][0]
            frames.append(part.drop(SHARD))
            count += part.height
            while count > most:
                rows = pl.concat(frames).rechunk()
                yield number, rows.head(most)
                frames, count, number = [rows.slice(most)], count - most, number + step
    if count:
        yield number, pl.concat(frames).rechunk()


def require_free_names(frame: DataFrame, policy: Policy) -> None:
    """Refuse a frame that has columns with our names, or two columns with one name."""
    for name in (CANARY, SHARD):
        if name in frame.columns:
            raise InputError(f"the column {name} is ours", "rename it in the source")
    twice = sorted(name for name in wanted_columns(policy) if frame.columns.count(name) > 1)
    if twice:
        msg = f"the frame has several columns {', '.join(map(repr, twice))}"
        raise InputError(msg, "select or rename them before")
