"""Read a published table with Spark by its manifest, so that a reader always sees exactly one complete version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dptext_etl.engines.spark.source import read_text
from dptext_etl.errors import InputError, bare, seam
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.reading import current, scan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@bare
def published(
    spark: SparkSession, path: str, storage_options: Mapping[str, str] | None = None, *, verify: bool = True
) -> DataFrame:
    """Read the current version of a published table, and check first that its files are those of its manifest.

    Args:
        spark: The session; its executors see the files under the same paths.
        path: Folder or object-store URL of the table, which is the policy's sink.
        storage_options: Options with which the driver reads the manifest of an object store; values may be "env:NAME".
            Executors read the objects with Spark's own settings.
        verify: Read every file once and compare its hash (see `runner.scan_published`).

    Returns:
        A frame of the version that was current at the call; a later publication does not change it.

    Raises:
        InputError: Nothing is published there, or a file is not the one that was published.
    """
    layout = Layout.of_sink(path, dict(storage_options or {}))
    manifest = current(layout, verify=verify)
    places = [layout.part(part.path) for part in manifest.parts]
    paths = [place if "://" in place else f"file://{place}" for place in places]
    if manifest.file_format != "parquet":
        return read_text(spark, paths, manifest.file_format, scan(layout, manifest).collect_schema())
    with seam(
        "opening a published table with Spark", InputError, "check that every executor sees the files under this path"
    ):
        return spark.read.parquet(*paths)
