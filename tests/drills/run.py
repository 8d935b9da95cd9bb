"""`make -C studies drills`: repeat the drills as often as asked, and write studies/reports/drills.md.

    python tests/drills/run.py [--only NAME]... [--full | --share 0.5]    (make -C studies drills DRILLS="…")

Every drill is a test of this folder, whose counts the suite keeps small; Spark's are tests next to the other tests of
Spark. Rows of drills that are not run now stay on the page as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PAGE = ROOT / "studies" / "reports" / "drills.md"
BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->\n"
HEAD = "| drill | done | found | when |\n|---|---|---|---|\n"
SPARK = (
    "tests/spark/test_drills.py",
    "tests/integration/test_run_spark_drills.py",
    "tests/integration/test_run_spark_tasks.py",
    "tests/contract/test_engine_contract.py::test_a_leak_where_texts_are_computed_is_stopped_by_the_gates",
)


class Kind(NamedTuple):
    """The request for a drill: its file of tests, and the counts that make it whole."""

    tests: tuple[str, ...]
    full: dict[str, int]


KINDS = {
    "kill": Kind(("test_kill.py",), {"kill": 200}),
    "commands": Kind(("test_commands.py",), {}),
    "crowd": Kind(("test_crowd.py",), {"keys": 100_000}),
    "restart": Kind(("test_restart.py",), {"restart": 20}),
    "full": Kind(("test_full.py",), {"full": 30, "limit": 10}),
    "at once": Kind(("test_at_once.py",), {"pairs": 20}),
    "clock": Kind(("test_clock.py",), {"clock": 20}),
    "stopped": Kind(("test_stopped.py",), {"stopped": 20}),
    "tables": Kind(("test_tables.py",), {"tables": 20}),
    "objects": Kind(("test_objects.py",), {"objects": 12}),
    "restore": Kind(("test_restore.py",), {"restore": 10}),
    "faults": Kind(("test_faults.py",), {"seconds of 503": 100}),
    "spark": Kind(SPARK, {}),
}


def main() -> int:
    """Run, say, write; the exit status reveals whether every drill held."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", choices=KINDS, help="one drill; repeatable")
    parser.add_argument("--full", action="store_true", help="the counts of the page; else a handful of each")
    parser.add_argument("--share", type=float, default=1.0, help="of the full counts, for a slow machine")
    asked = parser.parse_args()
    counts = {
        name: max(2, round(number * asked.share))
        for kind in KINDS.values()
        for name, number in kind.full.items()
        if asked.full or asked.share != 1.0
    }
    counts = {name: -(-number // 1000) * 1000 if name == "keys" else number for name, number in counts.items()}
    failed = []
    for name in asked.only or KINDS:
        print(f"{name} …", flush=True)
        ended, rows = drilled(name, counts)
        for row in rows:
            print(f"  {row['done']}: {row['found']} ({row['seconds']:.0f} s)", flush=True)
        if ended:
            failed.append(name)
        write(rows)
    print(f"written to {PAGE.relative_to(ROOT)}" + (f"; FAILED: {', '.join(failed)}" if failed else ""))
    return bool(failed)


def drilled(name: str, counts: dict[str, int]) -> tuple[int, list[dict]]:
    """Run one drill's tests and return how they ended and their figures."""
    with tempfile.TemporaryDirectory() as folder:
        out, junit = Path(folder) / "figures", Path(folder) / "junit.xml"
        tests = [test if "/" in test else str(HERE / test) for test in KINDS[name].tests]
        command = [sys.executable, "-m", "pytest", "-x", "-rs", "--timeout=7200", f"--junitxml={junit}", *tests]
        env = os.environ | {"DPTEXT_DRILLS": json.dumps({"counts": counts, "out": str(out)})}
        ended = subprocess.run(command, cwd=ROOT, env=env, check=False).returncode
        rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
        return ended, rows or ([tallied(name, junit)] if name == "spark" and not ended else [])


def tallied(name: str, junit: Path) -> dict:
    """Sum up tests that report no figures."""
    suite = next(ET.parse(junit).iter("testsuite"))
    total, skipped = (int(suite.get(word, 0)) for word in ("tests", "skipped"))
    done = (
        "tasks of whole runs that raise or whose worker dies after each step, a driver killed twice, attempts that "
        "overtake each other, speculation in a cluster of two workers; leaks on executors; logs of failing queries "
        f"({total} drills)"
    )
    held = (
        "the release and the charges of an undisturbed run; leaks planted on executors are stopped, and logs quote "
        "nothing"
    )
    found = held if total > skipped else "nothing"
    found += f"; {skipped} of them skipped on this machine" if skipped else ""
    return {"name": name, "done": done, "found": found, "seconds": float(suite.get("time", 0))}


def write(rows: list[dict]) -> None:
    """Replace the rows of these drills, and add those that are new."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    kept, _, after = rest.partition(END)
    table = {line.split(" | ")[0].removeprefix("| "): line for line in kept.splitlines()[2:]}
    machine = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}, Python {platform.python_version()}"
    for row in rows:
        when = f"{datetime.now(UTC).date()}, {row['seconds']:.0f} s, {machine}"
        table[row["name"]] = f"| {row['name']} | {row['done']} | {row['found']} | {when} |"
    PAGE.write_text(before + BEGIN + HEAD + "".join(f"{line}\n" for line in table.values()) + END + after, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
