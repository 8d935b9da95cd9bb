"""Materialize every partition in this process: `python -m dagster_project`."""

from __future__ import annotations

import json
import sys

from dagster_project.definitions import MONTHS, POLICY, topics
from dptext_etl.orchestration import materialize


def main() -> int:
    """Run every asset for every partition; the pages of `dagster dev` show these runs too."""
    summary = materialize(POLICY, partitions=MONTHS, also=[topics], home=POLICY.parent / "home")
    json.dump(summary.as_dict(), sys.stdout, indent=2)
    sys.stdout.write("\n")
    return summary.exit_code


if __name__ == "__main__":
    sys.exit(main())
