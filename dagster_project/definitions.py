"""The code location: two policies, two partitions, an asset downstream, and samples of text, written when missing.

In a project of your own this file is two lines: `build_definitions("privacy.toml")` and its import.
"""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from dagster_project.comments import comments
from dagster_project.sample import write_missing
from dagster_project.topics import MONTHS, topics
from dptext_etl.orchestration import build_definitions, check_lineage

POLICY = Path(__file__).with_name("privacy.toml")

write_missing(POLICY.parent / "data")
of_models = comments()  # None without the extra "models"
built = [build_definitions(policy, partitions=MONTHS) for policy in (POLICY, of_models) if policy is not None]
defs = check_lineage(dg.Definitions.merge(*built, dg.Definitions(assets=[topics], executor=dg.in_process_executor)))
