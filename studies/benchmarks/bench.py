"""`make -C studies bench`: run every benchmark, or those that are named, and write `results.json`.

    python studies/benchmarks/bench.py                 # all parts
    python studies/benchmarks/bench.py dpmlm dpbart    # these; the others keep their earlier figures

Only ratios within one run of one part mean anything beyond this machine; see `studies/reports/benchmarks.md`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import bench_alternatives
import bench_custext
import bench_diffractor
import bench_dpbart
import bench_dpmlm
import bench_dpmlm_host
import bench_dpmlm_run
import bench_madlib
import bench_postgres
import bench_run
import bench_santext
import bench_scale
import bench_spark
import bench_sqlite
import bench_start
import bench_surrogate
from measuring import HERE, Row, show
from results import Origin, Results

PARTS: dict[str, Callable[[], list[Row]]] = {
    "start": bench_start.rows,
    "custext": bench_custext.rows,
    "santext": bench_santext.rows,
    "madlib": bench_madlib.rows,
    "diffractor": bench_diffractor.rows,
    "surrogate": bench_surrogate.rows,
    "alternatives": bench_alternatives.rows,
    "dpmlm": bench_dpmlm.rows,
    "dpmlm-host": bench_dpmlm_host.rows,
    "dpmlm-run": bench_dpmlm_run.rows,
    "dpbart": bench_dpbart.rows,
    "run": bench_run.rows,
    "scale": bench_scale.rows,
    "ledger": bench_sqlite.rows,
    "postgres": bench_postgres.rows,
    "spark": bench_spark.rows,
}
FILE = HERE / "results.json"


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write after every part; 1 if a part failed, whose older results are kept."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", nargs="*", metavar="PART", help=f"what to measure, of: {', '.join(PARTS)}")
    named = list(dict.fromkeys(parser.parse_args(arguments).part)) or list(PARTS)
    unknown = [name for name in named if name not in PARTS]
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    began, origin = time.perf_counter(), Origin.here("bench.py")
    results, failed = Results.read(FILE, tuple(PARTS)), []
    rows_of: dict[str, list[Row]] = {}
    for name in named:
        started = time.perf_counter()
        print(f"-- {name}", flush=True)
        try:
            rows_of[name] = PARTS[name]()
        except (SystemExit, Exception) as exc:  # noqa: BLE001  (hours of the other parts must not be lost)
            failed.append(name)
            print(f"the part {name} failed: {exc}", file=sys.stderr, flush=True)
            continue
        print(f"{show(rows_of[name])}\n-- {name}: {time.perf_counter() - started:.0f} s", flush=True)
        for part, rows in rows_of.items():
            results.put(part, rows, origin)
        results.write()
    print(f"\n{origin.machine}; {time.perf_counter() - began:.0f} s; written to benchmarks/{FILE.name}")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
