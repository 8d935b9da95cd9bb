"""Spark: CusText as a SQL function over IMDb, in both forms, against an Arrow identity; and a whole run of the frame.

    python studies/benchmarks/bench_spark.py          # a table
    python studies/benchmarks/bench_spark.py --json   # the same rows as JSON

By the clock, with two task slots, from a cached frame to a sink that keeps nothing: what Spark moves is part of both.
Runs write their ledger and their published table to a disk.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys

from measuring import Row, amount, main, task

GOAL = 2.5
SECONDS = 30


def rows() -> list[Row]:
    """Measure everything and return the rows of the table."""
    if importlib.util.find_spec("pyspark") is None or shutil.which("java") is None:
        print("skipped: Spark needs pyspark and Java 17 or newer", file=sys.stderr)
        return []
    return [*functions(), *frame(), *short_rows()]


def functions() -> list[Row]:
    """The SQL function over the column, against the function that gives the column back."""
    run = task("functions", script="spark_tasks.py")
    if not run:
        return []
    identity = run["identity"]
    return [
        Row(
            f"CusText in Spark SQL over IMDb, {form} form, two slots",
            f"{run[form]:.2f} s, {amount(run['words'] / run[form])} words/s",
            f"an Arrow identity function over the same column: {identity:.2f} s",
            run[form] / identity,
            f"<= {GOAL}",
            run[form] <= GOAL * identity,
        )
        for form in ("arrow", "pandas")
    ] + [
        Row(
            "the same with a ledger, Arrow form, records new to it",
            f"{run['ledger']:.2f} s, {amount(run['rows'] / run['ledger'])} records/s",
            f"without the ledger: {run['arrow']:.2f} s",
            run["ledger"] / run["arrow"],
        )
    ]


def frame() -> list[Row]:
    """`run_frame` end to end: canaries, ledger, gates and publication included."""
    run = task("frame", script="spark_tasks.py")
    if not run:
        return []
    return [
        Row(
            "`run_frame` with CusText over IMDb, two slots",
            f"{run['wall']:.1f} s for {run['rows']:,.0f} reviews, {amount(run['words'] / run['wall'])} words/s",
            f"the Arrow identity function: {run['identity']:.2f} s",
            run["wall"] / run["identity"],
        )
    ]


def short_rows() -> list[Row]:
    """A million short rows with a cap per subject, as a frame and by the command."""
    run, command = (task(name, script="spark_tasks.py") for name in ("short_rows", "command"))
    if not run or not command:
        return []
    rows = f"{amount(run['rows'])} short rows"
    return [
        Row(
            f"`run_frame` with CusText over {rows}, two slots",
            f"{run['wall']:.1f} s, {run['cpu']:.0f} CPU-s, {amount(run['rows'] / run['wall'])} rows/s",
            f"the SQL function without a ledger over the same rows: {run['function']:.1f} s",
            run["wall"] / run["function"],
            f"<= {SECONDS} s",
            run["wall"] <= SECONDS,
        ),
        Row(
            f"`dptext run --engine spark` over {rows}, the start of Spark included",
            f"{command['wall']:.1f} s",
            f"`run_frame` in a session that runs: {run['wall']:.1f} s",
            command["wall"] / run["wall"],
            f"<= {SECONDS} s",
            command["wall"] <= SECONDS,
        ),
    ]


if __name__ == "__main__":
    main(rows)
