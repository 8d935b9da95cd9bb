"""Read the source of a policy as a Spark frame with the same columns and types as in the Polars engine."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import polars as pl

from dptext_etl.errors import InputError, seam
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.source.roles import open_table
from dptext_etl.runner.source.table import READ_HINT, Files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_TEXT_FORMATS = {
    "csv": {"header": "true", "multiLine": "true", "escape": '"', "mode": "FAILFAST", "enforceSchema": "false"},
    "ndjson": {"mode": "FAILFAST"},
}


def read_source(spark: SparkSession, policy: Policy, partition: str | None = None) -> DataFrame:
    """Read a policy's source: Parquet, CSV or NDJSON."""
    layout = Layout.of(policy, partition)
    files = Files.find(layout)
    if files.version is not None:
        msg = f"a source in the format {files.format} is not read by the command on Spark"
        raise InputError(msg, f'spark.read.format("{files.format}") reads it: give that frame to run_frame')
    paths = [path if "://" in path else f"file://{path}" for path in files.paths]
    if files.format == "parquet":
        with seam("opening the source with Spark", InputError, READ_HINT):
            return spark.read.parquet(*paths)
    table = open_table(policy, layout)
    found = pl.Schema({name: table.schema.get(name, pl.String()) for name in _names(files)})
    return read_text(spark, paths, files.format, found)


def read_text(spark: SparkSession, paths: list[str], file_format: str, schema: pl.Schema) -> DataFrame:
    """Read CSV or NDJSON files with the types that Polars finds in them."""
    reader = spark.read.options(**_TEXT_FORMATS[file_format])
    if file_format == "csv":  # "" is an empty text, nothing at all is null; by default Spark makes both null
        reader = reader.option("nullValue", secrets.token_hex(16))
    with seam("opening files with Spark", InputError, READ_HINT):
        reader = reader.schema(_spark_schema(schema))
        return reader.csv(paths) if file_format == "csv" else reader.json(paths)


def _names(files: Files) -> list[str]:
    with seam("reading the source", InputError, READ_HINT):
        return files.scan(all_text=True).collect_schema().names()


def _spark_schema(schema: pl.Schema) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(pl.DataFrame(schema=schema).to_arrow(compat_level=pl.CompatLevel.oldest()).schema)
