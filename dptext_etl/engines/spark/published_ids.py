"""Read the ids of published rows on the executors: from Parquet files in folders, or from objects of a store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from dptext_etl.data_types import named_as
from dptext_etl.engines.spark.spark_types import local_frame, named
from dptext_etl.errors import InputError, bare, seam
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish import own_ids
from dptext_etl.runner.publish.manifest import Manifest
from dptext_etl.runner.source.roles import Table
from dptext_etl.runner.source.selection import require_plain
from dptext_etl.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
