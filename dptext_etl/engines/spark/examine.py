"""Examine a frame before anything is drawn, by aggregation on the executors; the driver gets no rows."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from dptext_etl.checks.comparison import short_digests
from dptext_etl.checks.great_expectations.tallies import polars_schema
from dptext_etl.engines.spark.digest_counts import SCHEMA, Pack, batch_of, collected, counts_of, exchanged, packed
from dptext_etl.engines.spark.shards import local_frame, named, require_free_names
from dptext_etl.errors import InputError, bare, seam
from dptext_etl.id_forms import IdForm, Normalization, normalized
from dptext_etl.keys import canonical_ids
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish import own_ids
from dptext_etl.runner.publish.manifest import Manifest
from dptext_etl.runner.source.examine import Examined, refuse_gaps, refuse_repeated
from dptext_etl.runner.source.roles import Table, check_roles, pinned_orders, wanted_columns
from dptext_etl.runner.source.selection import PAIRS, Order, by_digest, require_plain, sum_of_pairs

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


HINT = "check that the frame itself can be computed; Spark's own log says more"


def open_table(frame: DataFrame, policy: Policy, layout: Layout) -> Table[DataFrame]:
    """Project a frame to the columns of a policy and check their roles."""
    require_free_names(frame, policy)
    schema = polars_schema(frame, wanted_columns(policy))
    dropped, kind = check_roles(policy, schema, layout)
    rows = _in_pinned_order(frame, schema, policy)
    return Table(rows, polars_schema(rows), dropped, kind)


def examine(table: Table[DataFrame], policy: Policy, layout: Layout) -> Examined[DataFrame]:
    """Check ids and subjects of a frame; in an incremental run, leave out rows that are published already."""
    return Examined.of(
        table,
        policy,
        layout,
        check=partial(check, table.frame, policy),
        with_persons=partial(with_persons, policy=policy),
        without=lambda rows, manifest: _unpublished(replace(table, frame=rows), policy, layout, manifest),
        at_most=lambda rows, most: at_most(rows, policy, most),
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
    """Leave out the rows without a subject."""
    return rows.filter(named(str(policy.subject)).isNotNull())


def check(rows: DataFrame, policy: Policy) -> tuple[int, int]:
    """Check the ids and subjects of a frame, and return its rows, and how many of them have no subject."""
    from pyspark.sql import functions as F  # noqa: N812

    per_subject = policy.subject is not None and policy.unit == "subject"
    unknown = named(policy.subject).isNull() if per_subject and policy.subject else F.lit(False)
    with seam("reading the ids of the frame", InputError, HINT):
        counts = _count_ids(rows.select(named(policy.id), unknown))
    refuse_gaps(policy, counts.rows, counts.null_ids, counts.null_subjects)
    refuse_repeated(policy, counts.repeated)
    return counts.rows, counts.null_subjects


def _unpublished(table: Table[DataFrame], policy: Policy, layout: Layout, manifest: Manifest) -> tuple[DataFrame, int]:
    rows = table.frame
    if layout.remote_sink or manifest.file_format != "parquet":
        msg = "an incremental run on Spark can only compare with published parts in local Parquet files"
        raise InputError(msg, "set incremental = false: published rows cost nothing a second time")
    paths, column = [f"file://{layout.part(part.path)}" for part in manifest.parts], named(policy.id)
    if policy.ids != "keep":
        if layout.staging.remote:
            msg = f"an incremental run on Spark with ids = {policy.ids!r} needs a folder as staging"
            raise InputError(msg, "set incremental = false: published rows cost nothing a second time")
        require_plain(policy, table.schema[policy.id])
        lists = own_ids.lists_of(layout.staging, (part.sha256 for part in manifest.parts))
        paths = [f"file://{layout.staging.folder.absolute() / name}" for name in lists]
        column = named("id").cast(rows.schema[policy.id].dataType)
    with seam("reading the ids that are published", InputError, "check that all published parts exist"):
        published = rows.sparkSession.read.parquet(*paths).select(column.alias(policy.id))
        new = rows.join(published, on=policy.id, how="left_anti")
    return new, _count_new(new)


def at_most(rows: DataFrame, policy: Policy, most: int, order: Order | None = None) -> tuple[DataFrame, int, int]:
    """Leave out the records of a person beyond the first `most`, as `runner.source.selection` does."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    pairs = rows.select(named(policy.id), named(str(policy.subject)))
    schema = pairs.select(F.col(pairs.columns[0]).alias("id")).schema.add("person", "binary").add("place", "binary")
    by_person = Window.partitionBy("person").orderBy("place")
    placed = pairs.toDF("id", "person").mapInArrow(_person_task(policy.normalize, order or by_digest), schema)
    beyond = placed.withColumn("number", F.row_number().over(by_person)).filter(F.col("number") > most)
    left = rows.join(beyond.select(F.col("id").alias(policy.id)), on=policy.id, how="left_anti")
    chosen = left.select(named(policy.id), named(str(policy.subject))).mapInArrow(_pair_task(policy.normalize), _PAIRS)
    with seam("choosing the records of each person", InputError, HINT):
        found = chosen.collect()
    return left, sum(row[0] for row in found), sum(int(row[1], 16) for row in found) % PAIRS


def _count_new(rows: DataFrame) -> int:
    with seam("comparing the frame with what is published", InputError, HINT):
        return rows.count()


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


_PAIRS = "rows long, pairs string"
_IDS, _GAPS = "ids", "gaps"
_HELD_ROWS = 1 << 20
"""Digests that a task holds before it sends them on."""


class IdCounts(NamedTuple):
    """Counts over all rows of a frame."""

    rows: int
    null_ids: int  # rows without an id
    null_subjects: int  # rows without a subject
    repeated: int  # ids that occur more than once


def _count_ids(frame: DataFrame) -> IdCounts:
    """Count ids in one job: 16 bytes per row travel between executors, and counts alone come back."""
    packs = collected(exchanged(frame.toDF("id", "subject").mapInArrow(_id_task(), SCHEMA)))
    rows, null_ids, null_subjects = np.sum(
        [(0, 0, 0), *(json.loads(pack.cells) for pack in packs if pack.name == _GAPS)], axis=0
    ).tolist()
    found = counts_of(packs).get(_IDS)
    repeated = 0 if found is None else found.digests - (found.rows - found.shared)
    return IdCounts(rows, null_ids, null_subjects, repeated)


def _id_task() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function that `mapInArrow` sends to the executors."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for pack in _id_packs(batches):
            yield batch_of(pack)

    return work


def _person_task(
    how: Sequence[Normalization], order: Order
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function that adds to ids a digest of the person and the place of the record among theirs."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield _placed(batch, how, order)

    return work


@bare
def _placed(batch: pa.RecordBatch, how: Sequence[Normalization], order: Order) -> pa.RecordBatch:
    with seam("counting the records of each person on an executor", InputError):
        ids, persons = batch.column(0), normalized(batch.column(1), how)
        digests = [by_digest(canonical_ids(persons)), order(canonical_ids(ids))]
        binary = [pa.array(found.to_list(), pa.binary()) for found in digests]
        return pa.RecordBatch.from_arrays([ids, *binary], ["id", "person", "place"])


def _pair_task(how: Sequence[Normalization]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function that counts the records of a task, and adds up their digests with their persons."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield _summed(batch, how)

    return work


@bare
def _summed(batch: pa.RecordBatch, how: Sequence[Normalization]) -> pa.RecordBatch:
    with seam("counting the records of each person on an executor", InputError):
        persons = canonical_ids(normalized(batch.column(1), how))
        pairs = sum_of_pairs(canonical_ids(batch.column(0)), persons)
    return pa.RecordBatch.from_pydict({"rows": pa.array([batch.num_rows], pa.int64()), "pairs": [f"{pairs:032x}"]})


@bare
def _id_packs(batches: Iterator[pa.RecordBatch]) -> Iterator[list[Pack]]:
    os.environ.setdefault("DPTEXT_THREADS", "1")
    held, size, gaps = [], 0, np.zeros(3, np.int64)
    with seam("counting ids on an executor", InputError):
        for batch in batches:
            table = pl.DataFrame(batch)
            known = table["id"].drop_nulls()
            gaps += (table.height, table.height - len(known), int(table["subject"].sum()))
            if len(known):
                canonical = pl.Series(canonical_ids(known.to_arrow()), dtype=pl.String)
                held.append(short_digests(canonical))
                size += len(canonical)
            if size >= _HELD_ROWS:
                yield list(packed(_IDS, np.concatenate(held)))
                held, size = [], 0
        if size:
            yield list(packed(_IDS, np.concatenate(held)))
        yield [Pack(_GAPS, -1, json.dumps(gaps.tolist()).encode())]
