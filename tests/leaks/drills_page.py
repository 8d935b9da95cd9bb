"""Write `studies/reports/leak-drills.md`: what stopped each drill, and which drills have tests in other files."""

import json
from pathlib import Path

from . import other_defects
from .drills import BUGS, LEAKS, MODELS
from .floors import FOUND, table
from .guard_bypasses import WAYS

PAGE = Path(__file__).resolve().parents[2] / "studies" / "reports" / "leak-drills.md"
SAID = ("an error message", "Dagster's events", "a failing expectation", "a Rust panic")

ELSEWHERE = {
    "raw text in Spark's logs": (
        "an exception in a task",
        "`errors.seam` on the workers; `tests/spark/test_drills.py` searches the logs of failing queries",
    ),
    "raw text in names of columns": (
        "a pivot, or a file without a header line",
        "columns that no policy declares are named by place; `tests/leaks/test_column_names.py`",
    ),
    "raw text in local variables of a failure": (
        "error trackers print the frames",
        "`errors.bare` at every public function that meets rows; `tests/leaks/test_error_locals.py`",
    ),
}
AROUND = {
    "one text released for every id in Spark": (
        "`first_value(text) OVER (…)` as the text",
        "`guard`: a raw column occurs only as the plain argument of a release; `tests/spark/test_guard.py`",
    ),
    "another budget or mode released in Spark": (
        "a second function in the session",
        "`guard(policy=…)` compares what the function carries; `tests/spark/test_guard.py`",
    ),
    "raw text next to the cells of a table": (
        "an index, `attrs`, unused categories, metadata, an extension type: Parquet keeps them",
        "`ExpectOnlyReleasedText`, gate `raw_column_absent`; `tests/leaks/test_gates_frame_metadata.py`",
    ),
    "a Dagster asset that reads what the raw asset is made from": (
        "the dump two steps above, or a twin of one `multi_asset`",
        "`check_lineage`: raw is closed upward and over siblings; `tests/orchestration/test_lineage.py`",
    ),
}
ELSEWHERE |= AROUND
"""Drills that need a separate application, and the test that is them."""


def page(outcomes):
    """Write the page from the outcomes."""
    lines = {"BUGS": [], "LEAKS": [], "MODELS": [], "WAYS": [], "SAID": []}
    for planted, (drill, stopped) in outcomes.items():
        if stopped is None:
            seen, stopper = drill
            kind = "MODELS" if planted in MODELS else "WAYS" if planted in AROUND else "SAID"
            lines[kind].append(f"| {planted} | {seen} | {stopper} |")
            continue
        shown = ", ".join(f"`{name}`" for name in sorted(stopped)) or f"**not stopped.** {drill.why}"
        kind = next(name for name, kinds in {"BUGS": BUGS, "LEAKS": LEAKS, "WAYS": WAYS}.items() if drill in kinds)
        lines[kind].append(f"| {planted} | {drill.seen} | {shown} |")
    head = "| planted | seen, or how it comes about | stopped by |\n| --- | --- | --- |\n"
    tables = {kind: head + "\n".join(rows) for kind, rows in lines.items()}
    floors = table(json.loads(FOUND.read_text(encoding="utf-8")))
    tables |= {name: other_defects.rows(getattr(other_defects, name)) for name in NAMED}
    more = sum(len(getattr(other_defects, name)) for name in NAMED)
    return INTRODUCTION.format(count=len(outcomes) + more, floors=floors, **tables)


NAMED = ("TABLES", "CLAIMS", "IDENTITY", "ERASURE")
"""Tables of drills that have separate tests."""

INTRODUCTION = """<!-- written by `make -C studies leak-drills` from what stopped each drill -->
# Leak drills

{count} bugs and leaks, planted one at a time. Most of them were found in public code of other projects. The tables
show what stopped each one when the drill ran. A gate that fails stops the publication and revokes the release name.

## Bugs of a mechanism

These change what the mechanism returns to a run. The rows are charged, staged, and committed as if they were right,
so the digests of the ledger prove nothing.

{BUGS}

## Floors

How rare or small can a bug be before the gates miss it? Each cell counts the runs that a gate stopped, of a number of
runs under different keys, first with one set of canary rows, then with ten. A set has eight rows. A run plants one
set per 500 rows, up to ten, and at least one per shard. CusText has ε = 2 and `surrogate` ε = 4, over 2,000 rows.
DP-MLM has ε = 20 per word over 200 rows, with a tiny model. The same rows stay raw in every computation, so
`canary_rows_reproducible` does not detect them. In DP-MLM, a word may come back with almost any probability, so the
gates do not detect single raw words or a larger ε there. `python -m tests.leaks.floors` measures the table. To
compare more, a gate would have to read real rows, which costs privacy.

{floors}

## Leaks on the way to publication

These change the staged table after its rows were committed.

{LEAKS}

## Models that fail

These change the scores of a model. If a model fails on a text of the release, the draw is uniform, is charged, and
decides nothing. Public texts are scored before each shard is charged and after it is computed. Only these can stop a
run.

{MODELS}

## Ways around a guard

Plans that once passed `dptext_etl.polars.guard(plan, policy=…)`, and what the guard says of each now.

{WAYS}

## Raw text in messages

A library quotes a text in its own message. The drill searches everything that was printed, written, or stored.

{SAID}

## Releases of a whole table

Shuffled releases and synthetic tables have a central guarantee, and no row of theirs belongs to a record.

{TABLES}

## Published structure and signed claims

Two tables that differ in texts alone are published, or a page is read as its reader would read it.

{CLAIMS}

## Identity and the memory of a ledger

{IDENTITY}

## Erasure

{ERASURE}
"""
