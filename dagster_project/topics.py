"""What someone downstream makes of the notes: this asset sees the published table alone, and never a raw one."""

# No `from __future__ import annotations`: Dagster reads the annotations of an asset's parameters.
from typing import Any

import dagster as dg
import polars as pl

from dagster_project.sample import PARTITIONS
from dptext_etl.orchestration import after_gates

MONTHS = dg.StaticPartitionsDefinition(PARTITIONS)


@dg.asset(partitions_def=MONTHS, group_name="notes", kinds={"polars"}, automation_condition=after_gates())
def topics(published_notes: pl.LazyFrame) -> dg.MaterializeResult[Any]:
    """Notes and words per topic, counted in what is published; runs when its blocking checks have passed."""
    words = pl.col("note").str.split(" ").list.len()
    counted = published_notes.group_by("topic").agg(pl.len().alias("notes"), words.mean().round(1).alias("words"))
    table = counted.sort("topic").collect()
    rows = dg.MetadataValue.table([dg.TableRecord(row) for row in table.to_dicts()])
    return dg.MaterializeResult(metadata={"topics": rows, "dagster/row_count": table.height})
