"""A ledger of the schema before is brought up to date by its owner, and what had it open charges nothing any more.

The frozen ledgers have the tables of that schema. Specification: docs/spec/ledger-plan.md#upgrade.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dptext_etl.errors import LedgerError
from dptext_etl.ledger import Ledger, Outcome
from dptext_etl.ledger.storage.postgres import PostgresStore, require_writable
from dptext_etl.ledger.storage.sqlite import SqliteStore
from tests.frozen import jobs, packed
from tests.ledger_events import Writer

from .conftest import ID_KEY, Kit

WRITES = [  # what the version before did as it reserved a new record; reads of its index come first
    ("insert into event values(?,?,?,?)", (10_000, "RESERVE", "{}", bytes(32))),
    ("insert into segment values(?,?,?)", (10_000, "record", bytes(32))),
    ("insert into batch values(?,?,?,?,?,?,?,0,?)", (10_000, 1, 0, 1, "late", 1, 1, bytes(1))),
    ("insert into run_part values(?,?,?,?)", (1 << 40, 0, 0, bytes(32))),
    ("insert into run values(?,?,?,?)", (1 << 40, "records/1/0", 0, 1)),
]
LOOK = "select id, bits, size, space from run order by size desc, id"


@pytest.fixture(params=["sqlite", "postgres"])
def frozen(request, tmp_path):
    """The place of a ledger in which everything happened that can, as the version before left it, and its key."""
    jobs.write_keys(tmp_path)
    key = f"file:{tmp_path / 'ledger.key'}"
    if request.param == "sqlite":
        place = packed.unpack("events", tmp_path / "events") / "ledger.db"
        with closing(sqlite3.connect(place)) as connection:
            connection.execute("pragma user_version=3")
        return str(place), key
    import psycopg

    place = request.getfixturevalue("postgres").url()
    schema = place.rpartition("=")[2]
    statements = (Path(packed.__file__).parent / "ledger.sql").read_text()
    statements = statements.replace("SCHEMA frozen", f"SCHEMA {schema}").replace(" frozen.", f" {schema}.")
    with psycopg.connect(place.partition("?")[0], autocommit=True) as connection:
        connection.execute(statements)
    return place, key


def test_an_open_process_of_the_version_before_writes_nothing_after_the_upgrade(frozen, monkeypatch):
    with monkeypatch.context() as patch:
        for store in (SqliteStore, PostgresStore):
            patch.setattr(store, "_drop_index", lambda self: None)
        old = Ledger.open(*frozen)
    store = old._db.store
    assert store.rows(LOOK), "until then it reads its index"
    with Ledger.open(*frozen) as ledger:
        anchor = ledger.anchor()
        with pytest.raises(LedgerError, match="cannot be used"):
            store.rows(LOOK)
        with pytest.raises(LedgerError, match="cannot be used"):
            store.write(1, lambda: [store.execute(*statement) for statement in WRITES])
        assert ledger.anchor() == anchor
        assert ledger.verify().ok
        book = Writer(ledger)
        charge = book.charge(book.release(), ["new"], [1])
        assert book.reserve(["new"], ["u0"], [charge], job="late") == [Outcome.RESERVED], "and the ledger goes on"
    old.close()


def test_only_the_owner_brings_a_ledger_up_to_date(postgres):
    import psycopg

    schema, place = "upgraded", postgres.url("upgraded")
    owner, writer = place.replace("dptext@", "keeper@"), place.replace("dptext@", "clerk@")
    key = f"env:{ID_KEY}"
    with psycopg.connect(place.partition("?")[0], autocommit=True) as admin:
        for statement in (
            "create role keeper login",
            "create role clerk login",
            f"create schema {schema} authorization keeper",
            f"grant usage on schema {schema} to clerk",
            "alter default privileges for role keeper grant select, insert, update, delete on tables to clerk",
        ):
            admin.execute(statement)
        kit = Kit(owner)
        kit.reserve(["a"], ["ann"], 2, cap=5)
        for table in ("run", "run_part"):
            kit.db.store.execute(f"create table {table}(id integer primary key)")
        kit.db.store.set_meta("schema", "3")
        kit.ledger.close()
        with pytest.raises(LedgerError, match="has schema 3, and this user does not own its tables") as caught:
            Ledger.open(writer, key)
        assert "their owner brings it up to date" in str(caught.value)
        with pytest.raises(LedgerError, match="its owner must bring it up to date first"):
            require_writable(writer)
        with Ledger.open(writer, key, read_only=True) as ledger:
            assert ledger.verify().ok
        count = f"select count(*) from pg_tables where schemaname = '{schema}' and tablename like 'run%'"
        assert admin.execute(count).fetchone() == (2,), "a writer and a reader changed nothing"
        require_writable(owner)
        kit.reopen()
        assert admin.execute(count).fetchone() == (0,)
        clerk = Kit(writer)
        assert clerk.reserve(["a", "b"], ["ann", "ann"], [2, 4], cap=5) == [Outcome.PENDING, Outcome.OVER_CAP]
        clerk.ledger.close()
        kit.ledger.close()
