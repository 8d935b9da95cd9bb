"""How benchmarks measure: one task per process, its CPU-seconds, the rows of a table of comparisons."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from plain_loops import ENOUGH

HERE = Path(__file__).resolve().parent
THREADS = ("POLARS_MAX_THREADS", "DPTEXT_THREADS", "RAYON_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
TIMES, MOST = 4, 24
"""Runs alternate until the best times have not changed for this number of turns, or for a number in total."""
SETTLED = 0.99
"""A best time has changed if the new one is below this share of the old one."""

Run = dict[str, Any]
"""What one run of a task says of itself: "wall" and "cpu" in seconds among it; {} where its data is absent."""


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        work: The task.
        measured: How fast, in words.
        against: The compared task, measured in the same run.
        ratio: The comparison as a number.
        goal: The goal, in words.
        met: Whether the goal was reached; None where there is none.
    """

    work: str
    measured: str
    against: str = ""
    ratio: float | None = None
    goal: str = ""
    met: bool | None = None

    def cells(self) -> dict[str, str]:
        """The row as the documentation shows it."""
        ratio = "" if self.ratio is None else f"{self.ratio:.3g}"
        goal = self.goal + ("" if self.met is None else ": met" if self.met else ": not met")
        return {"work": self.work, "measured": self.measured, "against": self.against, "ratio": ratio, "goal": goal}


def task(name: str, *, threads: int = 1, script: str = "tasks.py", **parameters: Any) -> Run:
    """Run one task of a script in a separate process; {} with a sentence on stderr where its data is absent.

    The files that it leaves in the folder of temporary files are removed.
    """
    env = {**os.environ, **dict.fromkeys(THREADS, str(threads))}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # modules are compiled once, like the modules of an installed package
    command = [sys.executable, str(HERE / script), name, json.dumps(parameters)]
    with TemporaryDirectory(prefix="dptext-bench-") as folder:
        done = subprocess.run(command, env={**env, "TMPDIR": folder}, capture_output=True, text=True, check=False)
    if done.returncode == SKIPPED:
        print(done.stderr.strip(), file=sys.stderr)
        return {}
    if done.returncode:
        sys.exit(f"the task {name} failed (exit {done.returncode})\n{done.stderr}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


SKIPPED = 77


def best(times: int, name: str, **parameters: Any) -> Run:
    """Repeat a task and keep the run with the least processor time."""
    return min((task(name, **parameters) for _ in range(times)), key=lambda run: run.get("cpu", 0.0))


def settled(each: Sequence[Callable[[], Run]]) -> list[Run]:
    """Measure again and again, in turns, and return the quickest of each: a host slows one or the other at any time."""
    quickest, since = [measure() for measure in each], 0
    for _ in range(MOST - 1 if quickest[0] else 0):
        now = [measure() for measure in each]
        changed = any(new["wall"] < SETTLED * old["wall"] for new, old in zip(now, quickest, strict=True))
        quickest = [min(pair, key=lambda run: run["wall"]) for pair in zip(quickest, now, strict=True)]
        since = 0 if changed else since + 1
        if since == TIMES:
            break
    return quickest


def two_threads(work: str, measure: Callable[..., Run], rate: Callable[[Run], str], goal: float | None = None) -> Row:
    """Compare two threads with one by elapsed time.

    Args:
        work: The task.
        measure: Does it with `threads`; its data is there.
        rate: Says how fast a run was by elapsed time.
        goal: The least ratio.
    """
    one, two = settled([partial(measure, threads=threads) for threads in (1, 2)])
    ratio = one["wall"] / two["wall"]
    wanted, met = ("", None) if goal is None else (f">= {goal}", ratio >= goal)
    return Row(work, f"{rate(two)} elapsed", "one thread, elapsed", ratio, wanted, met)


def words_rate(run: Run) -> str:
    """Say the words per elapsed second of a run."""
    return f"{amount(run['words'] / run['wall'])} words/s"


def counted(plain: float, published: float) -> float:
    """Return the rate for a goal: the plain loop's rate, or, where it falls short, `ENOUGH` of the published rate.

    A machine on which the loop is too slow to count makes a goal harder, never easier.
    """
    return max(plain, ENOUGH * published)


def amount(number: float) -> str:
    """Write a number with three digits: 86.0 k, 12.3 M."""
    for size, unit in ((1e6, " M"), (1e3, " k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"


def growing(name: str, runs: dict[int, Run], base: int) -> list[Row]:
    """Compare a column's rate at the most words with that at `base` words; give its memory next to the text's bytes.

    Args:
        name: Of the column.
        runs: The run of every number of words; nothing is said where one is missing.
        base: A number of words from which on the rate must not fall.
    """
    if not all(runs.values()):
        return []
    rates = {size: one["words"] / one["cpu"] for size, one in runs.items()}
    largest = runs[max(runs)]
    kept = rates[max(rates)] / rates[base]
    return [
        Row(
            f"{name} column, {', '.join(map(power, rates))} words of text",
            ", ".join(amount(rate) for rate in rates.values()) + " words/CPU-s",
            f"its rate at {power(base)} words",
            kept,
            ">= 0.8: linear",
            kept >= 0.8,
        ),
        Row(
            f"{name}: memory of {power(max(runs))} words",
            f"{largest['peak'] / 2**20:,.0f} MiB more at the peak, result included",
            f"the column's text: {largest['bytes'] / 2**20:,.0f} MiB",
            largest["peak"] / largest["bytes"],
        ),
    ]


def power(number: int) -> str:
    """Write a round number as a power of ten: 10^4, 3 x 10^4."""
    zeros = len(str(number)) - 1
    lead = number // 10**zeros
    return f"10^{zeros}" if lead == 1 else f"{lead} x 10^{zeros}"


def show(rows: list[Row]) -> str:
    """Lay rows out as plain text."""
    lines = []
    for row in rows:
        cells = row.cells()
        lines.append(f"{cells['work']}: {cells['measured']}")
        compared = f"    {cells['ratio']} x {cells['against']}" if cells["ratio"] else ""
        lines += [compared + (f"   [{cells['goal']}]" if cells["goal"] else "")] if compared else []
    return "\n".join(lines)


def main(rows: Callable[[], list[Row]]) -> None:
    """Print the rows of one benchmark, as JSON with `--json`."""
    lines = rows()
    print(json.dumps([asdict(row) for row in lines]) if "--json" in sys.argv else show(lines))
