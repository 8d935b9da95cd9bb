"""Ids: in the ledger as keyed hashes only, under one key for its life."""

import hashlib
import hmac
import secrets
import struct
import subprocess
import sys

import numpy as np
import pytest

from dptext_etl.errors import KeyReferenceError, LedgerError
from dptext_etl.ledger import Ledger, Outcome


@pytest.fixture(params=["sqlite"])
def new_place(tmp_path):
    """These tests are about the file."""
    return lambda name: tmp_path / f"{name}.db"


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
    first, second = (row[0] for row in db.store.rows("select seq from batch order by seq"))
    columns = db.segments.read(first, ["record", "unit"])
    assert columns["record"].tobytes() == keyed(b"rec", "récord")
    assert columns["unit"].tobytes() == keyed(b"sub", "ann")
    columns = db.segments.read(second, ["record", "unit"])
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
    seq = db.store.row("select seq from batch")[0]
    columns = db.segments.read(seq, ["record", "unit"])
    assert columns["record"].tobytes() != columns["unit"].tobytes()
