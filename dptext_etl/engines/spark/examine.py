"""Examine a frame before anything is drawn, by aggregation on the executors; the driver gets no rows."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from dptext_etl.checks.great_expectations.spark_tallies import polars_schema
from dptext_etl.engines.spark.arranging import in_pinned_order
from dptext_etl.engines.spark.id_tasks import count_ids, person_task
from dptext_etl.engines.spark.shards import local_frame, named, require_free_names
from dptext_etl.errors import InputError, seam
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.manifest import Manifest
from dptext_etl.runner.source.examined import Examined
from dptext_etl.runner.source.identity import refuse_gaps, refuse_repeated
from dptext_etl.runner.source.roles import Roles, Table, wanted_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HINT = "check that the frame itself can be computed; Spark's own log says more"


def open_table(frame: DataFrame, policy: Policy, layout: Layout) -> Table[DataFrame]:
    """Project a frame to the columns of a policy and check their roles."""
    require_free_names(frame, policy)
    schema = polars_schema(frame, wanted_columns(policy))
    roles = Roles.of(policy, schema, layout)
    rows = in_pinned_order(frame, schema, policy)
    return Table(rows, polars_schema(rows), roles.dropped, roles.id_type)


def examine(table: Table[DataFrame], policy: Policy, layout: Layout) -> Examined[DataFrame]:
    """Check ids and subjects of a frame; in an incremental run, leave out rows that are published already."""
    return Examined.of(
        table,
        policy,
        layout,
        check=partial(_check, table.frame, policy),
        without=partial(_unpublished, table.frame, policy, layout),
        at_most=partial(_at_most, table.frame, policy),
    )


def present(source: Examined[DataFrame], ids: pl.Series) -> pl.Series:
    """Return those of the given ids that the frame uses, in published rows as well."""
    from pyspark.sql import functions as F  # noqa: N812

    frame, name = source.table.frame, ids.name
    with seam("comparing canary ids with those of the frame", InputError, HINT):
        asked = local_frame(frame.sparkSession, pl.DataFrame({name: ids}), frame.select(named(name)).schema)
        found = frame.select(named(name)).join(F.broadcast(asked), on=name, how="left_semi").collect()
        return pl.Series(name, [row[0] for row in found], dtype=ids.dtype)


def _check(rows: DataFrame, policy: Policy) -> int:
    from pyspark.sql import functions as F  # noqa: N812

    per_subject = policy.subject is not None and policy.unit == "subject"
    unknown = named(policy.subject).isNull() if per_subject and policy.subject else F.lit(False)
    with seam("reading the ids of the frame", InputError, HINT):
        counts = count_ids(rows.select(named(policy.id), unknown))
    refuse_gaps(policy, counts.rows, counts.null_ids, counts.null_subjects)
    refuse_repeated(policy, counts.repeated)
    return counts.rows


def _unpublished(rows: DataFrame, policy: Policy, layout: Layout, manifest: Manifest) -> tuple[DataFrame, int]:
    if layout.remote_sink or manifest.file_format != "parquet":
        msg = "an incremental run on Spark can only compare with published parts in local Parquet files"
        raise InputError(msg, "set incremental = false: published rows cost nothing a second time")
    paths = [f"file://{layout.part(part.path)}" for part in manifest.parts]
    with seam("reading the ids that are published", InputError, "check that all published parts exist"):
        published = rows.sparkSession.read.parquet(*paths).select(named(policy.id))
        new = rows.join(published, on=policy.id, how="left_anti")
    return new, _count(new)


def _at_most(rows: DataFrame, policy: Policy, most: int) -> tuple[DataFrame, int]:
    """Leave out the records of a person beyond the first `most`, as `runner.source.per_subject` does."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    pairs = rows.select(named(policy.id), named(str(policy.subject)))
    schema = pairs.select(F.col(pairs.columns[0]).alias("id")).schema.add("person", "binary").add("place", "binary")
    by_person = Window.partitionBy("person").orderBy("place")
    placed = pairs.toDF("id", "person").mapInArrow(person_task(policy.normalize), schema)
    beyond = placed.withColumn("number", F.row_number().over(by_person)).filter(F.col("number") > most)
    left = rows.join(beyond.select(F.col("id").alias(policy.id)), on=policy.id, how="left_anti")
    return left, _count(left)


def _count(rows: DataFrame) -> int:
    with seam("comparing the frame with what is published", InputError, HINT):
        return rows.count()
