"""Scheduled maintenance: verify, anchor, backup, with an exit code that a scheduler can act on."""

import json
import shutil
import sqlite3

import pytest

from dptext_etl.engines import run
from dptext_etl.errors import GATE
from dptext_etl.ledger import Ledger
from dptext_etl.ledger.anchor_files import maintain, seconds_since_verified
from tests.command_line import dptext, facts
from tests.review_jobs import job, make_job, store  # noqa: F401  (fixtures)


@pytest.fixture
def ran(job, monkeypatch):  # noqa: F811
    monkeypatch.setenv("DPTEXT_ANCHORS", str(job.folder / "anchors"))
    run(job.policy())
    return job


def test_an_intact_ledger_is_anchored_and_copied_and_old_backups_go(ran):
    path, backups = ran.write_policy(), ran.folder / "backups"
    done = [facts("ledger", "maintain", path, "--backup", backups, "--keep", "2")]
    for release in ("2", "3"):
        run(ran.policy(release=release))
        done.append(facts("ledger", "maintain", path, "--backup", backups, "--keep", "2"))
    assert [item["ok"] for item in done] == [True] * 3
    assert done[2]["removed"] == [done[0]["copy"]]
    assert {str(file) for file in backups.iterdir()} == {done[1]["copy"], done[2]["copy"]}
    with Ledger.open(done[2]["copy"], ran.policy().ledger.id_key or f"file:{ran.folder / 'ledger.db.id.key'}") as copy:
        assert str(copy.anchor()) == done[2]["anchor"]
        assert copy.verify().ok
    with ran.ledger() as ledger:
        assert 0 <= seconds_since_verified(ledger) < 3600


def test_a_damaged_or_restored_ledger_exits_with_4_and_keeps_anchor_and_backups(ran):
    path, backups = ran.write_policy(), ran.folder / "backups"
    with ran.ledger() as ledger:
        assert seconds_since_verified(ledger) is None
    shutil.copy(ran.folder / "ledger.db", ran.folder / "old.db")
    run(ran.policy(release="2"))
    first = facts("ledger", "maintain", path, "--backup", backups)
    before = {file: file.read_bytes() for file in [*backups.iterdir(), *(ran.folder / "anchors").glob("*.json")]}
    assert len(before) == 2
    shutil.copy(ran.folder / "ledger.db", ran.folder / "new.db")
    shutil.copy(ran.folder / "old.db", ran.folder / "ledger.db")
    done = dptext("ledger", "maintain", path, "--backup", backups, "--json")
    assert (done.exit_code, json.loads(done.stdout)["problems"]) == (
        GATE,
        ["the journal does not hold the stored anchor of reviews: it was cut or is an old copy"],
    )
    shutil.copy(ran.folder / "new.db", ran.folder / "ledger.db")
    with sqlite3.connect(ran.folder / "ledger.db") as db:
        db.execute("delete from segment where rowid in (select rowid from segment limit 1)")
    done = dptext("ledger", "maintain", path, "--backup", backups)
    assert (done.exit_code, "does NOT agree" in done.stdout) == (GATE, True)
    assert {file: file.read_bytes() for file in before} == before
    assert sorted(backups.iterdir()) == sorted(file for file in before if file.parent == backups)
    assert first["copy"] in map(str, before)


def test_the_anchor_lies_in_an_object_store(ran, store):  # noqa: F811
    with ran.ledger() as ledger:
        for _ in range(2):
            assert maintain(ledger, "s3://bucket/anchors", store.options).ok
        assert seconds_since_verified(ledger, "s3://bucket/anchors", store.options) is not None
    assert [key for key in store.objects if key.startswith("anchors/")]
