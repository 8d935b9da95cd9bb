"""One contract for a local folder and for an object store."""

import os
import pickle
import stat
import tempfile
import time
from unittest.mock import Mock

import pytest

from dptext_etl import files, object_stores
from dptext_etl.errors import BusyError, InputError
from dptext_etl.storage import Storage


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
            again.require_unlocked("is under way")
        with pytest.raises(BusyError, match="another run is under way"), again.lock("is under way"):
            pass
    with again.lock("is under way"):
        pass
    assert storage.names() == []


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
