"""The code location: one policy, two partitions, and a sample of notes that is written when it is missing.

In a project of your own this file is two lines: `build_definitions("privacy.toml")` and its import.
"""

from __future__ import annotations

from pathlib import Path

from dagster_project.sample import write_missing
from dptext_etl.orchestration import build_definitions

POLICY = Path(__file__).with_name("privacy.toml")

write_missing(POLICY.parent / "data")
defs = build_definitions(POLICY)
