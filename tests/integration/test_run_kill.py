"""Killed after any step, or terminated, and run again: the same bytes, one charge, a sound ledger, no lease."""

import json
import os
import re
import subprocess
from datetime import UTC, datetime
from threading import Event

import polars as pl
import pytest

from dptext_etl import storage
from dptext_etl.errors import INTERRUPTED, UnavailableError
from dptext_etl.ledger import Scope

from ..object_store import remote, upload

TIMES = {"checked": [1], "registered": [1], "planted": [2], "reserved": [1, 3], "computed": [1, 2], "staged": [1, 3]}
TIMES |= {"committed": [1, 2, 3, 6]}
ONCE = ("gated", "parts written", "recorded", "version written", "manifest written", "shown", "cleared")
STEPS = [(step, at) for step, times in TIMES.items() for at in times] + [(step, 1) for step in ONCE]
"""A step, and after how many times of it the process dies; three shards of two columns."""

CHILD = """
import json, os, signal, sys
from dptext_etl import Policy, run
values, step, times = json.loads(sys.argv[1])
left = times
def checkpoint(name):
    global left
    left -= name == step
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
run(Policy.parse(values), checkpoint=checkpoint)
"""


@pytest.fixture
def killed(warm):
    """Run a policy in a process that dies after `times` repetitions of a step: killed(policy, step, times)."""

    def run(policy, step, times):
        values = json.dumps([policy.model_dump(mode="json", by_alias=True), step, times])
        env = {**os.environ, "DPTEXT_THREADS": "2"}
        done = subprocess.run([*warm, "-c", CHILD, values], capture_output=True, text=True, check=False, env=env)
        return done.returncode == -9, done.stderr

    return run


@pytest.fixture
def undisturbed(make_job):
    job = make_job("undisturbed", shard_rows=100)
    job.run()
    return job


@pytest.mark.thorough
@pytest.mark.parametrize(("step", "times"), STEPS)
def test_a_killed_run_goes_on(undisturbed, make_job, killed, step, times):
    job = make_job("killed", shard_rows=100)
    died, said = killed(job.policy(), step, times)
    assert died, said
    reached = step in {"manifest written", "shown", "cleared"}
    assert (job.folder / "published.manifest.json").exists() == reached
    summary = job.run()
    assert summary.version == 1
    assert summary.rows["new"] + summary.rows["resumed"] + summary.rows["replayed"] == 240
    assert (job.files(), job.charged()) == (undisturbed.files(), undisturbed.charged())
    with job.ledger() as ledger:
        report = ledger.verify()
        assert report.ok, report.problems
        assert ledger.remaining(scope(job)).used == undisturbed_used(undisturbed)
    assert not list((job.folder / "published.staging").rglob("shard-*"))


@pytest.mark.thorough
@pytest.mark.parametrize("gone", ["draws", "parquet", "json"])
def test_killed_while_the_staged_files_were_removed(undisturbed, make_job, killed, gone):
    job = make_job("killed", shard_rows=100)
    assert killed(job.policy(), "manifest written", 1)[0]
    (file,) = (job.folder / "published.staging").rglob(f"shard-00001.{gone}")
    file.unlink()
    assert job.run().version == 1
    assert (job.files(), job.charged()) == (undisturbed.files(), undisturbed.charged())


@pytest.mark.thorough
def test_readers_never_see_half_a_version(make_job, killed, reviews, save):
    from dptext_etl.runner import scan_published

    job = make_job("killed")
    job.run()
    before = scan_published(str(job.folder / "published")).collect()
    save(reviews().with_columns(stars=0), job.folder / "raw.parquet")
    for step in ("parts written", "recorded", "version written"):
        assert killed(job.policy(), step, 1)[0]
        assert scan_published(str(job.folder / "published")).collect().equals(before)
    job.run()
    assert scan_published(str(job.folder / "published")).collect()["stars"].unique().to_list() == [0]
    assert sorted(path.name for path in (job.folder / "published.versions").iterdir()) == ["v1", "v2"]
    names = [path.name for path in sorted((job.folder / "published").iterdir())]
    assert len(names) == 2
    assert all(re.fullmatch(rf"part-0000{i}-[0-9a-f]{{16}}\.parquet", name) for i, name in enumerate(names))


@pytest.mark.thorough
def test_a_killed_incremental_run_loses_no_row(make_job, killed, reviews, save):
    job, other = make_job("killed", incremental=True), make_job("undisturbed", incremental=True)
    for item in (job, other):
        item.run()
        save(reviews(400), item.folder / "raw.parquet")
    other.run()
    for step in ("reserved", "committed", "version written", "manifest written"):
        assert killed(job.policy(), step, 1)[0]
    job.run()
    assert (job.files(), job.charged()) == (other.files(), other.charged())


def scope(job):
    from dptext_etl.ledger import Scope

    return Scope.of(job.policy())


def undisturbed_used(job):
    with job.ledger() as ledger:
        return ledger.remaining(scope(job)).used


TERMINATED = """
import os, signal, sys
from dptext_etl.cli.app import main
from dptext_etl.engines.local import LocalEngine

compute, last = LocalEngine.compute, sys.argv.pop()

def terminated(self, work, phase, meter):
    done = compute(self, work, phase, meter)
    if phase == last:
        os.kill(os.getpid(), signal.SIGTERM)
    return done

LocalEngine.compute = terminated
main()
"""


@pytest.mark.thorough
@pytest.mark.parametrize(("phase", "kept"), [("reserve", False), ("release", True)])
def test_a_terminated_run_releases_its_lease_and_gives_back_what_it_did_not_compute(job, store, warm, phase, kept):
    upload(job, store)
    cap = {"measure": "pure", "epsilon": 1e6, "period": "2026"}
    job.values.update(remote(job, store, staging="s3://bucket/inside", cap=cap, on_cap="refuse"))
    command = [*warm, "-c", TERMINATED, "run", str(job.write_policy()), phase]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert done.returncode == INTERRUPTED, done.stderr
    assert done.stderr.endswith("Stopped.\n")
    assert [name for name in store.objects if name.endswith(storage.LEASE)] == []
    people = pl.read_parquet(job.folder / "raw.parquet")["user_id"].unique().to_arrow()
    with job.ledger() as ledger:
        report = ledger.verify()
        assert (report.ok, report.counts["pending"]) == (True, 0)
        assert bool(ledger.used(Scope.of(job.policy()), people)["eps_pure"].sum()) == kept
    assert job.run().version == 1


def test_a_lease_outlives_a_store_that_is_away_for_a_while(monkeypatch):
    monkeypatch.setattr(storage, "LEASE_SECONDS", 0.4)
    away, back = iter(range(3)), Event()

    class Away:
        content = None

        def read_dated(self, _):
            return None if self.content is None else (self.content, "1", datetime.now(UTC))

        def read_versioned(self, _):
            return None if self.content is None else (self.content, "1")

        def replace_object(self, _name, content, tag):
            if tag is not None and next(away, None) is not None:
                raise UnavailableError("writing the object lease.json failed")
            if tag is not None:
                back.set()
            self.content = content
            return "1"

        def delete(self, _):
            self.content = None

    store = Away()
    with storage.Lease(store, "works there").held():
        assert back.wait(60), "it was not renewed"
    assert store.content is None
