"""Processes that were forked: one whose parent had used Polars is refused, and another one releases."""

import json
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptext_etl import _kernel
from tests.policy_files import custext_column, policy_in
from tests.quick import quick

FORKED = """
import json, os, sys
import polars as pl
values, used, door, late, elsewhere = json.loads(sys.argv[1])
if elsewhere:  # where the system shows no threads
    from pathlib import Path
    from dptext_etl import parallel
    parallel._TASKS = Path("/nowhere")
    if elsewhere == "daemon":
        import polars
        parallel.fork_unused()
if late:
    if used:
        pl.scan_parquet(values["source"]).group_by("id").len().collect()
    if os.fork():
        os.wait()
        sys.exit()
from dptext_etl import Policy, privatize, run
from dptext_etl.polars import privatize as expression
policy = Policy.parse(values)
doors = {
    "run": lambda: run(policy).published_rows,
    "expression": lambda: expression("text", policy, id="id") is not None,
}
if used and not late:
    pl.scan_parquet(policy.source).group_by("id").len().collect()
if late or not os.fork():
    try:
        print(doors[door](), flush=True)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize(
    ("used", "door", "refused", "late", "elsewhere"),
    quick(
        [
            (True, "run", True, False, None),
            (False, "run", False, True, None),
            (False, "run", True, False, "macOS"),
            (True, "run", True, True, None),
            (True, "expression", True, False, None),
            (False, "run", False, False, None),
            (False, "run", False, False, "daemon"),
        ],
        first=3,
    ),
)
def test_a_forked_process_releases_or_is_refused(tmp_path, small_vectors, used, door, refused, late, elsewhere):
    """Also one that imports this package only after the fork (`late`), and where no threads are shown (`elsewhere`)."""
    said = "PolicyError this process was forked from one that had used Polars" if refused else "60"
    _kernel.Secret().write(str(tmp_path / "noise.key"))
    pq.write_table(
        pa.table({"id": [f"r{n}" for n in range(60)], "text": ["wordaa wordab"] * 60}), tmp_path / "raw.parquet"
    )
    policy = policy_in(tmp_path, custext_column(small_vectors))
    given = json.dumps([policy.model_dump(mode="json", by_alias=True), used, door, late, elsewhere])
    done = subprocess.run(
        [sys.executable, "-c", FORKED, given], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.startswith(said), done.stdout + done.stderr
    assert (tmp_path / "inside").exists() == (tmp_path / "ledger.db").exists() == (not refused), "nothing is locked"
