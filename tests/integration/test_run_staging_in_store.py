"""Staging in an object store: what one machine staged, another continues with, and no two machines share a folder."""

import hashlib
import os
import pickle
import stat
import tempfile
import time
from datetime import timedelta
from unittest.mock import Mock

import polars as pl
import pytest

from dptext_etl import files, object_stores
from dptext_etl import storage as storage_module
from dptext_etl.engines import stage
from dptext_etl.errors import BusyError, InputError, PolicyError
from dptext_etl.ledger import Ledger
from dptext_etl.runner import check, publish, scan_published
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.storage import Storage
from tests.quick import quick

from ..object_store import remote, upload

STAGING = "s3://bucket/inside"
SINK = "s3://bucket/published/reviews"
STAGED = f"inside/reviews/{hashlib.sha256(SINK.encode()).hexdigest()[:16]}"


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
    assert (summary.rows, summary.spend, job.charged()) == (expected.rows, expected.spend, local.charged())
    assert summary.staging == f"s3://bucket/{STAGED}/2026-11/_"
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
    job, undisturbed = (make_job(name, shard_rows=100) for name in ("stopped", "undisturbed"))
    job = place(job)
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
    store.objects[f"{STAGED}/2026-11/_/lease.json"] = b'{"holder": "gone", "renewals": 1}'
    store.times.pop(f"{STAGED}/2026-11/_/lease.json", None)
    assert job.run().version == 1


def test_names_that_a_url_would_change_stay(place, make_job, store, machine):
    job = place(make_job(release="a/b c"))
    stage(job.policy())
    assert staged_names(store)[0].startswith(f"{STAGED}/a%2Fb c/_/shard/00000/")
    (found,) = Storage.open(f"s3://bucket/{STAGED}", store.options, grouped=True).subfolders()
    assert (found.parent.name, found.name) == ("a%2Fb c", "_")
    assert found.glob("shard-*.json")


def test_the_columns_of_a_staged_shard_are_read_from_its_end(place, make_job, store, monkeypatch):
    staged = stage(place(make_job()).policy())
    staging, shard = Staging(staged.layout.staging), staged.shards[0]
    for tail in (object_stores._TAIL, 16):
        monkeypatch.setattr(object_stores, "_TAIL", tail)
        found, rows = staging.footer(shard)
    staging.require(shard)
    assert found == pl.read_parquet_schema(staging.path(shard))
    assert rows == pl.read_parquet(staging.path(shard)).height
    with Ledger.open(staged.policy.ledger.url, create=False) as ledger:
        assert ledger.verify().ok


def test_what_was_fetched_before_others_wrote_it_is_fetched_again(store, machine):
    rows = pl.DataFrame({"id": ["a", "b"], "text": ["one", "two"], "__dptext_canary": [False, True]})
    facts = {"counts": {"rows": 1, "words": 2}, "spends": {}, "copies": {}}
    storage = Storage.open(f"s3://bucket/{STAGED}/2026-11/_", store.options, grouped=True)
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


@pytest.fixture(params=["folder", "s3", "gs"])
def storage(request, tmp_path):
    if request.param == "folder":
        made = Storage(str(tmp_path / "above" / "inside" / "staging"))
    else:
        store = request.getfixturevalue("store")
        options = {"s3": store.options, "gs": store.google}[request.param]
        made = Storage.open(f"{request.param}://bucket/above/inside/staging", options, grouped=True)
    made.prepare()
    return made


def test_what_is_written_is_read_and_listed_by_name(storage):
    assert storage.read("shard-00001.json") is storage.sha256("shard-00001.json") is None
    storage.write("shard-00001.json", b"{}")
    storage.write("shard-00001.parquet", lambda file: file.write(b"rows"))
    storage.put("other", b"")
    assert storage.read("shard-00001.parquet") == storage.local_path("shard-00001.parquet").read_bytes() == b"rows"
    assert storage.glob("shard-*") == storage.glob("shard-00001*") == ["shard-00001.json", "shard-00001.parquet"]
    assert storage.glob("*") == ["other", "shard-00001.json", "shard-00001.parquet"]
    assert storage.sha256("other") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert stat.S_IMODE(storage.local_path("shard-00001.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(storage.folder.stat().st_mode) == 0o700
    written = storage.modified("shard-*")
    assert list(written) == storage.glob("shard-*")
    assert all(0 < when <= time.time() for when in written.values())


def test_a_copy_outlives_its_file_and_takes_no_name_that_is_used(storage):
    storage.write("shard-00001.parquet", b"rows")
    storage.write("kept-00002.parquet", b"older")
    storage.copy("shard-00001.parquet", "kept-00001.parquet")
    storage.copy("shard-00001.parquet", "kept-00002.parquet")
    storage.copy("missing", "kept-00003.parquet")
    storage.delete("shard-00001.parquet", "missing")
    assert storage.glob("*") == ["kept-00001.parquet", "kept-00002.parquet"]
    assert [storage.read(name) for name in storage.glob("*")] == [b"rows", b"older"]


def test_lines_are_added_and_folders_deleted_with_all_that_is_in_them(storage):
    for line in (b"one", b"two"):
        storage.append("log", line)
    inside = storage.child("a").child("b")
    inside.prepare()
    inside.put("file", b"")
    assert storage.read("log") == b"one\ntwo\n"
    assert storage.names() == ["a/b/file", "log"]
    assert storage.names("a") == ["a/b/file"]
    assert [(item.parent.name, item.name) for item in storage.subfolders()] == [("a", "b")]
    assert storage.subfolders("c") == []
    storage.delete_folder("a")
    storage.delete_folder("a")
    assert storage.names() == ["log"]
    storage.delete_folder()
    assert storage.names() == []


def test_one_process_at_a_time_holds_the_lock(storage):
    again = pickle.loads(pickle.dumps(storage))
    with storage.lock("is under way"):
        storage.renew_lock()
        with pytest.raises(BusyError, match="another run is under way"):
            again.require_unlocked("is under way", planning=True)
        with pytest.raises(BusyError, match="another run is under way"), again.lock("is under way"):
            pass
    with again.lock("is under way"):
        pass
    assert storage.names() == []


@pytest.mark.parametrize("hours", [-5, 5], ids=["behind", "ahead"])
def test_a_lease_holds_though_the_clocks_of_two_machines_differ(store, monkeypatch, hours):
    one, two, three = (Storage.open("s3://bucket/sink", store.options) for _ in range(3))
    elsewhere = Mock(time=lambda now=time.time: now() + 3600 * hours, monotonic=time.monotonic)
    with one.lock("is publishing"):
        with monkeypatch.context() as patch:
            patch.setattr("dptext_etl.storage.time", elsewhere)
            with pytest.raises(BusyError, match="another run is publishing"), two.lock("is publishing"):
                pass
            with pytest.raises(BusyError, match="another run is publishing"):
                two.require_unlocked("is publishing", planning=False)
        store.ahead = timedelta(seconds=storage_module.LEASE_SECONDS + 2)  # time passes in the store
        two.require_unlocked("is publishing", planning=False)
        with two.lock("is publishing"), pytest.raises(BusyError, match="another run"), three.lock("is publishing"):
            pass
    assert one.names() == [], "no object stays that asked for the time"


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_a_holder_that_lost_its_lease_stops(store, monkeypatch, scheme):
    options = {"s3": store.options, "gs": store.google}[scheme]
    one, two = (Storage.open(f"{scheme}://bucket/sink", options) for _ in range(2))
    object_stores.require_writable(one.url, options)
    assert (one.names(), store.order) == ([], [])
    monkeypatch.setattr("dptext_etl.storage.LEASE_SECONDS", -1.0)
    monkeypatch.setattr("dptext_etl.storage.Thread", Mock())  # nothing renews the lease in the background
    lost = pytest.raises(BusyError, match="paused for so long")
    with lost, one.lock("is publishing"), two.lock("is publishing"):
        one.renew_lock()


def test_what_travels_holds_references_and_no_secret(store, monkeypatch):
    monkeypatch.setenv("DPTEXT_TEST_REFERENCE", "not-to-be-sent")
    options = {**store.options, "aws_session_token": "env:DPTEXT_TEST_REFERENCE"}
    storage = Storage.open("s3://bucket/inside", options, grouped=True)
    assert storage.read("missing") is None
    with storage.lock("is under way"):
        sent = pickle.dumps(storage)
    assert b"not-to-be-sent" not in sent
    assert "not-to-be-sent" not in repr(storage)
    assert "DPTEXT_TEST_REFERENCE" not in repr(storage)
    assert pickle.loads(sent) == storage


def test_a_folder_of_someone_else_is_no_storage(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError, match="cannot be made"):
        Storage(str(tmp_path / "file" / "inside")).prepare()


def test_a_folder_of_a_killed_process_goes_with_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with files.temporary_folder() as living:
        killed = tmp_path / f"{files.PREFIX}killed"
        killed.mkdir()
        for folder in (living.parent, killed):
            os.utime(folder, (1, 1))
        with files.temporary_folder() as folder:
            assert set(tmp_path.iterdir()) == {living.parent, folder.parent}
    assert not list(tmp_path.iterdir())
