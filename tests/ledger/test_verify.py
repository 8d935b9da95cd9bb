"""Verification finds whatever is edited, removed, reordered or inserted, and names the batch."""

import sqlite3
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest

from dptext_etl.errors import LedgerError
from dptext_etl.ledger import Ledger, Scope
from dptext_etl.ledger.holdings import Database, LedgerPlan
from dptext_etl.ledger.storage import journal as module
from dptext_etl.ledger.storage.store import COLUMNS
from dptext_etl.policy import Cap

from ..ledger_kit import EPSILON, ID_KEY, UndoError, reserve_batch
from .conftest import each_store

TWICE = ("a record", "an identity")


@pytest.fixture
def full(kit):
    """A ledger in which everything has happened: batches 4 to 14."""
    refs = [kit.ref(), kit.ref("title", refundable=True)]
    people = [f"p{i % 7}" for i in range(20)]
    first = [f"a{i}" for i in range(20)]
    kit.reserve(first, people, np.arange(20) % 5, cap=40, refs=refs)
    kit.commit(first[:15], positions=np.arange(15) % 5)
    kit.commit(first[15:17])
    kit.commit(first[:2], outputs="other")
    kit.reserve(["b", "c"], ["p0", None], 1, cap=40, canary=np.array([False, True]), job="second")
    kit.reserve(first, people, np.arange(20) % 5, cap=40, job="second")
    kit.ledger.expire("job")
    kit.reserve(["d", "e"], ["p1", "p2"], [1, 2], cap=40, job="third")
    kit.ledger.abort("third", compute_never_started=True)
    kit.reserve(["d"], ["p1"], 3, cap=40, job="fourth")
    kit.commit(first[17:19], ref=refs[1], spent=[0, EPSILON])
    kit.post(first[:3])
    kit.ledger.releases.record_publication(refs[0], "v1", "ab" * 32, 15, sink="here")
    kit.ledger.releases.revoke(kit.ref(release="burnt"), "gate")
    kit.ledger.set_cap(Scope("reviews", "2026"), Cap(epsilon=50, period="2026"), raising=True)
    kit.sound()
    return kit


def rows(kit, sql):
    return kit.db.store.rows(sql)


def test_every_byte_of_every_batch_counts(full):
    blobs = rows(full, "select seq, name, data from segment order by 1, 2")
    assert len(blobs) > 20
    for seq, name, data in blobs:
        for at in {0, len(data) // 2, len(data) - 1}:
            edited = bytes([*data[:at], data[at] ^ 1, *data[at + 1 :]])
            found = full.problems(("update segment set data=? where seq=? and name=?", edited, seq, name))
            assert f"batch {seq}: the column {name} was edited or removed after it was sealed" in found


@each_store
def test_rows_cannot_be_removed_added_or_moved(full):
    seq, data = rows(full, "select seq, data from segment where name='record' order by seq limit 1")[0]
    for edited in (data[32:], data + data[:32]):
        found = full.problems(("update segment set data=? where seq=? and name='record'", edited, seq))
        assert f"batch {seq}: the column record was edited or removed after it was sealed" in found
    swapped = data[32:64] + data[:32] + data[64:]
    assert any(
        f"batch {seq}" in item for item in full.problems(("update segment set data=? where seq=?", swapped, seq))
    )
    found = full.problems(("delete from segment where seq=? and name='record'", seq))
    assert f"batch {seq}: the column record was edited or removed after it was sealed" in found
    assert f"blobs of batch {seq}: they differ from the journal" in full.problems(
        ("insert into segment values(?, 'more', ?)", seq, b"0")
    )
    found = full.problems(("insert into segment values(99, 'x', ?)", b"0"))
    assert "blobs of batch 99: they differ from the journal" in found


def test_every_event_counts(full):
    events = rows(full, "select seq, kind from event")
    assert {kind for _, kind in events} == {
        "RELEASE", "CAP_SET", "RESERVE", "REPLAY", "COMMIT", "DIVERGED", "EXPIRE", "ABORT", "SETTLE", "POST",
        "PUBLISH", "BURN",
    }  # fmt: skip
    for seq, kind in events:
        found = full.problems(("update event set body=replace(body, '2026', '2027') where seq=?", seq))
        assert any(f" {seq} ({kind}): the chain is broken here" in problem for problem in found)
        if seq < events[-1][0]:  # only an anchor shows that the last one is missing
            assert f"events {seq} to {seq} are missing" in full.problems(("delete from event where seq=?", seq))
    swap = "update event set seq = case seq when 4 then 5 when 5 then 4 end + 1000 where seq in (4, 5)"
    assert any("cannot be read" in item or "are missing" in item for item in full.problems(swap))
    again = "insert into event select 100, kind, body, hash from event where seq=4"
    assert any("batch 100 (RESERVE)" in item for item in full.problems(again))


def test_passes_find_the_same(full, monkeypatch):
    whole = full.ledger.verify()
    monkeypatch.setattr(module, "SCAN_ROWS", 4)
    assert full.ledger.verify() == whole
    assert full.ledger.reports.export()["datasets"]["reviews"]["subjects"] == {"subject": 7}


def test_a_charge_over_its_cap_is_found_though_all_else_agrees(kit, monkeypatch):
    """A writer that forgets the cap leaves a consistent ledger that breaks its promise."""
    kit.reserve(["a"], ["ann"], 3, cap=5)
    monkeypatch.setattr("dptext_etl.ledger.charges.admit", lambda limits, units, order, amounts, asking, used: asking)
    kit.reserve(["b", "c"], ["ann", "bob"], 3, cap=5)
    last = max(kit.db.contents.latest().batches)
    said = [f"batch {last} (RESERVE): 1 charges exceed the cap that was in force"]
    assert kit.ledger.verify().problems == said
    monkeypatch.setattr(module, "SCAN_ROWS", 1)
    assert kit.ledger.verify().problems == said, "unit by unit, too"


def test_a_record_that_is_charged_twice_is_found(kit, monkeypatch):
    """A writer that forgets its charges."""
    kit.reserve(["a"], ["ann"], 3, cap=9)
    real = LedgerPlan.holdings

    def blind(self, *args):
        held = real(self, *args)
        return held._replace(present=np.zeros_like(held.present))

    monkeypatch.setattr(LedgerPlan, "holdings", blind)
    kit.reserve(["a", "b"], ["ann", "ann"], 3, cap=9)
    last = max(kit.db.contents.latest().batches)
    said = [f"batch {last} (RESERVE): {what} occurs twice in reviews.review, release 'r1'" for what in TWICE]
    assert kit.ledger.verify().problems == said
    monkeypatch.setattr(module, "SCAN_ROWS", 1)
    assert sorted({*kit.ledger.verify().problems}) == sorted(said), "part by part, too"


def test_an_empty_ledger_is_sound(kit):
    assert kit.sound()["events"] == 0
    assert kit.ledger.verify().as_dict()["ok"] is True


def test_every_stored_field_may_hold_anything(full):
    """A verdict or a refusal comes of every edit, and no error of json, NumPy or the database's driver."""
    for table in ("event", "meta"):
        for name in COLUMNS[table]:
            for value in ("{", '["x"]', "{}", "", -1, 2**62):
                edit = f"update {table} set {name}=?", value
                report = ended(lambda edit=edit: full.problems(edit))
                assert report is None or all(isinstance(problem, str) for problem in report)
                ended(lambda edit=edit: run_after(full, *edit))


def run_after(kit, statement, value):
    """Run the steps of a charge in a process that opens an edited ledger; nothing of it stays."""
    scope, cap = Scope("reviews", "2026"), Cap(epsilon=50, period="2026")
    with suppress(UndoError), kit.db.store.transaction():
        kit.db.store.execute(statement, (value,))
        ledger = Ledger(Database(kit.db.store, f"env:{ID_KEY}" if "://" in kit.place else None))
        ledger.agree_on_cap(scope, cap)
        ids, people = pa.array(["late"]), pa.array(["p1"])
        reserve_batch(ledger, "late", scope, cap, ids, people, [kit.charge(kit.ref(), ["late"])])
        ledger.reports.show()
        raise UndoError


@each_store
@pytest.mark.parametrize("column", ["record", "unit"])
def test_a_charge_and_a_plan_refuse_an_edited_segment(full, column):
    """One bit of an id would let a record be drawn again, or give a person another balance."""
    seq, data = rows(full, f"select seq, data from segment where name='{column}' order by seq limit 1")[0]
    edited, scope, cap = bytes([data[0] ^ 1, *data[1:]]), Scope("reviews", "2026"), Cap(epsilon=50, period="2026")
    ids, people = pa.array(["a0"]), pa.array(["p0"])
    steps = (
        lambda ledger, charge: reserve_batch(ledger, "late", scope, cap, ids, people, charge),
        lambda ledger, charge: ledger.judge(scope, None, ledger.make_ready("subject", ids, people, charge)),
    )
    for step in steps[: 2 if column == "record" else 1]:  # without a cap, no balance is read
        with suppress(UndoError), full.db.store.transaction():
            full.db.store.execute("update segment set data=? where seq=? and name=?", (edited, seq, column))
            ledger = Ledger(Database(full.db.store, f"env:{ID_KEY}" if "://" in full.place else None))
            charge = [full.charge(full.ref(), ["a0"])]
            with pytest.raises(LedgerError, match=f"batch {seq}: the column {column} was edited or removed"):
                step(ledger, charge)
            raise UndoError


def ended(work):
    """Return the result; None where the ledger or the database refuses."""
    try:
        return work()
    except (sqlite3.Error, LedgerError):
        return None
    except Exception as error:
        if type(error).__module__.startswith("psycopg"):
            return None
        raise
