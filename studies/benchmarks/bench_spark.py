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
        print("left out: Spark needs pyspark and Java 17 or newer", file=sys.stderr)
        return []
    return [*functions(), *frame(), *short_rows()]


def functions() -> list[Row]:
    """The SQL function over the column, against the function that gives the column back."""
    found = task("functions", script="spark_tasks.py")
    if not found:
        return []
    identity = found["identity"]
    return [
        Row(
            f"CusText in Spark SQL over IMDb, {form} form, two slots",
            f"{found[form]:.2f} s, {amount(found['words'] / found[form])} words/s",
            f"an Arrow identity function over the same column: {identity:.2f} s",
            found[form] / identity,
            f"<= {GOAL}",
            found[form] <= GOAL * identity,
        )
        for form in ("arrow", "pandas")
    ] + [
        Row(
            "the same with a ledger, Arrow form, records new to it",
            f"{found['ledger']:.2f} s, {amount(found['rows'] / found['ledger'])} records/s",
            f"without the ledger: {found['arrow']:.2f} s",
            found["ledger"] / found["arrow"],
        )
    ]


def frame() -> list[Row]:
    """`run_frame` end to end: canaries, ledger, gates and publication included."""
    found = task("frame", script="spark_tasks.py")
    if not found:
        return []
    return [
        Row(
            "`run_frame` with CusText over IMDb, two slots",
            f"{found['wall']:.1f} s for {found['rows']:,.0f} reviews, {amount(found['words'] / found['wall'])} words/s",
            f"the Arrow identity function: {found['identity']:.2f} s",
            found["wall"] / found["identity"],
        )
    ]


def short_rows() -> list[Row]:
    """A million short rows with a cap per subject, as a frame and by the command."""
    found, command = (task(name, script="spark_tasks.py") for name in ("short_rows", "command"))
    if not found or not command:
        return []
    rows = f"{amount(found['rows'])} short rows"
    return [
        Row(
            f"`run_frame` with CusText over {rows}, two slots",
            f"{found['wall']:.1f} s, {found['cpu']:.0f} CPU-s, {amount(found['rows'] / found['wall'])} rows/s",
            f"the SQL function without a ledger over the same rows: {found['function']:.1f} s",
            found["wall"] / found["function"],
            f"<= {SECONDS} s",
            found["wall"] <= SECONDS,
        ),
        Row(
            f"`dptext run --engine spark` over {rows}, the start of Spark included",
            f"{command['wall']:.1f} s",
            f"`run_frame` in a session that runs: {found['wall']:.1f} s",
            command["wall"] / found["wall"],
            f"<= {SECONDS} s",
            command["wall"] <= SECONDS,
        ),
    ]


if __name__ == "__main__":
    main(rows)
