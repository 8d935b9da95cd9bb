"""A PostgreSQL ledger with more clients than connections: they wait as for a lock, and hold none while they compute."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import psycopg
import pytest

from dptext_etl.errors import LedgerError, LockedLedgerError
from dptext_etl.ledger import Ledger, Outcome
from dptext_etl.ledger.storage import postgres_sql
from dptext_etl.ledger.storage.store import wait_for_ledger
from tests.postgres_server import PostgresServer, free_port, missing

from .conftest import ID_KEY, Kit

KEY = f"env:{ID_KEY}"
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
    states, real = [], postgres_sql.refusal

    def spy(conninfo):
        states.append(real(conninfo))
        return states[-1]

    monkeypatch.setattr(postgres_sql, "refusal", spy)
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
    for url, said in (
        (postgres.url().replace("dptext@", "stranger-here@"), "refuses this user or password"),
        (postgres.url().replace("/postgres?", "/nowhere?"), "is in a database that does not exist"),
        (postgres.url().replace(f":{postgres.port}/", f":{free_port()}/"), "cannot be reached"),
    ):
        with pytest.raises(LedgerError, match=said) as caught:
            Ledger.open(url, KEY, timeout=2)
        assert "stranger-here" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None or caught.value.__suppress_context__
