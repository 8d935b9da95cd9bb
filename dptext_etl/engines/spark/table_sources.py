"""Read one version of a Delta Lake or Iceberg table with Spark, from the list of its Parquet files.

The driver reads the log by the library of the format, so Spark needs no package of that format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptext_etl.errors import InputError, seam
from dptext_etl.runner.source.table import READ_HINT, Files
from dptext_etl.runner.source.table_versions import TableVersion, table_version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def read_version(spark: SparkSession, files: Files) -> DataFrame:
    version = table_version(files)
    with seam("opening the source with Spark", InputError, READ_HINT):
        schema = _schema(version)
        if not version.paths:
            return spark.createDataFrame([], schema)
        reader = spark.read.schema(schema)
        if version.partition_by:  # their values are in the names of folders below the table's
            reader = reader.option("basePath", _located(version.root))
        frame = reader.parquet(*map(_located, version.paths))
        return frame.select(*(f"`{field.name.replace('`', '``')}`" for field in schema.fields))


def _schema(version: TableVersion) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType

    return (
        StructType.fromJson(version.columns)
        if isinstance(version.columns, dict)
        else from_arrow_schema(version.columns)
    )


def _located(path: str) -> str:
    return path if "://" in path else f"file://{path}"
