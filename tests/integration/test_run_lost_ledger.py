"""A ledger restored from a copy, or lost, is noticed by the next run; where a run stores the anchors that show it."""

import json
import shutil

import pytest

from dptext_etl import run
from dptext_etl.errors import FrozenLedgerError, LedgerError, UnavailableError
from dptext_etl.ledger import anchor_files
from dptext_etl.runner import plan
from tests.command_line import dptext, facts

from ..refusals import same_refusal


def ledger_files(job):
    return sorted(job.folder.glob("ledger.db*"))


def test_a_ledger_restored_from_an_old_copy_is_noticed(make_job, tmp_path, reviews, save):
    job = make_job()
    job.run()
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in ledger_files(job):
        shutil.copy2(path, copy)
    save(reviews(300), job.folder / "raw.parquet")
    job.run(release="2026-12")
    for path in ledger_files(job):
        path.unlink()
    for path in copy.iterdir():
        shutil.copy2(path, job.folder)
    for release in ("2026-12", "2027-01"):
        with pytest.raises(LedgerError, match="the dataset reviews is frozen: this ledger misses the anchor"):
            job.run(release=release)
    assert facts("ledger", "freeze", "reviews", "--reason", "x", "--ledger", job.folder / "ledger.db")["frozen"] == [
        "reviews"
    ]
    asked = (
        "ledger",
        "thaw",
        "reviews",
        "--lost",
        "eps_pure=400",
        "--reason",
        "restored",
        "--ledger",
        job.folder / "ledger.db",
    )
    refused = dptext(*asked)
    assert refused.exit_code == 5, "asked and not answered"
    assert (
        "Thaw reviews and all datasets that froze with it, revoke release names, and lower caps by eps_pure 400?"
        in (refused.output)
    )
    caps = facts(*asked, "--yes")["caps"]
    assert caps == {"dataset:reviews, period 2026": {"eps_pure": 600.0}}
    with pytest.raises(LedgerError, match="pinned at 600; the policy asks for more"):
        job.run(release="2027-01")
    cap = {"measure": "pure", "epsilon": 600.0, "period": "2026"}
    for release in ("2026-11", "2026-12"):
        with pytest.raises(LedgerError, match="is revoked"):
            job.run(release=release, cap=cap)
    assert job.run(release="2027-01", cap=cap).rows["new"] > 0
    assert job.run(release="2027-01", cap=cap).rows["new"] == 0
    assert facts("ledger", "verify", "--ledger", job.folder / "ledger.db")["ok"]


def test_a_lost_ledger_is_noticed(make_job):
    job = make_job()
    job.run()
    for path in ledger_files(job):
        path.unlink()
    with pytest.raises(LedgerError, match="bring the right ledger back"):
        job.run()
    place = ("--reason", "restored", "--ledger", job.folder / "ledger.db")
    facts("ledger", "thaw", "reviews", "--yes", *place)
    with pytest.raises(LedgerError, match="knows no cap of dataset:reviews, period 2026 that it lowered"):
        job.run()
    facts("ledger", "set-cap", "reviews", "--epsilon", 1000, "--period", "2026", "--yes", *place)
    with pytest.raises(LedgerError, match="'2026-11' of reviews is revoked"):
        job.run()


@pytest.mark.parametrize("staging", [None, "staging"])
def test_a_lost_ledger_is_noticed_by_the_next_partition(make_job, reviews, save, staging):
    job = make_job()
    for at, name in enumerate(("2026-01", "2026-02")):
        (job.folder / "raw").mkdir(exist_ok=True)
        save(reviews(60, 1000 * at), job.folder / "raw" / f"{name}.parquet")
    paths = {"source": str(job.folder / "raw/{partition}.parquet"), "sink": str(job.folder / "out/{partition}")}
    policy = job.write_policy(**paths, staging=staging and str(job.folder / staging))
    assert run(policy, partition="2026-01").rows["released"] == 60
    for path in ledger_files(job):
        path.unlink()
    with pytest.raises(LedgerError, match="bring the right ledger back"):
        run(policy, partition="2026-02")


def test_a_release_on_another_machine_needs_its_anchors_or_a_verified_ledger(make_job, tmp_path, monkeypatch):
    job = make_job()
    job.run()
    monkeypatch.setenv("DPTEXT_ANCHORS", str(tmp_path / "of another machine"))
    error = same_refusal(job, {"release": "r2"}, LedgerError)
    assert "holds no anchor of it in this ledger" in error.message
    assert "`dptext ledger maintain`" in error.hint
    assert dptext("ledger", "maintain", job.write_policy()).exit_code == 0
    assert job.run(release="r2").rows["released"] == 240


def test_a_release_without_an_anchor_has_lost_its_ledger(make_job, tmp_path, monkeypatch):
    """Ledger and anchor store are gone; sink or staging hold a release, so people were charged."""
    job = make_job()
    job.run()
    for path in ledger_files(job):
        path.unlink()
    monkeypatch.setenv("DPTEXT_ANCHORS", str(tmp_path / "of another machine"))
    for gone in ("published.staging", None):
        foretold = plan(job.policy(release="r2")).refusal
        with pytest.raises(FrozenLedgerError, match="reviews is frozen: this ledger misses the anchor") as caught:
            job.run(release="r2")
        assert caught.value.message.startswith(foretold["message"])
        if gone:
            shutil.rmtree(job.folder / gone)
            for path in ledger_files(job):
                path.unlink()


def test_a_first_run_writes_three_anchors_in_one_file(make_job, tmp_path, monkeypatch):
    monkeypatch.setenv("DPTEXT_ANCHORS", str(tmp_path / "heads"))
    job, heads = make_job(), []
    write = anchor_files._write
    monkeypatch.setattr(anchor_files, "_write", lambda path, content: heads.append(content) or write(path, content))
    job.run(shard_rows=1000)
    events = [int(json.loads(head)["datasets"]["reviews"]["anchor"].split(":")[1]) for head in heads]
    assert len(events) == 3, "pinned, charged, and published"
    assert events == sorted(events)
    assert len(list((tmp_path / "heads").glob("*.json"))) == 1


def test_a_ledger_that_went_on_elsewhere_is_the_same(make_job):
    job = make_job()
    job.run()
    before = facts("ledger", "anchor", "--ledger", job.folder / "ledger.db")["anchor"]
    job.run(release="2026-12")
    assert facts("ledger", "verify", "--anchor", before, "--ledger", job.folder / "ledger.db")["ok"]
    forged = before[:-4] + "0000"
    outcome = dptext("ledger", "verify", "--anchor", forged, "--ledger", job.folder / "ledger.db")
    assert outcome.exit_code == 4
    assert "does not hold the anchor of event" in outcome.output


def test_a_ledger_is_made_by_command(tmp_path):
    place = tmp_path / "new.db"
    assert facts("ledger", "init", "--ledger", place)["made"]
    assert not facts("ledger", "init", "--ledger", place)["made"]


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


def test_a_run_without_a_named_place_is_refused_where_one_is_required(pod):
    error = same_refusal(pod, ledger(pod, require_anchors=True), LedgerError)
    assert 'anchors = "s3://bucket/anchors"' in error.hint


def test_a_store_of_anchors_that_is_away_is_refused_before_a_charge(pod, store):
    away = {**store.options, "aws_endpoint_url": "http://127.0.0.1:9"}
    entries = {**ledger(pod, anchors="s3://bucket/anchors"), "storage_options": away}
    assert same_refusal(pod, entries, UnavailableError).exit_code == 6


def test_anchors_that_cannot_be_stored_are_named_by_the_plan_and_the_summary(pod, caplog):
    pod.folder.parent.joinpath("empty").write_text("a file, so no folder can be made there")
    assert same_refusal(pod, {}, LedgerError).hint.endswith("or write require_anchors = false")
    pod.values.update(ledger(pod, require_anchors=False))
    said = "the anchor of the ledger cannot be stored in"
    assert [note for note in plan(pod.policy()).notes if note.startswith(said)]
    summary = pod.run()
    (note,) = (note for note in summary.notes if note.startswith(said))
    assert "a lost or restored ledger may go unnoticed" in note
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [note]
