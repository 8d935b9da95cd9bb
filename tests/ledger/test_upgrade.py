"""A ledger of schema 3, which had an index: the first writer drops it, and open processes of that version fail.

Frozen ledgers of that version are opened in `tests/frozen`. Specification: docs/spec/ledger-plan.md#upgrade.
"""

import pyarrow as pa
import pytest

from dptext_etl.errors import LedgerError
from dptext_etl.ledger import Outcome

from .conftest import each_store

INDEX = ("run", "run_part")


def version(kit):
    if "://" in kit.place:
        return int(kit.db.store.meta("schema"))
    return kit.db.store.row("pragma user_version")[0]


def as_version_3(kit):
    """Give a ledger the tables of an earlier version; its former index is never read."""
    store = kit.db.store
    for table in INDEX:
        store.execute(f"create table {table}(id integer primary key, run integer)")
    if "://" in kit.place:
        store.set_meta("schema", "3")
    else:
        store.execute("pragma user_version=3")
    kit.ledger.close()


@each_store
def test_the_first_writer_drops_the_index_and_keeps_every_charge(kit):
    kit.reserve(["a", "b"], ["ann", "ann"], 2, cap=5)
    kit.commit(["a"])
    anchor = kit.ledger.anchor()
    as_version_3(kit)
    kit.reopen()
    assert version(kit) == 4
    assert not {*INDEX} & kit.db.store.columns().keys()
    assert kit.ledger.holds(anchor)
    outcome = [Outcome.COMMITTED, Outcome.PENDING, Outcome.RESERVED, Outcome.OVER_CAP]
    assert kit.reserve(["a", "b", "c", "d"], ["ann", "ann", "ann", "ann"], [2, 2, 1, 1], cap=5) == outcome
    assert kit.used("ann") == [5]
    kit.sound()


@each_store
def test_readers_change_nothing(kit):
    kit.reserve(["a"], ["ann"], 2, cap=5)
    ref = kit.ref()
    as_version_3(kit)
    kit.reopen(read_only=True)
    assert kit.used("ann") == [2]
    assert kit.ledger.known(ref, pa.array(["a", "b"])).tolist() == [True, False]
    kit.sound()
    assert version(kit) == 3
    assert {*INDEX} <= kit.db.store.columns().keys()


@each_store
def test_a_process_of_the_version_before_fails_after_the_upgrade(kit, new_kit):
    """It reads and writes its index with every charge, and it has checked the version already."""
    old = new_kit(kit.place)
    as_version_3(kit)
    assert old.db.store.rows("select id from run") == []
    kit.reopen()
    with pytest.raises(LedgerError, match="cannot be used"):
        old.db.store.rows("select id from run")
    new_kit(kit.place).sound()
