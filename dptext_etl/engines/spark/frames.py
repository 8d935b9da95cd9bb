"""Examine a frame on the executors, read published ids there, and assign rows to shards by their ids.

Every attempt gets the same shards. If caps are per subject, all rows of a subject are in one shard: the cap then admits
rows in the order of their record ids, whatever order the tasks run in.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from dptext_etl.checks.canaries import CANARY, CanaryPlan, by_shard
from dptext_etl.checks.comparison import LEAST_CHARACTERS, Counted, compared_columns, short_digests
from dptext_etl.checks.sink_files import Manifest
from dptext_etl.data_types import by_name, named_as, parsed, plain_type
from dptext_etl.engines.spark.session import local_frame, named, polars_schema, require_unpadded
from dptext_etl.engines.spark.tasks import (
    SCHEMA,
    SHARD,
    SINGLED_OUT,
    SIZES,
    Pack,
    batches_of,
    collected,
    computed,
    exchanged,
    facts_pack,
    packed,
    totals,
)
from dptext_etl.errors import InputError, bare, seam
from dptext_etl.file_formats import PARQUET
from dptext_etl.files import literal
from dptext_etl.keys import IdForm, Normalization, canonical_ids, normalized, spelling
from dptext_etl.policy import Policy
from dptext_etl.policy.terms import Kept
from dptext_etl.runner import table_check
from dptext_etl.runner.forecast import SPELLINGS, Spelled
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.parts import id_lists, read_ids
from dptext_etl.runner.shard.charging import PAIRS, sum_of_pairs
from dptext_etl.runner.source.column_types import HELD, coarse
from dptext_etl.runner.source.examine import (
    STAYS,
    CopyCounts,
    Counts,
    Examined,
    Groups,
    IdCounts,
    Order,
    by_digest,
    copied_over,
    count_copied,
    groups_of,
    hashes,
    refuse_copies,
    refuse_ids,
    require_plain,
)
from dptext_etl.runner.source.roles import (
    Table,
    check_roles,
    coarse_schema,
    hidden_by,
    label_columns,
    pinned_orders,
    wanted_columns,
)
from dptext_etl.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


_HINT = "check that all published parts exist, and that executors can read them"


def published_ids(rows: DataFrame, dtype: pl.DataType, policy: Policy, layout: Layout, manifest: Manifest) -> DataFrame:
    """Return a frame of one column, which has name and type of the frame's ids; in Polars, `dtype` is this type."""
    if manifest.file_format != PARQUET.name:
        msg = "an incremental run on Spark can only compare with published parts in Parquet files"
        raise InputError(msg, "set incremental = false: published rows cost nothing a second time")
    if manifest.ids == "keep":
        storage, column, names = layout.published, policy.id, [part.path for part in manifest.parts]
    else:
        require_plain(policy, dtype)
        storage, column = layout.staging, "id"
        names = id_lists(layout.staging, policy.ledger, (part.sha256 for part in manifest.parts))
    with seam("reading the ids that are published", InputError, _HINT):
        from pyspark.sql.pandas.types import to_arrow_schema
        from pyspark.sql.types import StringType, StructField, StructType

        schema = rows.select(named(policy.id)).schema
        listed = local_frame(
            rows.sparkSession, pl.DataFrame({"name": names}), StructType([StructField("name", StringType())])
        )
        read = partial(_ids, storage.absolute(), column, to_arrow_schema(schema))
        return listed.repartition(max(1, len(names))).mapInArrow(read, schema)


@bare
def _ids(
    storage: Storage, column: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    os.environ.setdefault("DPTEXT_THREADS", "1")
    kind = pl.Series(pa.array([], schema.field(0).type)).dtype
    with seam("reading the ids that are published", InputError, _HINT):
        for batch in batches:
            for name in batch.column(0).to_pylist():
                with storage.with_own_copies() as copies:
                    if column == "id" and name.endswith(".ids"):
                        series = read_ids(copies, name)
                    else:
                        table = pl.read_parquet(literal(copies.local_path(name)), columns=[column])
                        series = table.select(named_as(by_name(column), kind)).to_series()
                    ids = series.to_arrow(compat_level=pl.CompatLevel.oldest()).drop_null().cast(schema.field(0).type)
                    yield pa.RecordBatch.from_arrays([ids], schema=schema)


HINT = "check that the frame itself can be computed; Spark's own log says more"


def open_table(frame: DataFrame, policy: Policy, layout: Layout) -> Table[DataFrame]:
    for name in (CANARY, SHARD):
        if name in frame.columns:
            raise InputError(f"the column {name} is ours", "rename it in the source")
    twice = sorted(name for name in wanted_columns(policy) if frame.columns.count(name) > 1)
    if twice:
        msg = f"the frame has several columns {', '.join(map(repr, twice))}"
        raise InputError(msg, "select or rename them before")
    require_unpadded(frame, policy)
    schema = pl.Schema({n: plain_type(dtype) for n, dtype in polars_schema(frame, wanted_columns(policy)).items()})
    dropped, kind = check_roles(policy, schema, layout, lambda: hidden_by(frame.columns, lambda: _compared(frame)))
    orders = pinned_orders(schema, policy)
    columns = ((name, named(name)) for name in wanted_columns(policy))
    # labels are read as text, and a column without a type holds null texts
    void = (item.name for item in frame.schema.fields if item.dataType.typeName() == "void")
    texts = {name: named(name).cast("string") for name in (*label_columns(policy), *void)}
    rows = (frame.withColumns(texts) if texts else frame).select(
        *(_ordered(item, orders[name]).alias(name) if name in orders else item for name, item in columns)
    )
    types = dict(polars_schema(rows))
    # moments that the release published in another zone than UTC keep it
    moments = {name: dtype for name, dtype in schema.items() if isinstance(dtype, pl.Datetime) and dtype.time_zone}
    manifest = Manifest.of_release(policy, layout) if moments else None
    published = {} if manifest is None else manifest.schema
    for name, dtype in moments.items():
        before = parsed(published.get(name, ""))
        if isinstance(before, pl.Datetime) and before.time_zone is not None:
            types[name] = pl.Datetime(dtype.time_unit, before.time_zone)
    return Table(rows, coarse_schema(types, policy), dropped, kind)


def _compared(frame: DataFrame) -> tuple[int, bool]:
    """Return the number of rows, and whether a column of texts or booleans holds its own name."""
    from pyspark.sql import functions as F  # noqa: N812

    matches = F.lit(False)
    for item in frame.schema.fields:
        if item.dataType.typeName() in {"string", "boolean", "varchar", "char"}:
            cell = F.lower(F.trim(named(item.name).cast("string")))
            matches = matches | F.coalesce(cell == item.name.lower(), F.lit(False))
    count, equal = frame.agg(F.count(F.lit(1)), F.max(matches)).collect()[0]
    return count, bool(equal)


@dataclass(frozen=True)
class Seen:
    """Counts of one pass over a frame."""

    ids: IdCounts
    pairs: int = 0  # sum of digests of records with their persons (`charging.sum_of_pairs`)
    not_utf8: tuple[int, ...] = ()  # kept columns with strings that are not UTF-8, by their places
    # rows that each group of kept columns singles out, or leaves in a small group; None if they were not counted
    traced: Counts | None = None
    spellings: Mapping[str, int] = field(default_factory=dict)  # of persons (`forecast.Spelled`)
    copied: tuple[str, ...] = ()  # columns that would be published unchanged, and hold raw texts of their rows


def examine(table: Table[DataFrame], policy: Policy, layout: Layout, order: Order | None = None) -> Examined[DataFrame]:
    """Check ids and subjects of a frame; in an incremental run, leave out rows that are published already."""
    from pyspark.sql import functions as F  # noqa: N812

    seen: list[Seen] = []

    def check_ids() -> tuple[int, int, int]:
        seen.append(check(table, policy))
        return seen[0].ids.rows, seen[0].ids.null_subjects, seen[0].pairs

    def present(ids: pl.Series) -> pl.Series:  # in published rows as well
        wanted = canonical_ids(ids.to_arrow())
        with seam("comparing canary ids with the ids of the frame", InputError, HINT):
            rows = table.frame.select(named(ids.name).alias("id"))  # `mapInArrow` splits a name at a dot
            used = rows.mapInArrow(partial(_used, wanted), "id string").collect()
            return ids.filter(pl.Series(wanted, dtype=pl.String).is_in([row[0] for row in used]))

    def without(rows: DataFrame, manifest: Manifest) -> tuple[DataFrame, int]:
        published = published_ids(rows, table.schema[policy.id], policy, layout, manifest)
        with seam("comparing the frame with the published table", InputError, HINT):
            new = rows.join(published, on=policy.id, how="left_anti")
            return new, new.count()

    def mark(rows: DataFrame, manifest: Manifest) -> DataFrame:
        published = published_ids(rows, table.schema[policy.id], policy, layout, manifest).withColumn(HELD, F.lit(True))
        joined = rows.join(published, on=policy.id, how="left")
        return joined.select(*(named(name) for name in rows.columns), F.coalesce(HELD, F.lit(False)).alias(HELD))

    def count(rows: DataFrame, groups: Groups) -> Counts:  # by hashes of the values that are published
        with seam("counting the rows that kept columns single out", InputError, HINT):
            return _count(rows, policy, ids=False, groups=groups).traced or []

    examined = Examined.of(
        table,
        policy,
        layout,
        check=check_ids,
        with_persons=lambda rows: rows.filter(named(str(policy.subject)).isNotNull()),
        present=present,
        without=without,
        mark=mark,
        count=count,
        limit_per_person=lambda rows, most: limit_per_person(rows, policy, most, order or by_digest),
    )
    (facts,) = seen
    least = len(numbers(examined, policy))  # a set of canary rows for each shard
    return replace(examined, least=least, traced=facts.traced, spellings=facts.spellings, copied=facts.copied)


@bare
def _used(wanted: pa.Array, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the requested ids that are in use."""
    with seam("comparing canary ids with the ids of the frame, on an executor", InputError, HINT):
        for batch in batches:
            ids = canonical_ids(batch.column(0).drop_null())
            used = ids.filter(pc.is_in(ids, value_set=wanted))
            if len(used):
                yield pa.RecordBatch.from_arrays([used.cast(pa.string())], ["id"])


def check(table: Table[DataFrame], policy: Policy) -> Seen:
    """Check the ids and subjects of a frame and the kept columns, which nothing else reads before the charge.

    Along the way, compare kept columns with texts, and count variants of ids of persons, and rows that kept columns
    single out, if the policy leaves no rows out.
    """
    every = policy.records_per_subject is None and policy.on_null_subject != "quarantine"
    groups = groups_of(policy.kept_columns) if every and policy.keep else ()
    compared = compared_columns(policy, table.schema)
    with seam("reading the ids of the frame", InputError, HINT):
        seen = _count(table.frame, policy, ids=True, groups=groups, compared=compared)
    refuse_ids(policy, seen.ids)
    if seen.not_utf8:
        wrong = ", ".join(repr(policy.kept_columns[place]) for place in seen.not_utf8)
        msg = f"strings of the kept columns {wrong} are not UTF-8; no budget used"
        raise InputError(msg, "decode them in the source, or do not keep the column")
    return seen


@dataclass(frozen=True)
class Questions:
    """Instructions for tasks that count ids, unknown subjects, variants of ids of persons, and kept columns."""

    ids: bool
    persons: Sequence[Normalization] | None  # how persons are spelled; None where records are units
    spellings: bool  # whether variants of ids of persons are counted
    kept: Sequence[Kept]
    groups: Groups  # groups of kept columns of which rows are counted
    id: str
    texts: Sequence[str]  # text columns that are compared with `copies`, which are kept columns or the id
    copies: Sequence[str]


def _count(rows: DataFrame, policy: Policy, *, ids: bool, groups: Groups, compared: Sequence[str] = ()) -> Seen:
    """Count in one pass over a frame and one exchange of hashes; only counts come back."""
    from pyspark.sql import functions as F  # noqa: N812

    persons = policy.normalize if ids and policy.unit == "subject" else None
    texts = policy.text_columns if compared else ()
    columns = [named(name) for name in [*(policy.id_columns.values() if ids else ()), *policy.kept_columns]]
    kinds = {name: rows.schema[name].dataType.typeName() for name in compared}
    long = [F.length(named(name)) >= LEAST_CHARACTERS if kinds[name] == "string" else F.lit(True) for name in compared]
    # a text leaves Spark's own memory only in a row with a string that is compared with it
    columns += [F.when(reduce(or_, long), named(name)) for name in texts]
    spellings = policy.records_per_subject is None
    questions = Questions(ids, persons, spellings, policy.kept, groups, policy.id, texts, compared)
    plain = rows.select(*columns).toDF(*(f"c{at}" for at in range(len(columns))))
    packs = collected(exchanged(plain.mapInArrow(partial(_counted, questions), SCHEMA)))
    all_facts = [json.loads(pack.cells) for pack in packs if pack.kind == _FACTS]
    total, gaps, nameless, pairs = (sum(facts[at] for facts in all_facts) for at in range(4))
    places = tuple(sorted({place for facts in all_facts for place in facts[4]}))
    digests, sizes = totals(packs), totals(packs, SINGLED_OUT)
    ids_counted = Counted(*digests.get(_IDS, ()))
    repeated = ids_counted.digests - (ids_counted.rows - ids_counted.shared)
    spelled = [Counted(*digests[name]).digests for name in SPELLINGS if name in digests]
    return Seen(
        IdCounts(total, gaps, nameless, repeated),
        pairs % PAIRS,
        places,
        [sizes.get(str(place), (0, 0)) for place in range(len(groups))] if groups else None,
        dict(zip(SPELLINGS, spelled, strict=False)),
        copied=copied_over(facts[5] for facts in all_facts),
    )


_FACTS, _IDS = "examined", "ids"
_ROWS_AT_ONCE, _BYTES_AT_ONCE = 1 << 18, 1 << 26


@bare
def _counted(questions: Questions, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    packs = (pack for columns in _together(batches) for pack in _answers(questions, columns))
    yield from batches_of(computed("counting ids on an executor", packs))


def _together(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.Array]]:
    """Yield the columns of many batches together: few large packs cost less than many small ones."""
    pending, rows, size = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        pending.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _ROWS_AT_ONCE or size >= _BYTES_AT_ONCE:
            yield [*map(pa.concat_arrays, zip(*(part.columns for part in pending), strict=True))]
            pending, rows, size = [], 0, 0
    if pending:
        yield [*map(pa.concat_arrays, zip(*(part.columns for part in pending), strict=True))]


def _answers(questions: Questions, columns: list[pa.Array]) -> Iterator[Pack]:
    waiting = iter(columns)
    rows, gaps, unknown, pairs = len(columns[0]), 0, 0, 0
    if questions.ids:
        ids = next(waiting)
        gaps = ids.null_count
        yield from packed(_IDS, short_digests(pl.Series(canonical_ids(ids.drop_null()), dtype=pl.String)))
    if questions.persons is not None:
        persons = next(waiting)
        unknown, spelled = persons.null_count, Spelled(questions.persons)
        pairs = 0 if gaps else _sum_of_pairs(ids, persons, questions.persons)
        if questions.spellings and _is_utf8(persons):
            spelled.add(pl.Series(persons))
        for name, digests in zip(SPELLINGS, spelled.drained(), strict=True):
            yield from packed(name, digests)
    kept, texts = [next(waiting) for _ in questions.kept], [*waiting]
    wrong = [place for place, column in enumerate(kept) if not _is_utf8(column)]
    copied = {} if wrong else _copies(questions, columns[0], kept, texts)
    yield facts_pack(_FACTS, [rows, gaps, unknown, pairs, wrong, copied])
    if questions.groups and not wrong:
        frame = pl.DataFrame(pa.RecordBatch.from_arrays(kept, [item.column for item in questions.kept]))
        cells = frame.select(coarse(item, frame.schema[item.column]) for item in questions.kept)
        for place, hashed in enumerate(cells.select(hashes(questions.groups)).iter_columns()):
            yield from packed(str(place), hashed.to_numpy().view(np.uint8).reshape(-1, 8), SIZES)


def _copies(questions: Questions, ids: pa.Array, kept: list[pa.Array], texts: list[pa.Array]) -> CopyCounts:
    arrays = dict(zip([item.column for item in questions.kept], kept, strict=True)) | {questions.id: ids}
    arrays = {name: arrays[name] for name in questions.copies} | dict(zip(questions.texts, texts, strict=True))
    if not questions.copies or not all(map(_is_utf8, arrays.values())):
        return {}
    frame = pl.DataFrame({name: pl.Series(array) for name, array in arrays.items()})
    return count_copied(frame, questions.copies, questions.texts)


def _is_utf8(column: pa.Array) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def limit_per_person(rows: DataFrame, policy: Policy, most: int, order: Order) -> tuple[DataFrame, int, int]:
    """Leave out the records of a person beyond the first `most`, as `runner.source.examine` does."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    pairs = rows.select(named(policy.id), named(str(policy.subject))).filter(named(str(policy.subject)).isNotNull())
    schema = pairs.select(named(policy.id).alias("id")).schema.add("person", "binary").add("place", "binary")
    by_person = Window.partitionBy("person").orderBy("place")
    placed = pairs.toDF("id", "person").mapInArrow(partial(_places, policy.normalize, order), schema)
    beyond = placed.withColumn("number", F.row_number().over(by_person)).filter(F.col("number") > most)
    if policy.per_subject is not None:
        beyond = beyond.filter(~F.col("place").startswith(F.lit(bytearray(STAYS))))
    left = rows.join(beyond.select(F.col("id").alias(policy.id)), on=policy.id, how="left_anti")
    chosen = left.select(named(policy.id).alias("id"), named(str(policy.subject)).alias("person"))
    sums = chosen.mapInArrow(partial(_pairs, policy.normalize), "rows long, pairs string")
    with seam("choosing the records of each person", InputError, HINT):
        totals = sums.collect()
    return left, sum(row[0] for row in totals), sum(int(row[1], 16) for row in totals) % PAIRS


def _ordered(column: Column, form: IdForm) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    if not form.fields:
        return column
    fields = (_ordered(column.getField(name), inner).alias(name) for name, inner in form.fields)
    return F.when(column.isNotNull(), F.struct(*fields))


@bare
def _places(how: Sequence[Normalization], order: Order, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add to ids a digest of the person and the place of the record among theirs."""
    with seam("counting the records of each person on an executor", InputError, HINT):
        for batch in batches:
            ids, persons = batch.column(0), normalized(batch.column(1), how)
            digests = [by_digest(canonical_ids(persons)), order(canonical_ids(ids))]
            binary = [pa.array(digest.to_list(), pa.binary()) for digest in digests]
            yield pa.RecordBatch.from_arrays([ids, *binary], ["id", "person", "place"])


@bare
def _pairs(how: Sequence[Normalization], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count the records of a task, and add up their digests with their persons."""
    with seam("counting the records of each person on an executor", InputError, HINT):
        for batch in batches:
            pairs = _sum_of_pairs(batch.column(0), batch.column(1), how)
            yield pa.RecordBatch.from_pydict(
                {"rows": pa.array([batch.num_rows], pa.int64()), "pairs": [f"{pairs:032x}"]}
            )


def _sum_of_pairs(ids: pa.Array, persons: pa.Array, how: Sequence[Normalization]) -> int:
    there = persons.is_valid()
    return sum_of_pairs(canonical_ids(ids.filter(there)), canonical_ids(normalized(persons.filter(there), how)))


def require_publishable(table: Table[DataFrame], policy: Policy) -> None:
    """Refuse columns of a frame that hold texts of their rows, or single out many rows, as the first run does."""
    groups = groups_of(policy.kept_columns) if policy.keep and policy.keep_unique is None else ()
    compared = compared_columns(policy, table.schema)
    if groups or compared:
        with seam("reading the kept columns", InputError, HINT):
            seen = _count(table.frame, policy, ids=bool(compared), groups=groups, compared=compared)
        refuse_copies(policy, seen.copied)
        if groups:
            table_check.refuse_traceable(table_check.of_source(policy, seen.ids.rows, seen.traced or [], table.schema))


_SUMS = 256
"""Shards of a table that is summed, at most: the driver holds the sums of each; a large shard is cut on its worker."""
_DEVIATIONS = 4
"""Standard deviations of spare room per shard: shards of hashed rows differ in size but stay below `shard_rows`."""


def numbers(source: Examined[DataFrame], policy: Policy) -> range:
    first, rows, most = source.first, source.wanted, policy.shard_rows
    room = max(1, most - _DEVIATIONS * math.isqrt(most))
    shards = min(1, rows) if rows <= most else -(-rows // room)
    return range(first, first + (shards if policy.synthetic is None else min(shards, _SUMS)))


def planted(frame: DataFrame, plans: Sequence[CanaryPlan], shards: range, policy: Policy) -> DataFrame:
    """Add the canary rows of all shards to a frame, and group the rows of a shard in the order of their ids."""
    from pyspark.sql import functions as F  # noqa: N812

    by_person = policy.cap is not None
    key = named(policy.id_columns.get("subject", policy.id) if by_person else policy.id)
    if by_person and policy.normalize:
        key = F.udf(partial(spelling, how=policy.normalize), "string", useArrow=False)(key.cast("string"))
    place, first, count = F.xxhash64(key), shards[0], len(shards)
    if policy.on_null_subject == "own":  # a row without a person counts as a separate person, placed like all others
        place = F.when(key.isNull(), F.xxhash64(named(policy.id))).otherwise(place)
    shard = (F.pmod(place, F.lit(count)) + F.lit(first)).cast("int")
    rows = frame.select("*", F.lit(False).alias(CANARY), shard.alias(SHARD))
    if plans:
        rows = rows.unionByName(_canaries(frame, by_shard(plans, shards), policy))
    if hasattr(rows, "repartitionById"):
        spread = rows.repartitionById(count, (F.col(SHARD) - F.lit(first)).cast("int"))
        ordered = spread.sortWithinPartitions(named(policy.id))  # a partition is a shard
    else:  # before Spark 4.1
        ordered = rows.repartitionByRange(count, SHARD).sortWithinPartitions(F.col(SHARD), named(policy.id))
    return ordered.toDF(*(f"c{at}" for at in range(len(rows.columns) - 2)), CANARY, SHARD)


def _canaries(frame: DataFrame, sets: Mapping[int, Sequence[CanaryPlan]], policy: Policy) -> DataFrame:
    from pyspark.sql.types import BooleanType, IntegerType, StructField, StructType

    fields = [StructField(field.name, field.dataType, nullable=True) for field in frame.schema.fields]
    schema = StructType([*fields, StructField(CANARY, BooleanType()), StructField(SHARD, IntegerType())])
    plans = [plan for group in sets.values() for plan in group]
    rows = [row for plan in plans for row in plan.rows]
    cells: dict[str, pl.Series] = {
        policy.id: pl.concat([plan.ids() for plan in plans]),
        **{item.name: pl.Series([row.texts[item.name] for row in rows], dtype=pl.String) for item in policy.columns},
        CANARY: pl.Series([True] * len(rows), dtype=pl.Boolean),
        SHARD: pl.Series([shard for shard, group in sets.items() for plan in group for _ in plan.rows], dtype=pl.Int32),
    }
    nothing = pl.Series([None] * len(rows), dtype=pl.Null)
    canaries = pl.DataFrame({field.name: cells.get(field.name, nothing) for field in schema.fields})
    with seam("adding canary rows", InputError, HINT):
        return local_frame(frame.sparkSession, canaries, schema)
