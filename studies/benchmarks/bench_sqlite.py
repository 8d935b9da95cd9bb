"""The ledger on SQLite: reserve and commit in batches of 100,000, up to ten million records (`bench_ledger.py`).

python studies/benchmarks/bench_sqlite.py          # a table
python studies/benchmarks/bench_sqlite.py --json   # the same rows as JSON
"""

from __future__ import annotations

import json
import subprocess
import sys

from measuring import HERE, Row, amount, main

RECORDS = 10_000_000


def rows() -> list[Row]:
    """Measure everything and return the rows of the table."""
    small, large = (charged(records) for records in (1_000_000, RECORDS))
    return [
        Row(
            "ledger on SQLite, reserve and commit, a million records",
            f"{amount(small['records_per_cpu_s'])} records/CPU-s (elapsed {amount(small['records_per_s'])}/s)",
            "250 k records/CPU-s",
            small["records_per_cpu_s"] / 250_000,
            ">= 1",
            small["records_per_cpu_s"] >= 250_000,
        ),
        Row(
            "the same, the tenth million",
            f"{amount(large['last_million_per_cpu_s'])} records/CPU-s; file {large['file_mb']:,} MB, "
            f"peak {large['peak_memory_mb']:,} MB",
            f"CPU time of the first million (elapsed: {large['growth_wall']})",
            large["growth"],
            "<= 2",
            large["growth"] <= 2,
        ),
    ]


def charged(records: int) -> dict[str, float]:
    """Run the ledger's benchmark."""
    command = [sys.executable, str(HERE / "bench_ledger.py"), str(records)]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


if __name__ == "__main__":
    main(rows)
