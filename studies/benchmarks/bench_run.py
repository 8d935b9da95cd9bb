"""Whole runs, canaries, gates and publication included: against their parts, on two cores, of a million short texts.

python studies/benchmarks/bench_run.py          # a table
python studies/benchmarks/bench_run.py --json   # the same rows as JSON
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from measuring import Row, Run, amount, main, settled, task

MEBI = 1 << 20
GATE: dict[str, Any] = {
    "copy_gate_false_alarm": 1e-6,
    "cap": {"measure": "approx", "epsilon": 1e6, "delta": 0.1, "period": "2026"},
}
_task = partial(task, script="run_tasks.py")


def rows() -> list[Row]:
    """Measure everything and return the rows; compared tasks alternate, because the speed of a machine drifts."""
    each: list[Callable[[], Run]] = [partial(_task, "parts", cores=1), partial(_run, 1), partial(_run, 2)]
    if len(os.sched_getaffinity(0)) > 1:
        each.append(_at_once)
    best = settled(each)
    if not best[0]:
        return []
    parts, one, two, *at_once = best
    compared_rows = [_against_parts(one, parts), _ledger(two), *(_on_two_cores(one, two, both) for both in at_once)]
    return [*compared_rows, _memory(two), _copies(_task("run", threads=2, **GATE)), *_short()]


def _run(cores: int, first: int = 0) -> Run:
    return _task("run", threads=cores, cores=cores, first=first)


def _at_once() -> Run:
    """Run twice at the same time, each on its own core, and return the slower run: what two cores give at most."""
    with ThreadPoolExecutor(2) as pool:
        return max(pool.map(partial(_run, 1), (0, 1)), key=lambda run: run.get("wall", 0.0))


def _against_parts(run: Run, parts: Run) -> Row:
    ratio = run["cpu"] / parts["cpu"]
    return Row(
        "`dptext run` with CusText over IMDb, one core",
        f"{run['cpu']:.1f} CPU-s for {run['rows']:,.0f} reviews, {amount(run['words'] / run['cpu'])} words/CPU-s",
        f"only reading, drawing, and writing the same: {parts['cpu']:.2f} CPU-s",
        ratio,
        "<= 2.5",
        ratio <= 2.5,
    )


def _ledger(run: Run) -> Row:
    without = run["wall"] - run["ledger_wall"]
    ratio = run["wall"] / without
    return Row(
        "the same, two threads",
        f"{run['wall']:.1f} s",
        f"the same without the ledger's share: {without:.1f} s",
        ratio,
        "<= 1.3",
        ratio <= 1.3,
    )


def _on_two_cores(one: Run, two: Run, both: Run) -> Row:
    ratio, most = one["wall"] / two["wall"], 2 * one["wall"] / both["wall"]
    return Row(
        "the same, elapsed: shards side by side on two cores",
        f"{two['wall']:.1f} s",
        f"on one core: {one['wall']:.1f} s; of two runs at once, a core each, this machine makes {most:.2f} x",
        ratio,
        ">= 1.6 where nothing else runs",
        ratio >= 1.6,
    )


def _memory(run: Run) -> Row:
    size = run["peak"] / MEBI
    return Row(
        "its memory above the interpreter's", f"{size:,.0f} MiB more at the peak", goal="<= 350 MiB", met=size <= 350
    )


def _copies(run: Run) -> Row:
    return Row(
        "copies counted in all rows, because the policy sets `copy_gate_false_alarm`",
        f"{run['reports'] * run['cpu']:.2f} CPU-s",
        f"the whole run: {run['cpu']:.1f} CPU-s",
        run["reports"],
        "<= 0.25",
        run["reports"] <= 0.25,
    )


def _short() -> list[Row]:
    """Runs over short texts: linear in their number, and the time of a plan."""
    few, many = (_task("run", threads=2, rows=rows) for rows in (100_000, 1_000_000))
    plan = _task("plan", threads=2)
    if not (few and many and plan):
        return []
    linear = (many["cpu"] / many["rows"]) / (few["cpu"] / few["rows"])
    return [
        Row(
            "a million short texts (101 characters on average), first run",
            f"{many['wall']:.1f} s, {many['cpu']:.1f} CPU-s, {many['peak'] / MEBI:,.0f} MiB more at the peak",
            f"CPU-seconds per row of 100,000 of them: {few['cpu']:.1f} CPU-s in all",
            linear,
            "<= 1.2: linear",
            linear <= 1.2,
        ),
        Row(
            "`dptext plan` of the same",
            f"{plan['cpu']:.1f} CPU-s, {plan['peak'] / MEBI:,.0f} MiB more at the peak",
            f"the run: {many['cpu']:.1f} CPU-s",
            plan["cpu"] / many["cpu"],
            "<= 2 CPU-s",
            plan["cpu"] <= 2,
        ),
    ]


if __name__ == "__main__":
    main(rows)
