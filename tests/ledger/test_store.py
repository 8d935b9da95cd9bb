"""The file: who may read it, its refusals, and its messages; ids are in it as keyed hashes only, under one key."""

import hashlib
import hmac
import os
import secrets
import sqlite3
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest

from dptext_etl.errors import KeyReferenceError, LedgerError
from dptext_etl.ledger import Ledger, Outcome
from dptext_etl.ledger.storage.store import sqlite_path


@pytest.fixture(params=["sqlite"])
def new_place(tmp_path):
    """These tests are about the file."""
    return lambda name: tmp_path / f"{name}.db"


def mode_of(path):
    return oct(path.stat().st_mode & 0o777)


def test_files_are_their_owners_alone(kit, tmp_path):
    before = os.umask(0)
    try:
        kit.reserve(["a"], cap=9)
    finally:
        os.umask(before)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["ledger.db", "ledger.db-shm", "ledger.db-wal", "ledger.db.id.key"]
    assert {mode_of(path) for path in tmp_path.iterdir()} == {"0o600"}


def test_urls(tmp_path):
    assert str(sqlite_path("sqlite:///a/b.db")) == "a/b.db"
    assert str(sqlite_path("sqlite:////a/b.db")) == "/a/b.db"
    for url in ("mysql://host/db", ""):
        with pytest.raises(LedgerError, match="SQLite or PostgreSQL"):
            sqlite_path(url)
    with Ledger.open(f"sqlite:///{tmp_path}/x.db") as ledger:
        assert repr(ledger) == f"Ledger('{tmp_path}/x.db')"
    with pytest.raises(LedgerError, match=r"cannot be made at .*No such file"):
        Ledger.open(tmp_path / "missing" / "x.db")
    for options in ({"create": False}, {"read_only": True}):
        with pytest.raises(LedgerError, match="there is no ledger at"):
            Ledger.open(tmp_path / "y.db", **options)


def test_it_survives_closing(kit):
    kit.reserve(["a"], cap=9)
    kit.reopen()
    assert kit.reserve(["a"], cap=9) == [Outcome.PENDING]
    assert kit.ledger._db.store.row("pragma secure_delete") == (2,)  # freed pages are not filled with zeros
    kit.sound()


def test_a_locked_ledger_says_so_and_loses_nothing(kit):
    kit.reserve(["a"], cap=9)
    other = sqlite3.connect(kit.path, isolation_level=None)
    other.execute("begin immediate")
    kit.reopen(timeout=0.05)
    with pytest.raises(LedgerError, match=r"is locked: another process has been writing for 0.05 s\nHint: nothing was"):
        kit.reserve(["b"], cap=9)
    assert kit.used("of-a") == [1], "readers are not locked out"
    other.rollback()
    assert kit.reserve(["b"], cap=9) == [Outcome.RESERVED]
    other.close()


def test_other_files_are_no_ledgers(tmp_path):
    (tmp_path / "text").write_text("x" * 5000)
    with pytest.raises(LedgerError, match="is not a ledger"):
        Ledger.open(tmp_path / "text")
    with sqlite3.connect(tmp_path / "other.db") as raw:
        raw.execute("create table t(x)")
    raw.close()
    with pytest.raises(LedgerError, match="is a database of another kind"):
        Ledger.open(tmp_path / "other.db")
    (tmp_path / "empty.db").touch()
    with pytest.raises(LedgerError, match=r"is empty, not a ledger\nHint: a run makes a new ledger in the file"):
        Ledger.open(tmp_path / "empty.db", read_only=True)
    with Ledger.open(tmp_path / "empty.db") as ledger:
        assert ledger.verify().ok
    with pytest.raises(LedgerError, match=r"cannot be opened|no ledger at|cannot be made"):
        Ledger.open(tmp_path)


def test_a_full_disk_loses_nothing(kit):
    kit.reserve(["a"], cap=9)
    store = kit.db.store
    pages = store.row("pragma page_count")[0]
    store.execute(f"pragma max_page_count={pages}")
    ids = [f"r{i}" for i in range(5000)]
    with pytest.raises(LedgerError, match="has no room: the disk is full\nHint: free some space; nothing was written"):
        kit.reserve(ids, cap=9)
    assert kit.sound()["records"] == 1
    store.execute("pragma max_page_count=1000000")
    assert set(kit.reserve(ids, cap=9)) == {Outcome.RESERVED}
    kit.sound()


def test_errors_of_sqlite_stay_behind(kit):
    kit.db.store.execute("drop table segment")
    with pytest.raises(LedgerError, match="cannot be used") as caught:
        kit.reserve(["a"], cap=9)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_damaged_file_is_named(kit):
    kit.reserve([f"r{i}" for i in range(20_000)], cap=9)
    kit.ledger.close()
    data = bytearray(kit.path.read_bytes())
    for at in range(1 << 16, len(data), 1 << 16):
        data[at : at + 64] = b"\xff" * 64
    kit.path.write_bytes(data)
    with pytest.raises(LedgerError, match="is damaged"), Ledger.open(kit.path) as ledger:
        ledger.reports.show()


def test_a_log_is_folded_into_the_file_while_the_ledger_is_open(kit, tmp_path):
    place = tmp_path / "ledger.db"

    def in_file():
        with closing(sqlite3.connect(f"{place.as_uri()}?immutable=1", uri=True)) as file:  # without its log
            return [kind for (kind,) in file.execute("select kind from event where kind in ('RESERVE', 'COMMIT')")]

    kit.ledger.checkpoint()
    assert in_file() == []
    kit.reserve(["a", "b"])
    assert in_file() == []
    with ThreadPoolExecutor(1) as beside:
        beside.submit(kit.ledger.checkpoint).result()
    assert in_file() == ["RESERVE"]
    kit.commit(["a"])
    kit.sound()
    kit.ledger.close()
    kit.ledger.checkpoint()  # it cannot: that is left to anyone who closes the ledger
    assert in_file() == ["RESERVE", "COMMIT"]


def key_file(path, key=None):
    path.touch(0o600)
    path.write_text(key or secrets.token_hex(32))
    return f"file:{path}"


def test_hashes_are_those_of_the_specification(kit):
    kit.reserve(["récord"], ["ann"], cap=9)
    kit.reserve(["planted"], [None], cap=9, canary=np.array([True]))
    key = bytes.fromhex((kit.path.parent / "ledger.db.id.key").read_text().strip())

    def keyed(kind, value):
        text = value.encode()
        return hmac.digest(key, b"dptext/id/v1\0" + kind + struct.pack("<Q", len(text)) + text, hashlib.sha256)

    db = kit.db
    first, second = db.contents.latest().batches
    columns = db.journal.read(first, ["record", "unit"])
    assert columns["record"].tobytes() == keyed(b"rec", "récord")
    assert columns["unit"].tobytes() == keyed(b"sub", "ann")
    columns = db.journal.read(second, ["record", "unit"])
    assert columns["record"].tobytes() == keyed(b"canary", "planted")
    assert columns["unit"].tobytes() == bytes(32)


def test_no_id_stands_in_any_file(kit):
    names = [f"findable-{i:05d}" for i in range(3000)]
    kit.reserve(names, [f"person-{i}" for i in range(3000)], cap=9, texts="a sentence to be found")
    kit.commit(names[:2000], texts="a sentence to be found", outputs="released words")
    kit.reserve(names, [f"person-{i}" for i in range(3000)], cap=9, texts="a sentence to be found", job="again")
    kit.ledger.expire("job")
    kit.sound()
    for path in kit.path.parent.iterdir():
        data = path.read_bytes()
        for needle in (b"findable", b"person-", b"sentence", b"released words", "findable-00001".encode("utf-16-le")):
            assert needle not in data, path.name
        for plain in (b"findable-00001", b"person-1", b"a sentence to be found"):
            assert hashlib.sha256(plain).digest() not in data, "no plain hashes of text or ids"
    for shown in (kit.ledger.reports.show(), kit.ledger.reports.caps(), kit.ledger.reports.export()):
        assert "findable" not in repr(shown)


def test_another_key_is_refused(kit, tmp_path):
    kit.reserve(["a"], cap=9)
    other = key_file(tmp_path / "other.key")
    kit.ledger.close()
    said = r"is not the id key of the ledger .*\nHint: name the right key; without this key"
    with pytest.raises(LedgerError, match=said):
        Ledger.open(kit.path, other)
    (tmp_path / "ledger.db.id.key").rename(tmp_path / "moved.key")
    kit.reopen(id_key=f"file:{tmp_path / 'moved.key'}")
    assert kit.reserve(["a"], cap=9) == [Outcome.PENDING]


def test_a_lost_key_is_explained_when_ids_are_needed(kit, tmp_path):
    kit.reserve(["a"], cap=9)
    ref = kit.ref()
    (tmp_path / "ledger.db.id.key").unlink()
    kit.reopen()
    kit.sound()
    assert kit.ledger.reports.show()[0]["records"] == 1
    said = r"is neither given nor at .*\nHint: give ledger.id_key; without this key"
    with pytest.raises(KeyReferenceError, match=said):
        kit.reserve(["b"], refs=[ref])
    assert not (tmp_path / "ledger.db.id.key").exists(), "an existing ledger gets no new key"


def test_a_key_may_lie_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("DPTEXT_LEDGER_SECRET", secrets.token_hex(32))
    Ledger.open(tmp_path / "x.db", "env:DPTEXT_LEDGER_SECRET").close()
    assert [path.name for path in tmp_path.iterdir()] == ["x.db"]
    with Ledger.open(tmp_path / "x.db") as ledger:
        assert ledger.reports.show() == []


def test_bad_keys_are_refused(tmp_path):
    with pytest.raises(KeyReferenceError, match="printed in documents"):
        Ledger.open(tmp_path / "a.db", key_file(tmp_path / "golden", bytes(range(32)).hex()))
    loose = key_file(tmp_path / "loose")
    (tmp_path / "loose").chmod(0o644)
    with pytest.raises(KeyReferenceError):
        Ledger.open(tmp_path / "b.db", loose)
    with pytest.raises(KeyReferenceError):
        Ledger.open(tmp_path / "c.db", "file:/nowhere/at/all")


def test_a_ledger_that_got_no_key_can_be_opened_again(tmp_path):
    with pytest.raises(KeyReferenceError):
        Ledger.open(tmp_path / "c.db", "file:/nowhere/at/all")
    with Ledger.open(tmp_path / "c.db") as ledger:
        assert ledger.verify().ok


def test_a_key_left_by_an_earlier_ledger_is_used(tmp_path):
    reference = key_file(tmp_path / "x.db.id.key")
    Ledger.open(tmp_path / "x.db").close()
    with Ledger.open(tmp_path / "x.db", reference) as ledger:
        assert ledger.verify().ok
    assert len(list(tmp_path.iterdir())) == 2


def test_a_ledger_made_again_under_an_old_name_has_its_own_key(tmp_path):
    for _ in range(2):
        with Ledger.open(tmp_path / "x.db"):
            pass
        for path in tmp_path.iterdir():
            path.unlink()
    Ledger.open(tmp_path / "x.db").close()
    code = "import sys; from dptext_etl.ledger import Ledger; Ledger.open(sys.argv[1], f'file:{sys.argv[1]}.id.key')"
    subprocess.run([sys.executable, "-c", code, tmp_path / "x.db"], check=True)


def test_subjects_and_records_of_one_name_are_two(kit):
    kit.reserve(["same"], ["same"], 2, cap=9)
    db = kit.db
    (seq,) = db.contents.latest().batches
    columns = db.journal.read(seq, ["record", "unit"])
    assert columns["record"].tobytes() != columns["unit"].tobytes()
