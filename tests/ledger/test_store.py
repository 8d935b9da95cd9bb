"""The file: who may read it, its refusals, and its messages when it cannot be written."""

import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from dptext_etl.errors import LedgerError
from dptext_etl.ledger import Ledger, Outcome
from dptext_etl.ledger.storage.store import sqlite_path


@pytest.fixture(params=["sqlite"])
def new_place(tmp_path):
    """These tests are about the file."""
    return lambda name: tmp_path / f"{name}.db"


def mode(path):
    return oct(path.stat().st_mode & 0o777)


def test_files_are_their_owners_alone(kit, tmp_path):
    before = os.umask(0)
    try:
        kit.reserve(["a"], cap=9)
    finally:
        os.umask(before)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["ledger.db", "ledger.db-shm", "ledger.db-wal", "ledger.db.id.key"]
    assert {mode(path) for path in tmp_path.iterdir()} == {"0o600"}


def test_urls(tmp_path):
    assert str(sqlite_path("sqlite:///a/b.db")) == "a/b.db"
    assert str(sqlite_path("sqlite:////a/b.db")) == "/a/b.db"
    for url in ("mysql://host/db", ""):
        with pytest.raises(LedgerError, match="SQLite or PostgreSQL"):
            sqlite_path(url)
    with Ledger.open(f"sqlite:///{tmp_path}/x.db") as ledger:
        assert repr(ledger) == f"Ledger('{tmp_path}/x.db')"
    with pytest.raises(LedgerError, match=r"cannot be made at .*: No such file"):
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
    with pytest.raises(LedgerError, match="is empty, not a ledger"):
        Ledger.open(tmp_path / "empty.db", read_only=True)
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
    kit.db.store.execute("drop table tally")
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


def test_importing_it_is_light():
    heavy = ("torch", "pyspark", "dagster", "polars")
    code = f"import dptext_etl.ledger, sys; print([name for name in {heavy} if name in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert said.strip() == "[]"


def test_a_log_is_folded_into_the_file_while_the_ledger_is_open(kit, tmp_path):
    place = tmp_path / "ledger.db"

    def in_file():
        with closing(sqlite3.connect(f"{place.as_uri()}?immutable=1", uri=True)) as file:  # without its log
            return [row[0] for row in file.execute("select open from batch")]

    kit.ledger.checkpoint()
    assert in_file() == []
    kit.reserve(["a", "b"])
    assert in_file() == []
    with ThreadPoolExecutor(1) as beside:
        beside.submit(kit.ledger.checkpoint).result()
    assert in_file() == [2]
    kit.commit(["a"])
    kit.sound()
    kit.ledger.close()
    kit.ledger.checkpoint()  # it cannot: that is left to anyone who closes the ledger
    assert in_file() == [1]
