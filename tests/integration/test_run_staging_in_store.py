"""Staging in an object store: what one machine staged, another continues with, and no two machines share a folder."""

import hashlib
import json
import tempfile
import time

import polars as pl
import pyarrow as pa
import pytest

from dptext_etl import files, object_stores
from dptext_etl.checks import CANARY
from dptext_etl.engines import stage
from dptext_etl.errors import GateError, InputError, LedgerError, PolicyError
from dptext_etl.families.stored_distributions import TableMechanism
from dptext_etl.ledger import Ledger
from dptext_etl.mechanism import Released
from dptext_etl.runner import check, publish, scan_published
from dptext_etl.runner.publish.erasing import clean
from dptext_etl.runner.shard.staging import Facts, Staging
from dptext_etl.storage import LEASE_SECONDS, Storage
from tests.quick import quick

from ..object_store import remote, upload
from ..toy_mechanisms import again, toys  # noqa: F401  (fixtures)

STAGING = "s3://bucket/inside"
SINK = "s3://bucket/published/reviews"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Go to another machine: a process with a separate scratch folder, which has seen nothing yet."""
    made = []

    def another():
        made.append(tmp_path / f"machine-{len(made)}")
        made[-1].mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(made[-1]))
        files.folder_of.cache_clear()

    another()
    yield another
    for folder in made:
        assert {oct(path.stat().st_mode & 0o777) for path in folder.iterdir()} <= {"0o700"}
    files.folder_of.cache_clear()


@pytest.fixture
def place(store, machine):
    """Make a job whose source, staging and sink lie in the store."""

    def placed(job):
        upload(job, store)
        job.values.update(remote(job, store, staging=STAGING))
        return job

    return placed


def staged_names(store, what="shard"):
    return sorted(name for name in store.objects if name.startswith("inside/") and f"/{what}/" in name)


def published_parts(store):
    return {hashlib.sha256(data).hexdigest() for name, data in store.objects.items() if "/part-" in name}


def test_the_bytes_and_the_charge_are_those_of_a_folder(place, make_job, store, machine):
    local, job = make_job("local"), place(make_job("store"))
    expected, summary = local.run(), job.run()
    parts = {name: data for name, data in local.files().items() if "/part-" in name}
    assert published_parts(store) == {hashlib.sha256(data).hexdigest() for data in parts.values()}
    assert (summary.rows, summary.spend) == (expected.rows, expected.spend)
    assert job.charged() == local.charged()
    assert summary.staging == "s3://bucket/inside/reviews/2026-11/_"
    assert not staged_names(store)
    assert not [path for path in files.process_folder().rglob("*") if "shard" in path.name]
    before = dict(store.objects)
    machine()
    second = job.run()
    assert (second.changed, second.rows["new"], second.rows["replayed"]) == (False, 0, 240)
    assert published_parts(store) == published_parts(type("before", (), {"objects": before}))
    assert not [path for path in job.folder.iterdir() if "staging" in path.name]


@pytest.mark.parametrize(
    ("step", "times"), quick([("committed", 3), ("computed", 2), ("reserved", 2), ("staged", 3), ("parts written", 1)])
)
def test_a_run_that_stops_goes_on_elsewhere(place, make_job, store, machine, step, times):
    job, undisturbed = place(make_job("stopped")), make_job("undisturbed")
    undisturbed.run()
    assert job.stop(step, times)
    machine()
    assert job.run().version == 1
    assert job.charged() == undisturbed.charged()
    assert scan_published(SINK, store.options).collect().equals(scan_published(undisturbed.policy().sink).collect())
    assert not staged_names(store)


@pytest.mark.thorough
def test_rows_without_a_record_count_for_nothing(place, make_job, store, machine):
    job = place(make_job())
    store.refusing = r"shard-00001\.json"
    with pytest.raises(InputError, match="writing the object"):
        job.run()
    store.refusing = ""
    left = [name.rpartition(".")[2] for name in staged_names(store) if "shard-00001" in name]
    assert sorted(left) == ["draws", "parquet"]
    machine()
    summary = job.run()
    assert summary.rows["resumed"] + summary.rows["replayed"] >= 100
    with job.ledger() as ledger:
        assert ledger.verify().ok
        assert {row["records"] for row in ledger.reports.show()} == {row["committed"] for row in ledger.reports.show()}


def test_dagster_hands_over_through_the_store(place, make_job, machine):
    pytest.importorskip("dagster", reason="dagster is not installed")
    from dptext_etl.orchestration import steps

    policy = place(make_job()).policy()
    staged = stage(policy)
    steps.save_run(staged)
    steps.save_verdicts(staged, check(staged))
    machine()
    found = steps.load_run(policy, None)
    assert publish(found, steps.load_verdicts(found)).rows == 240
    steps.remove_files(found)
    assert not steps.is_staged(policy, None)


@pytest.mark.parametrize("damage", quick([lambda data: data[:-1] + b"?", lambda _: None]))
def test_what_changed_in_the_store_is_neither_judged_nor_published(place, make_job, store, machine, damage):
    job = place(make_job())
    staged = stage(job.policy())
    verdicts = check(staged)
    (name,) = (name for name in staged_names(store) if name.endswith("shard-00001.parquet"))
    whole = store.objects.pop(name)
    if damage(whole) is not None:
        store.objects[name] = damage(whole)
    machine()
    with pytest.raises(InputError, match="staged"):
        check(staged)
    with pytest.raises(InputError, match="staged"):
        publish(staged, verdicts)
    assert "published/reviews/manifest.json" not in store.objects
    machine()
    assert job.run().rows["replayed"] == 240


def test_one_run_at_a_time_and_a_killed_one_ends(place, make_job, store, machine):
    job = place(make_job())
    refused = []

    def checkpoint(name):
        if name == "staged" and not refused:
            with pytest.raises(PolicyError, match="another run of this release is under way") as caught:
                stage(job.policy())
            refused.append(caught.value.hint)

    stage(job.policy(), checkpoint=checkpoint)
    assert "more seconds" in refused[0]
    store.objects["inside/reviews/2026-11/_/lease.json"] = b'{"holder": "gone", "until": 1.0}'
    assert job.run().version == 1


@pytest.mark.thorough
def test_a_run_that_stood_still_removes_nothing_of_the_one_that_took_over(place, make_job, store, monkeypatch):
    job = place(make_job())
    key = "inside/reviews/2026-11/_/lease.json"

    def checkpoint(name):
        if name == "committed":
            store.objects[key] = json.dumps({"holder": "other", "until": time.time() + 99}).encode()
            monkeypatch.setattr("dptext_etl.storage.time.time", lambda: later)

    later = time.time() + 2 * LEASE_SECONDS
    with pytest.raises(PolicyError, match="stood still"):
        stage(job.policy(), checkpoint=checkpoint)
    assert store.objects[key]
    assert staged_names(store)


@pytest.mark.thorough
def test_a_lost_ledger_is_missed_by_the_store(place, make_job, store, machine, monkeypatch, tmp_path):
    job = place(make_job())
    job.run()
    job.run(release="2026-12")
    kept = [name for name in store.objects if "/ledger-" in name]
    assert len(kept) == 1
    assert json.loads(store.objects[kept[0]])["releases"] == ["2026-11", "2026-12"]
    for path in job.folder.glob("ledger.db*"):
        if not path.name.endswith(".key"):
            path.unlink()
    monkeypatch.setenv("DPTEXT_ANCHORS", str(tmp_path / "no-heads"))
    machine()
    with pytest.raises(LedgerError, match="frozen"):
        job.run(release="2027-01")


@pytest.mark.thorough
def test_a_fired_gate_takes_texts_out_of_the_store(place, make_job, store, machine, monkeypatch, sentinel):
    job = place(make_job())
    store.objects["inside/reviews/2026-11/_/kept/kept-00000-00.parquet"] = sentinel.encode()  # of an earlier model

    def passing_through(self, texts, keys):
        return Released(texts.cast(pa.large_string()), self.positions(texts))

    with monkeypatch.context() as patch:
        patch.setattr(TableMechanism, "release", passing_through)
        with pytest.raises(GateError):
            job.run()
    inside = {name: data for name, data in store.objects.items() if name.startswith("inside/")}
    assert inside
    assert not [name for name, data in inside.items() if sentinel.encode() in data]
    rows = pl.concat(pl.read_parquet(data) for name, data in inside.items() if name.endswith(".parquet"))
    assert rows.filter(~pl.col(CANARY))["review"].null_count() == rows.height - rows[CANARY].sum() == 240
    machine()
    assert clean(job.policy(), dry_run=True).stopped == ["s3://bucket/inside/reviews/2026-11/_"]
    assert inside.keys() <= store.objects.keys()
    assert clean(job.policy()).stopped == ["s3://bucket/inside/reviews/2026-11/_"]
    assert [name for name in store.objects if name.startswith("inside/")] == [
        name for name in inside if "/ledger-" in name
    ]


def test_names_that_a_url_would_change_stay(place, make_job, store, machine):
    job = place(make_job(release="a/b c"))
    stage(job.policy())
    assert staged_names(store)[0].startswith("inside/reviews/a%2Fb c/_/shard/00000/")
    (found,) = Storage.open(f"{STAGING}/reviews", store.options, grouped=True).subfolders()
    assert (found.parent.name, found.name) == ("a%2Fb c", "_")
    assert found.glob("shard-*.json")


def test_the_columns_of_a_staged_shard_are_read_from_its_end(place, make_job, store, monkeypatch):
    staged = stage(place(make_job()).policy())
    staging, shard = Staging(staged.layout.staging), staged.shards[0]
    for tail in (object_stores._TAIL, 16):
        monkeypatch.setattr(object_stores, "_TAIL", tail)
        found = staging.columns(shard)
    staging.require(shard)
    assert found == pl.read_parquet_schema(staging.path(shard))
    with Ledger.open(staged.policy.ledger.url, create=False) as ledger:
        assert ledger.verify().ok


def test_what_was_fetched_before_others_wrote_it_is_fetched_again(store, machine):
    rows = pl.DataFrame({"id": ["a", "b"], "text": ["one", "two"], "__dptext_canary": [False, True]})
    facts = Facts({"rows": 1, "words": 2}, {}, {}, {}, {}, {})
    storage = Storage.open(f"{STAGING}/reviews/2026-11/_", store.options, grouped=True)
    with storage.with_own_copies() as here, storage.with_own_copies() as there:
        one, two = Staging(here, b"key"), Staging(there, b"key")
        one.save(0, rows, pl.DataFrame({"text": [1, 1]}), "inputs", facts)
        (seen,) = two.find(0, "inputs")
        assert two.draws(seen)["text"].to_list() == [1, 1]
        later = one.save(0, rows.reverse(), pl.DataFrame({"text": [2, 3]}), "inputs", facts)
        assert two.find(0, "inputs") == [later]
        assert two.read(later).equals(rows.reverse())
        assert two.draws(later)["text"].to_list() == [2, 3]
        one.discard(0)
        assert two.find(0, "inputs") == []
        assert not staged_names(store)
