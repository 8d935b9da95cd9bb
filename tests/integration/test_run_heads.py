"""Where a run stores the heads of its ledger: in an object store, or nowhere, which its plan and its summary say.

Specification: docs/spec/privacy.md#lost-ledger.
"""

import shutil

import pytest

from dptext_etl.errors import FrozenLedgerError, LedgerError, UnavailableError
from dptext_etl.runner import plan

from ..refusals import same_refusal


@pytest.fixture
def pod(job, monkeypatch, tmp_path):
    """A machine of which nothing lasts, and on which no one names a place."""
    monkeypatch.delenv("DPTEXT_ANCHORS")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "empty"))
    return job


def ledger(job, **entries):
    return {"ledger": {"url": f"sqlite:///{job.folder / 'ledger.db'}", **entries}}


def lose(job, copy):
    """Put a copy in the place of the ledger, on a machine without the run's staging and home."""
    for path in job.folder.glob("ledger.db*"):
        if not path.name.endswith(".key"):
            path.unlink()
    shutil.copy(copy, job.folder / "ledger.db")
    shutil.rmtree(job.folder / "published.staging")
    shutil.rmtree(job.folder.parent / "empty", ignore_errors=True)


def test_a_restored_ledger_is_noticed_by_the_heads_in_a_store(pod, store):
    pod.values.update(ledger(pod, anchors="s3://bucket/heads"), storage_options=store.options)
    pod.run()
    with pod.ledger() as opened:
        opened.backup(pod.folder / "copy.db")
    pod.run(release="r2")
    heads = {name: content for name, content in store.objects.items() if name.startswith("heads/")}
    assert len(heads) == 2
    assert not (pod.folder.parent / "empty").exists(), "no head is anywhere else"
    lose(pod, pod.folder / "copy.db")
    with pytest.raises(FrozenLedgerError, match="this ledger misses the head that an earlier run stored"):
        pod.run(release="r3")
    assert {name: store.objects[name] for name in heads} == heads


def test_a_run_without_a_named_place_is_refused_where_one_is_required(pod):
    error = same_refusal(pod, ledger(pod, require_anchors=True), LedgerError)
    assert 'anchors = "s3://bucket/heads"' in error.hint


def test_a_store_of_heads_that_is_away_is_refused_before_a_charge(pod, store):
    away = {**store.options, "aws_endpoint_url": "http://127.0.0.1:9"}
    entries = {**ledger(pod, anchors="s3://bucket/heads"), "storage_options": away}
    assert same_refusal(pod, entries, UnavailableError).exit_code == 6


def test_heads_that_cannot_be_stored_are_named_by_the_plan_and_the_summary(pod, caplog):
    pod.folder.parent.joinpath("empty").write_text("a file, so no folder can be made there")
    said = "the head of the ledger cannot be kept in"
    assert [note for note in plan(pod.policy()).notes if note.startswith(said)]
    summary = pod.run()
    (note,) = (note for note in summary.notes if note.startswith(said))
    assert "a lost or restored ledger may go unnoticed" in note
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [note]
