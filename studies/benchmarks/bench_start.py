"""How long a user waits: the help, the import, a first preview, a small table released (commands as they are typed).

python studies/benchmarks/bench_start.py          # a table
python studies/benchmarks/bench_start.py --json   # the same rows as JSON
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from measuring import Row, main

TIMES = 7
ROWS = 60
DPTEXT = (sys.executable, "-m", "dptext_etl.cli")


class Taken(NamedTuple):
    """The seconds of a command: of the processor, and elapsed."""

    cpu: float
    wall: float


def rows() -> list[Row]:
    """Measure everything and return the rows of the table."""
    with tempfile.TemporaryDirectory(prefix="dptext-bench-") as name:
        folder = Path(name)
        table(folder)
        empty = least((sys.executable, "-c", "pass"), folder)
        preview = (*DPTEXT, "preview", "custext")
        plan, run = proposed(folder, "plan"), proposed(folder, "run")
        return [
            row("import dptext_etl", least((sys.executable, "-c", "import dptext_etl"), folder), empty, 0.3),
            row("dptext --help", least((*DPTEXT, "--help"), folder), empty, 0.15),
            row("dptext preview, nothing cached", least(preview, folder, forget(folder / "cache")), empty, 1.5),
            row("the same, again", least(preview, folder), empty, 1.5),
            row(f"dptext run of what init proposes, {ROWS} rows", run, empty, 0.8),
            Row(
                "dptext plan of the same",
                f"{plan.cpu:.2f} CPU-s",
                f"the run: {run.cpu:.2f} CPU-s",
                plan.cpu / run.cpu,
                "<= 0.9",
                plan.cpu <= 0.9 * run.cpu,
            ),
        ]


def row(work: str, taken: Taken, empty: Taken, goal: float) -> Row:
    """Write a row: the goal is for a dedicated core, where the clock shows little more than the processor's time."""
    measured = f"{taken.cpu:.2f} CPU-s, {taken.wall:.2f} s elapsed"
    against = f"a Python that does nothing: {empty.cpu:.3f} CPU-s"
    return Row(work, measured, against, taken.cpu / empty.cpu, f"<= {goal} s", taken.cpu <= goal)


def least(command: tuple[str, ...], folder: Path, before: Callable[[], None] = lambda: None) -> Taken:
    """Run a command some times, and once before that; the least of each clock counts."""
    return Taken(*map(min, zip(*[once(command, folder, before) for _ in range(TIMES + 1)][1:], strict=True)))


def once(command: tuple[str, ...], folder: Path, before: Callable[[], None]) -> Taken:
    """Run a command in a folder, after `before`, with an artifact cache of the folder's own."""
    before()
    env = {**os.environ, "DPTEXT_CACHE": str(folder / "cache")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    used, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True)
    wall, now = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Taken(now.ru_utime - used.ru_utime + now.ru_stime - used.ru_stime, wall)


def forget(cache: Path) -> Callable[[], None]:
    """Return what empties the artifact cache."""
    return lambda: shutil.rmtree(cache, ignore_errors=True)


def proposed(folder: Path, command: str) -> Taken:
    """Measure a command over the policy that `dptext init` proposes, and a release that was never run."""
    place = folder / "proposed"

    def anew() -> None:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        shutil.copy(folder / "raw.parquet", place)
        subprocess.run((*DPTEXT, "init", "raw.parquet", "--form", "rows"), cwd=place, check=True, capture_output=True)

    return least((*DPTEXT, command, str(place / "privacy.toml")), folder, anew)


def table(folder: Path) -> None:
    """Write a small table of distinct texts, and a key."""
    import polars as pl

    from dptext_etl import _kernel

    places, faults = (
        ("hotel", "room", "bathroom", "lobby", "kitchen", "garden"),
        ("cold", "dirty", "loud", "dark", "wet"),
    )
    says = "The {} was {} when we came back from the station at {} in the evening, and the staff were kind about it."
    texts = [says.format(places[i % 6], faults[i // 6 % 5], 5 + i // 30) for i in range(ROWS)]
    users = [f"u{i // 2}" for i in range(ROWS)]
    pl.DataFrame({"id": range(ROWS), "user_id": users, "text": texts}).write_parquet(folder / "raw.parquet")
    _kernel.Secret().write(str(folder / "noise.key"))


if __name__ == "__main__":
    main(rows)
