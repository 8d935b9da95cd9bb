"""Look at a frame before anything is drawn, by aggregation on the executors: its rows never come to the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from dptext_etl.checks.great_expectations.spark_tallies import polars_schema
from dptext_etl.errors import InputError, seam
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.manifest import Manifest
from dptext_etl.runner.source.identity import refuse_gaps, refuse_repeated
from dptext_etl.runner.source.incremental import continues
from dptext_etl.runner.source.roles import Roles, wanted_columns
from dptext_etl.spark.sharding import named, require_free_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HINT = "does the frame itself compute? Spark's own log says more"


@dataclass(frozen=True)
class Examined:
    """A checked frame.

    Attributes:
        rows: The wanted columns of the rows that the run takes.
        roles: What the columns of the frame are to the policy.
        id_dtype: Type of the record ids, as Polars sees them.
        total: Rows of the frame.
        wanted: Rows that the run takes; fewer where an incremental run finds some published.
        base: Digest of the manifest that an incremental run adds to, or None.
        first: Number of the first shard.
    """

    rows: DataFrame
    roles: Roles
    id_dtype: pl.DataType
    total: int
    wanted: int
    base: str | None
    first: int

    def present(self, candidates: pl.Series) -> pl.Series:
        """Return which of these ids the frame uses."""
        from pyspark.sql.types import StructField, StructType

        with seam("comparing canary ids with those of the frame", InputError, HINT):
            name = candidates.name
            field = next(field for field in self.rows.schema.fields if field.name == name)
            schema = StructType([StructField(name, field.dataType, nullable=True)])
            asked = self.rows.sparkSession.createDataFrame([(value,) for value in candidates], schema)
            found = asked.join(self.rows.select(named(name)), on=name, how="left_semi").collect()
            return pl.Series(name, [row[0] for row in found], dtype=self.id_dtype)


def examine(frame: DataFrame, policy: Policy, layout: Layout) -> Examined:
    """Check columns, ids and subjects of a frame, and leave out what an incremental run finds published.

    Raises:
        InputError: Columns are missing or of a wrong type; no rows; null or repeated ids; unknown subjects.
        PolicyError: The sink holds something that the run does not fit.
    """
    require_free_names(frame, policy)
    schema = polars_schema(frame, wanted_columns(policy))
    roles = Roles.of(policy, schema)
    rows = frame.select(*(named(name) for name in wanted_columns(policy)))
    manifest = Manifest.read(layout)
    adds = continues(policy, layout, manifest)
    total = _count(rows, policy)
    id_dtype = schema[policy.id]
    if manifest is None or not adds:
        return Examined(rows, roles, id_dtype, total, total, None, 0)
    rows = _unpublished(rows, policy, layout, manifest)
    with seam("comparing the frame with what is published", InputError, HINT):
        wanted = rows.count()
    return Examined(rows, roles, id_dtype, total, wanted, manifest.digest, len(manifest.parts))


def _count(rows: DataFrame, policy: Policy) -> int:
    from pyspark.sql import functions as F  # noqa: N812

    per_subject = policy.subject is not None and policy.unit == "subject"
    subject = named(policy.subject).isNull() if per_subject and policy.subject else F.lit(False)
    with seam("reading the ids of the frame", InputError, HINT):
        counts = rows.agg(F.count(F.lit(1)), F.count_if(named(policy.id).isNull()), F.count_if(subject)).collect()[0]
    refuse_gaps(policy, *map(int, counts))
    with seam("reading the ids of the frame", InputError, HINT):
        twice = rows.groupBy(named(policy.id)).count().where("count > 1").count()
    refuse_repeated(policy, twice)
    return int(counts[0])


def _unpublished(rows: DataFrame, policy: Policy, layout: Layout, manifest: Manifest) -> DataFrame:
    if layout.remote_sink or manifest.file_format != "parquet":
        msg = "an incremental run on Spark compares with local Parquet parts alone"
        raise InputError(msg, "set incremental = false: what is published costs nothing again")
    paths = [f"file://{layout.sink}/{part.path}" for part in manifest.parts]
    with seam("reading the ids that are published", InputError, "are the published parts all there?"):
        published = rows.sparkSession.read.parquet(*paths).select(named(policy.id))
        return rows.join(published, on=policy.id, how="left_anti")
