"""The table of steps in docs/design.md: a run calls all of them in this order, a plan only some."""

import re
import sys
import threading
from pathlib import Path

from dptext_etl.runner import plan

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| (\w+) \| `([\w.]+)` in `([\w/.]+)` \|.*\| ([^|]+) \|$", re.MULTILINE)


def steps_entered(functions, call):
    """Return the steps in the order of their first calls, in any thread."""
    entered = []

    def note(frame, event, _):
        step = functions.get((frame.f_code.co_qualname, frame.f_code.co_filename)) if event == "call" else None
        if step is not None and step not in entered:
            entered.append(step)

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    return entered


def test_a_run_and_a_plan_call_the_steps_of_the_table(job):
    table = (ROOT / "docs" / "design.md").read_text().split("{#steps}")[1].split("\n## ")[0]
    rows = ROW.findall(table)
    functions = {(name, str(ROOT / path)): step for step, name, path, _ in rows}
    assert len(rows) == table.count("\n| ") - 1
    assert steps_entered(functions, lambda: plan(job.write_policy())) == [
        step for step, *_, in_plan in rows if in_plan != "no"
    ]
    assert steps_entered(functions, job.run) == [step for step, *_ in rows]
