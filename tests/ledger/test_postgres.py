"""A ledger in PostgreSQL: its URL, its refusals, its messages when the server is slow, down or away; connections.

With more clients than connections, they wait as for a lock, and hold none while they compute.
"""

import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest

from dptext_etl.errors import KeyReferenceError, LedgerError, LockedLedgerError
from dptext_etl.ledger import Ledger, Outcome
from dptext_etl.ledger.ledger import ledger_exists
from dptext_etl.ledger.storage import postgres as store_module
from dptext_etl.ledger.storage.store import wait_for_ledger
from tests.postgres_server import PostgresServer, free_port, missing

from ..ledger_kit import ID_KEY, Kit

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed (extra: postgres)")

KEY = f"env:{ID_KEY}"


@pytest.fixture
def place(postgres):
    return postgres.url()


@pytest.fixture
def new_place(postgres):
    return lambda name: postgres.url()


@pytest.fixture
def raw(postgres):
    """A connection next to the ledger."""
    with psycopg.connect(postgres.url().partition("?")[0], autocommit=True, client_encoding="UTF8") as connection:
        yield connection


def schema_of(place):
    return place.rpartition("=")[2]


def test_a_ledger_is_a_schema_and_its_name_holds_no_password(postgres, monkeypatch):
    place = postgres.url("mine", password=":pass-word")
    assert not ledger_exists(place)
    with Ledger.open(place, KEY) as ledger:
        assert repr(ledger) == f"Ledger('postgresql://127.0.0.1:{postgres.port}/postgres (schema mine)')"
    assert ledger_exists(place)
    monkeypatch.setenv("DPTEXT_LEDGER_SECRET_URL", place)
    with Ledger.open("env:DPTEXT_LEDGER_SECRET_URL", KEY) as ledger:
        assert ledger.verify().ok
    with pytest.raises(LedgerError, match="environment variable NOWHERE must hold the URL"):
        Ledger.open("env:NOWHERE", KEY)
    default = postgres.url().partition("?")[0]
    with Ledger.open(default, KEY) as ledger:
        assert repr(ledger).endswith("(schema dptext_ledger)')")
    for bad in ("Mine", "a b", 'x";drop schema mine', "1a", "ü"):
        with pytest.raises(LedgerError, match="not a plain name"):
            Ledger.open(postgres.url(bad), KEY)


def test_a_url_may_list_several_hosts(postgres):
    """The first of them is down, as after a failover; the driver tries the next."""
    listed = f"u:p,w@127.0.0.1:{free_port()},127.0.0.1:{postgres.port}".replace("u:p,w", "dptext:p%2Cw")
    place = f"postgresql://{listed}/postgres?target_session_attrs=read-write&schema=listed"
    with Ledger.open(place, KEY) as ledger:
        assert repr(ledger) == f"Ledger('postgresql://{listed.partition('@')[2]}/postgres (schema listed)')"
        assert ledger.verify().ok
    with Ledger.open(place, KEY, create=False) as ledger:
        assert ledger.verify().ok


@pytest.mark.parametrize("place", ["postgresql://u:secret@[::1/db", "postgresql://u:secret@127.0.0.1:port/db"])
def test_a_url_that_cannot_be_read_is_a_sentence_without_its_password(place):
    with pytest.raises(LedgerError) as caught:
        Ledger.open(place, KEY)
    assert "secret" not in "".join(traceback.format_exception(caught.value))
    assert "Hint:" in str(caught.value)


def test_a_database_without_an_encoding_holds_a_ledger(postgres, raw):
    """SQL_ASCII: what initdb makes where the locale is C."""
    raw.execute("create database bare encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C' template template0")
    place = postgres.url().replace("/postgres?", "/bare?")
    kit = Kit(place)
    kit.reserve(["a"], refs=[kit.ref(dataset="café")])
    with kit.reopen() as ledger:
        assert ledger.verify().ok
        assert [row["dataset"] for row in ledger.reports.show()] == ["café"]


def test_its_id_key_must_be_named(place):
    with pytest.raises(KeyReferenceError, match="needs its own id key"):
        Ledger.open(place)
    Ledger.open(place, KEY).close()
    with Ledger.open(place) as ledger, pytest.raises(KeyReferenceError, match="neither given\n"):
        _ = ledger._db.id_key.secret


def test_it_is_made_only_when_asked(place):
    for options in ({"create": False}, {"read_only": True}):
        with pytest.raises(LedgerError, match="there is no ledger at"):
            Ledger.open(place, KEY, **options)


def test_another_schema_is_refused_untouched(place, raw):
    schema = schema_of(place)
    raw.execute(f"create schema {schema}")
    raw.execute(f"create table {schema}.customers(name text)")
    with pytest.raises(LedgerError, match="holds tables of another kind"):
        Ledger.open(place, KEY)
    tables = raw.execute("select tablename from pg_tables where schemaname=%s", (schema,)).fetchall()
    assert tables == [("customers",)]


def test_commits_are_on_disk_when_they_return(kit, raw):
    raw.execute("alter role dptext set synchronous_commit = off")
    try:
        kit.reopen()
        assert kit.db.store.rows("show synchronous_commit") == [("on",)]
    finally:
        raw.execute("alter role dptext reset synchronous_commit")


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_writer_sees_what_was_committed_while_it_waited(kit, raw, level):
    ref = kit.ref()
    raw.execute(f"alter role dptext set default_transaction_isolation = '{level}'")
    try:
        kit.reopen()
        other = Kit(kit.place)
        outcome = []
        with other.db.store.transaction():
            waiting = threading.Thread(target=lambda: outcome.append(kit.reserve(["b"], ["ann"], 3, cap=5, refs=[ref])))
            waiting.start()
            _until(raw, "select count(*) from pg_locks where locktype='advisory' and not granted")
            assert other.reserve(["a"], ["ann"], 3, cap=5, refs=[ref]) == [Outcome.RESERVED]
        waiting.join()
    finally:
        raw.execute("alter role dptext reset default_transaction_isolation")
    assert outcome == [[Outcome.OVER_CAP]]
    other.ledger.close()
    kit.sound()


def _until(raw, query):
    while raw.execute(query).fetchone() == (0,):
        time.sleep(0.01)


def test_no_plan_is_made_for_the_values_of_a_statement(kit):
    store = kit.db.store
    for size in range(10):
        assert store.rows("select length(cast(? as bytea))", (bytes(size),)) == [(size,)]
    found = store.rows(
        "select custom_plans, generic_plans > 0 from pg_prepared_statements where statement like ?", ("%length(%",)
    )
    assert found == [(0, True)]


def test_a_server_that_is_read_only_names_the_primary(kit, raw):
    """As a standby answers."""
    raw.execute("alter role dptext set default_transaction_read_only = on")
    try:
        kit.reopen()
        with pytest.raises(LedgerError, match=r"on a server that is read-only.*\nHint: name the primary"):
            kit.reserve(["a"], cap=9)
    finally:
        raw.execute("begin read write; alter role dptext reset default_transaction_read_only; commit")
    kit.reopen(read_only=True)
    with pytest.raises(LedgerError, match="open it with read_only=False"):
        kit.reserve(["a"], cap=9)


def test_a_locked_ledger_says_so_and_loses_nothing(kit):
    kit.reserve(["a"], cap=9)
    other = Kit(kit.place)
    kit.reopen(timeout=0.05)
    with (
        other.db.store.transaction(),
        pytest.raises(LedgerError, match=r"is locked: another writer has been busy for 0.05 s\nHint: nothing was"),
    ):
        kit.reserve(["b"], cap=9)
    with other.db.store.transaction():
        assert kit.used("of-a") == [1], "readers are not locked out"
    assert kit.reserve(["b"], cap=9) == [Outcome.RESERVED]
    other.ledger.close()


def test_a_server_that_was_restarted_is_reidentified(kit, postgres):
    kit.reserve(["a"], cap=9)
    postgres.stop()
    with pytest.raises(LedgerError, match=r"(was shut down by its server|lost its connection|cannot be reached)"):
        kit.reserve(["b"], cap=9)
    postgres.start()
    assert kit.reserve(["a", "b"], cap=9) == [Outcome.PENDING, Outcome.RESERVED]
    postgres.stop("immediate")  # as by a power cut
    postgres.start()
    assert kit.used("of-a", "of-b") == [1, 1]
    assert kit.commit(["a", "b"]) == [0, 0]
    kit.sound()


def test_a_connection_lost_within_a_transaction_leaves_nothing(kit, raw, monkeypatch):
    kit.reserve(["a"], cap=9)
    store = kit.db.store
    real, calls = store.execute, []

    def dying(sql, values=()):
        calls.append(sql)
        if len(calls) == 3:
            (number,) = raw.execute(
                "select pid from pg_stat_activity where application_name='dptext_etl' and state like 'idle in%'"
            ).fetchone()
            raw.execute("select pg_terminate_backend(%s)", (number,))
        return real(sql, values)

    monkeypatch.setattr(store, "execute", dying)
    with pytest.raises(LedgerError, match="the ledger postgresql"):
        kit.reserve(["b"], cap=9)
    monkeypatch.undo()
    assert kit.used("of-b") == [0]
    assert kit.reserve(["b"], cap=9) == [Outcome.RESERVED]
    kit.sound()


def test_errors_quote_neither_password_nor_values(postgres, kit):
    for url in (
        "postgresql://dptext:pass-word@127.0.0.1:1/postgres",
        f"postgresql://dptext:pass-word@127.0.0.1:{postgres.port}/nothing",
        f"postgresql://no%20such%20user:pass-word@127.0.0.1:{postgres.port}/postgres",
    ):
        with pytest.raises(LedgerError) as caught:
            Ledger.open(url, KEY, timeout=2)
        assert "pass-word" not in str(caught.value)
        assert "no such user" not in str(caught.value)
        assert caught.value.__suppress_context__
    kit.db.store.execute("drop table segment")
    with pytest.raises(LedgerError, match="cannot be used") as caught:
        kit.reserve(["findable-id"], cap=9)
    assert "findable" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_closed_ledger_says_so(kit):
    kit.ledger.close()
    with pytest.raises(LedgerError, match="is closed"):
        kit.reserve(["a"], cap=9)


CLIENTS = 16


@pytest.fixture(scope="module")
def small():
    """A server with eight connections."""
    if missing() is not None:
        pytest.skip(missing())
    server = PostgresServer("-c max_connections=8 -c superuser_reserved_connections=0")
    yield server
    server.remove()


@pytest.fixture
def asked(monkeypatch):
    """The SQLSTATEs of connections that were refused."""
    states, real = [], store_module.refusal

    def spy(conninfo):
        states.append(real(conninfo))
        return states[-1]

    monkeypatch.setattr(store_module, "refusal", spy)
    return states


@pytest.mark.thorough
def test_sixteen_clients_share_eight_connections(small, asked):
    """No client commits before all have reserved: so none may hold its connection while it computes."""
    place = small.url()
    Kit(place).ledger.close()
    all_reserved = threading.Barrier(CLIENTS)

    def client(number):
        kit = wait_for_ledger(partial(Kit, place))
        ref = wait_for_ledger(kit.ref)
        ids = [f"{number}-{row}" for row in range(5)]
        found = [wait_for_ledger(partial(kit.reserve, ids, cap=900, refs=[ref], job=f"job-{number}"))]
        all_reserved.wait(timeout=600)
        found.append(wait_for_ledger(partial(kit.commit, ids, ref=ref, job=f"job-{number}")))
        kit.ledger.close()
        return found

    with ThreadPoolExecutor(CLIENTS) as pool:
        found = [*pool.map(client, range(CLIENTS))]
    assert found == [[[Outcome.RESERVED] * 5, [0] * 5]] * CLIENTS
    assert "53300" in asked, "eight connections were enough"
    kit = Kit(place)
    assert kit.sound()["committed"] == 5 * CLIENTS
    kit.ledger.close()


def test_without_end_of_patience_it_is_a_busy_ledger(small, asked):
    place = small.url()
    Kit(place).ledger.close()
    held = []
    try:
        while len(held) < 8:  # sessions that have just ended still count for a moment
            with suppress(psycopg.OperationalError):
                held.append(psycopg.connect(place.partition("?")[0]))
        with pytest.raises(
            LockedLedgerError, match=r"has had no connection left for 0.3 s\nHint: raise max_connections"
        ):
            Ledger.open(place, KEY, timeout=0.3)
        assert "53300" in asked
        gives = threading.Timer(0.5, held.pop().close)
        gives.start()
        with Ledger.open(place, KEY, create=False) as ledger:
            assert ledger.verify().ok
        gives.join()
    finally:
        for connection in held:
            connection.close()


def test_a_session_ends_between_calls_and_the_next_call_opens_another(postgres):
    kit = Kit(postgres.url())
    kit.reserve(["a"], cap=9)
    sessions = "select count(*) from pg_stat_activity where pid = %s"
    pid = kit.db.store._connection.info.backend_pid
    with psycopg.connect(postgres.url().partition("?")[0], autocommit=True, client_encoding="UTF8") as raw:
        assert raw.execute(sessions, (pid,)).fetchone() == (1,)
        until = time.monotonic() + 600
        while raw.execute(sessions, (pid,)).fetchone() == (1,):
            assert time.monotonic() < until
            time.sleep(0.1)
    assert kit.ledger.losses.frozen() == [], "a read outside of a transaction"
    assert kit.commit(["a"]) == [0]
    kit.sound()
    kit.ledger.close()


def test_a_refused_connection_says_why(postgres):
    for url, said, timeout in (
        (postgres.url().replace("dptext@", "stranger-here@"), "refuses this user or password", 600),
        (postgres.url().replace("/postgres?", "/nowhere?"), "is in a database that does not exist", 600),
        (postgres.url().replace(f":{postgres.port}/", f":{free_port()}/"), "cannot be reached", 2),
    ):
        with pytest.raises(LedgerError, match=said) as caught:
            Ledger.open(url, KEY, timeout=timeout)
        assert "stranger-here" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None or caught.value.__suppress_context__
