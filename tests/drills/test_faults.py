"""Faults as a scheduler meets them: the exit code of `dptext run`, whether Dagster repeats the step, and the next run.

Each run is a process with the command line, over a small store, a ledger file, or a table on this machine. The faults
of one test are the figures of one row of the table in studies/reports/drills.md.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta

import pytest

from dptext_etl.errors import BUDGET, INTERRUPTED, POLICY, TRANSIENT, UNAVAILABLE
from dptext_etl.storage import LEASE_SECONDS

from ..object_store import remote, upload
from ..review_jobs import store  # noqa: F401  (a fixture)

pytestmark = pytest.mark.thorough
WAITING = """
import sys, time
from pathlib import Path
from dptext_etl.cli.app import main
from dptext_etl.engines.local import LocalEngine

compute, here = LocalEngine.compute, Path(sys.argv.pop())

def waiting(self, work, phase, meter):
    if phase == "release":
        here.touch()
        time.sleep(600)
    return compute(self, work, phase, meter)

LocalEngine.compute = waiting
main()
"""
"""Runs a policy, and pauses when all rows are reserved."""


def run(policy, **environment):
    """Run a policy as a command, and return its exit code and output."""
    command = [sys.executable, "-m", "dptext_etl.cli", "run", str(policy), "--json"]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=600
    )
    return done.returncode, done.stderr


def begun(policy, folder):
    """Start a run that pauses after its reservations, and return its process."""
    reached = folder / "reached"
    reached.unlink(missing_ok=True)
    command = [sys.executable, "-c", WAITING, "run", str(policy), str(reached)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not reached.exists():
        assert process.poll() is None, "it ended before it had reserved"
        time.sleep(0.05)
    return process


def in_store(job, store, **changes):  # noqa: F811
    upload(job, store)
    cap = {"measure": "pure", "epsilon": 1e6, "period": "2026"}
    job.values.update(remote(job, store, staging="s3://bucket/inside", cap=cap, on_cap="refuse", **changes))
    return job.write_policy()


def test_a_store_that_answers_503(job, store, drill, monkeypatch):  # noqa: F811
    seconds = drill.count("seconds of 503", 4)
    patient = {**store.options, "max_retries": "20", "retry_timeout_ms": "180000"}
    policy = in_store(job, store, storage_options=patient)
    until = [0.0]
    kept = {name: getattr(store, name) for name in ("do_GET", "do_PUT", "do_HEAD", "do_POST", "do_DELETE")}

    def away(name):
        def answer(self):
            if time.monotonic() < until[0]:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self._answer(503, b"<Error><Code>ServiceUnavailable</Code></Error>")
            else:
                kept[name](self)

        return answer

    for name in kept:
        monkeypatch.setattr(store, name, away(name))
    until[0] = time.monotonic() + seconds
    during = run(policy)
    time.sleep(max(0.0, until[0] - time.monotonic()))
    after = run(policy)
    assert (during[0] in {0, UNAVAILABLE}, after[0]) == (True, 0), (during, after)
    assert UNAVAILABLE in TRANSIENT, "Dagster and the recipes repeat it"
    with job.ledger() as ledger:
        assert ledger.verify().ok
    drill.tell("503", f"a store that answers 503 for {seconds} s", f"exit {during[0]}, and afterwards exit 0")


def test_a_lease_after_kill_9_and_a_run_after_sigterm(job, store, drill, monkeypatch):  # noqa: F811
    monkeypatch.delenv("DPTEXT_THREADS", raising=False)
    policy = in_store(job, store)
    process = begun(policy, job.folder)
    process.send_signal(signal.SIGKILL)
    process.wait()
    busy = run(policy)
    assert (busy[0], "under way" in busy[1]) == (UNAVAILABLE, True), busy
    store.ahead = timedelta(seconds=LEASE_SECONDS + 2)  # it ends by itself, on the clock of the store
    killed = run(policy)
    process = begun(job.write_policy(release="2"), job.folder)
    process.send_signal(signal.SIGTERM)
    ended = process.wait()
    after = run(job.write_policy(release="2"))
    assert (killed[0], ended, after[0]) == (0, INTERRUPTED, 0), (killed, ended, after)
    with job.ledger() as ledger:
        assert (ledger.verify().ok, ledger.verify().counts["pending"]) == (True, 0)
    drill.tell("signals", "kill -9 with a lease; SIGTERM", "exit 6 until the lease ends, then 0; exit 130, then 0")


def test_a_restored_dump_with_an_empty_home(job, store, drill, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.delenv("DPTEXT_ANCHORS", raising=False)
    home = tmp_path / "home"
    ledger = {"url": f"sqlite:///{job.folder / 'ledger.db'}", "require_anchors": True}
    unnamed = run(job.write_policy(ledger=ledger), HOME=str(home), XDG_STATE_HOME=str(home))
    job.values |= {"ledger": {**ledger, "anchors": "s3://bucket/anchors"}, "storage_options": store.options}
    first = run(job.write_policy(), HOME=str(home), XDG_STATE_HOME=str(home))
    with job.ledger() as opened:
        opened.backup(job.folder / "copy.db")
    second = run(job.write_policy(release="2"), HOME=str(home), XDG_STATE_HOME=str(home))
    for path in job.folder.glob("ledger.db*"):
        if not path.name.endswith(".key"):
            path.unlink()
    (job.folder / "copy.db").rename(job.folder / "ledger.db")
    restored = run(job.write_policy(release="3"), HOME=str(home), XDG_STATE_HOME=str(tmp_path / "other"))
    assert (unnamed[0], first[0], second[0], restored[0]) == (POLICY, 0, 0, POLICY), (unnamed, restored)
    assert "is frozen" in restored[1]
    assert POLICY not in TRANSIENT and BUDGET not in TRANSIENT, "Dagster repeats no refusal"  # noqa: PT018
    drill.tell("restored dump", "a pod with an empty HOME", "without a named place: exit 5; with one: exit 5, frozen")


def test_optimize(job, drill):
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed (extra: tables)")
    job.values["table"] = {"format": "delta"}
    assert run(job.write_policy())[0] == 0
    table = deltalake.DeltaTable(str(job.folder / "published"))
    table.optimize.compact()
    same, after = run(job.write_policy()), run(job.write_policy(release="2"))
    deltalake.DeltaTable(str(job.folder / "published")).delete("stars = 1")
    changed = run(job.write_policy(release="3"))
    assert (same[0], after[0], changed[0]) == (0, 0, POLICY), (same, after, changed)
    drill.tell("OPTIMIZE", "a table whose files are rewritten; then rows deleted", "exit 0; exit 5")
