"""A run that is terminated (SIGTERM), as Kubernetes and Airflow do: it ends like one stopped from the keyboard."""

import os
import subprocess
from threading import Event

import polars as pl
import pytest

from dptext_etl import storage
from dptext_etl.errors import INTERRUPTED, UnavailableError
from dptext_etl.ledger import Scope

from ..object_store import remote, upload

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
