"""Scale: whole runs over short rows, at two sizes; the same run again; a thousand new rows next to published ones.

python studies/benchmarks/bench_scale.py          # a table
python studies/benchmarks/bench_scale.py --json   # the same rows as JSON

CPU-seconds of the run's process, its threads included. Each run is a separate process, so peaks are separate, too.
"""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import Any

from measuring import Row, amount, main, power, task

SIZES = (100_000, 1_000_000)
LINEAR, MEMORY, AGAIN, NEW = 1.1, 1536, 5, 15
"""Goals: time per row against the smaller table, MiB, and CPU-seconds of the other two."""


def rows() -> list[Row]:
    """Measure everything and return the rows of the table."""
    runs = {}
    for size in SIZES:
        with TemporaryDirectory(prefix="dptext-bench-") as folder:
            if not _task("table", folder=folder, rows=size):
                return []
            runs[size] = [_task("run", folder=folder, source=name) for name in ("raw.parquet",) * 2 + ("more.parquet",)]
    small, large = SIZES
    (first_small, _, _), (first, again, new) = runs[small], runs[large]
    grown = first["cpu"] / first_small["cpu"] * small / large
    peak = first["whole"] / 2**20
    if (again["new"], new["new"], new["published"]) != (0, 1_000, large + 1_000):
        raise SystemExit("the runs did not do the measured work")
    return [
        Row(
            f"`dptext run` over {power(large)} short rows, gates included, two threads",
            f"{first['cpu']:.1f} CPU-s, {amount(large / first['cpu'])} rows/CPU-s",
            f"CPU time per row over {power(small)} rows",
            grown,
            f"<= {LINEAR}: linear",
            grown <= LINEAR,
        ),
        Row(
            "its memory at the peak",
            f"{peak:,.0f} MiB, the interpreter included",
            f"over {power(small)} rows: {first_small['whole'] / 2**20:,.0f} MiB",
            first["whole"] / first_small["whole"],
            f"<= {MEMORY:,} MiB",
            peak <= MEMORY,
        ),
        Row(
            "the same run again",
            f"{again['cpu']:.2f} CPU-s ({again['wall']:.1f} s elapsed)",
            f"the first run: {first['cpu']:.1f} CPU-s",
            again["cpu"] / first["cpu"],
            f"<= {AGAIN} CPU-s",
            again["cpu"] <= AGAIN,
        ),
        Row(
            f"a thousand new rows next to {power(large)} published ones",
            f"{new['cpu']:.1f} CPU-s, {new['whole'] / 2**20:,.0f} MiB at the peak",
            f"the first run: {first['cpu']:.1f} CPU-s",
            new["cpu"] / first["cpu"],
            f"<= {NEW} CPU-s",
            new["cpu"] <= NEW,
        ),
    ]


def _task(name: str, **parameters: Any) -> dict[str, Any]:
    return task(name, threads=2, script="scale_tasks.py", **parameters)


if __name__ == "__main__":
    main(rows)
