"""The code location: two policies, two partitions, an asset downstream, and samples of text, written when missing.

In your project this file has two lines: `build_definitions("privacy.toml")` and its import.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of an asset's parameters.
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl

from dagster_project.sample import PARTITIONS, comments, write_missing
from dptext_etl.orchestration import after_gates, build_definitions, check_lineage

POLICY = Path(__file__).with_name("privacy.toml")
MONTHS = dg.StaticPartitionsDefinition(PARTITIONS)


@dg.asset(partitions_def=MONTHS, group_name="notes", kinds={"polars"}, automation_condition=after_gates())
def topics(published_notes: pl.LazyFrame) -> dg.MaterializeResult[Any]:
    """Notes and words per topic, counted in the published table; runs when its blocking checks have passed."""
    words = pl.col("note").str.split(" ").list.len()
    counted = published_notes.group_by("topic").agg(pl.len().alias("notes"), words.mean().round(1).alias("words"))
    table = counted.sort("topic").collect()
    rows = dg.MetadataValue.table([dg.TableRecord(row) for row in table.to_dicts()])
    return dg.MaterializeResult(metadata={"topics": rows, "dagster/row_count": table.height})


write_missing(POLICY.parent / "data")
policies = [policy for policy in (POLICY, comments()) if policy is not None]
built = [build_definitions(policy, partitions=MONTHS) for policy in policies]
defs = check_lineage(dg.Definitions.merge(*built, dg.Definitions(assets=[topics], executor=dg.in_process_executor)))
