"""`make bench`: every benchmark in one go, a table on the terminal, and `results.json` for the documentation.

Only ratios taken within this run mean anything beyond this machine; see `docs/benchmarks.md`.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import bench_custext
import bench_diffractor
import bench_madlib
import bench_postgres
import bench_santext
import bench_spark
from measuring import HERE, Row, amount, show, task

LEDGER_RECORDS = 10_000_000


def main() -> None:
    """Measure, print, write."""
    began = time.perf_counter()
    load = os.getloadavg()[0]
    rows: list[Row] = []
    parts = (
        bench_custext.rows,
        bench_santext.rows,
        bench_madlib.rows,
        bench_diffractor.rows,
        run,
        ledger,
        bench_postgres.rows,
        bench_spark.rows,
    )
    for part in parts:
        found = part()
        print(show(found), flush=True)
        rows += found
    threads = f"{os.cpu_count()} threads, Python {platform.python_version()}"
    results = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{processor()}, {threads}, load {load:.1f} at the start, {os.getloadavg()[0]:.1f} at the end",
        "rows": [row.cells() for row in rows],
    }
    (HERE / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(f"\n{results['machine']}; {time.perf_counter() - began:.0f} s; written to benchmarks/results.json")


def run() -> list[Row]:
    """A whole run, canaries, gates and publication included, with and without what its ledger takes."""
    found = task("run", threads=2)
    if not found:
        return []
    without = found["wall"] - found["ledger_wall"]
    ratio = found["wall"] / without
    return [
        Row(
            "`dptext run` with CusText over IMDb, two threads",
            f"{found['wall']:.1f} s for {found['rows']:,.0f} reviews, {amount(found['words'] / found['wall'])} words/s,"
            f" {found['peak'] / 2**20:,.0f} MiB more at the peak",
            f"the same without the ledger's share: {without:.1f} s",
            ratio,
            "<= 1.3",
            ratio <= 1.3,
        )
    ]


def ledger() -> list[Row]:
    """Reserve and commit in batches of 100,000 on SQLite, up to ten million records."""
    small, large = (charged(records) for records in (1_000_000, LEDGER_RECORDS))
    return [
        Row(
            "ledger on SQLite, reserve and commit, a million records",
            f"{amount(small['records_per_cpu_s'])} records/CPU-s (by the clock {amount(small['records_per_s'])}/s)",
            "250 k records/CPU-s",
            small["records_per_cpu_s"] / 250_000,
            ">= 1",
            small["records_per_cpu_s"] >= 250_000,
        ),
        Row(
            "the same, the tenth million",
            f"{amount(large['last_million_per_cpu_s'])} records/CPU-s; file {large['file_mb']:,} MB, "
            f"peak {large['peak_memory_mb']:,} MB",
            f"CPU time of the first million (by the clock: {large['growth_wall']})",
            large["growth"],
            "<= 2",
            large["growth"] <= 2,
        ),
    ]


def charged(records: int) -> dict[str, float]:
    """Run the ledger's benchmark."""
    command = [sys.executable, str(HERE / "bench_ledger.py"), str(records)]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def processor() -> str:
    """Name the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
