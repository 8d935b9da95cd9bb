"""Bound how long a writer in PostgreSQL can hold up the others, whatever becomes of its process, machine or network.

A write holds the lock of its ledger until its transaction ends, so that the journal has one order. If the writer is
stopped there, three things end its session, and with it its transaction, of which nothing is left:

* the server, when the transaction has been silent for `HOLD` seconds (and more for batches of millions of records);
* a writer that waits, when the session has been stuck within a message for `STUCK` seconds, which no timeout of the
  server covers before PostgreSQL 17;
* TCP, when the other machine is gone.

A stopped writer that goes on finds its session ended: the call failed, wrote nothing, and can be repeated.
"""

from __future__ import annotations

from typing import Any

from dptext_etl.ledger.storage.schema import APPLICATION

HOLD = 10.0
"""Seconds for which the transaction of a writer may be silent."""
HOLD_PER_MILLION = 10.0
"""Seconds more per million records of its batch: so long may it compute between two statements."""
STUCK = 20.0
"""Seconds after which a session that is within a message is taken for stuck."""
LOOK = 12.0
"""Seconds that a writer waits before it looks whether the one before it is stuck."""
STATEMENT = 600.0
"""Seconds that one statement of a writer may take."""
_MILLISECONDS = 1000

TURN = (
    "select set_config('lock_timeout', ?, true), set_config('idle_in_transaction_session_timeout', ?, true),"
    " set_config('statement_timeout', ?, true), pg_advisory_xact_lock(?, hashtext(?))"
)
"""Set the limits of a transaction, then wait for the lock of the ledger."""

END_STOPPED = (
    "select pg_terminate_backend(held.pid) from pg_locks held join pg_stat_activity session on session.pid = held.pid"
    " where held.locktype = 'advisory' and held.granted and held.classid::bigint = ?"
    " and held.objid::bigint = (hashtext(?)::bigint & 4294967295) and held.objsubid = 2"
    " and held.database = (select oid from pg_database where datname = current_database())"
    " and session.state = 'active' and session.wait_event_type = 'Client'"
    " and session.query_start < now() - make_interval(secs => ?)"
)
"""End the session that holds the lock and waits for its client within a message."""


def options(timeout: float) -> dict[str, Any]:
    """Return the options of a connection.

    Args:
        timeout: Seconds to wait for the server.
    """
    return {
        "autocommit": True,
        "client_encoding": "UTF8",  # also of a database without an encoding, which initdb makes in the locale C
        "connect_timeout": max(2, int(timeout)),
        "application_name": "dptext_etl",
        "keepalives": 1,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
    }


def settings(timeout: float) -> list[bytes]:
    """Return what every session asks of the server, whatever its defaults.

    Args:
        timeout: Seconds to wait for a lock of any kind.
    """
    asked = {"synchronous_commit": "on", "lock_timeout": _written(timeout), "tcp_user_timeout": "30s"}
    asked |= {"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}
    return [f"set {name} = '{value}'".encode() for name, value in asked.items()]


def terms(schema: str, rows: int, wait: float) -> tuple[str, str, str, int, str]:
    """Return the values of `TURN`.

    Args:
        schema: The schema of the ledger.
        rows: Records of the batch.
        wait: Seconds to wait for the lock.
    """
    silent = HOLD + HOLD_PER_MILLION * rows / 1_000_000
    return (_written(wait), _written(silent), _written(STATEMENT), APPLICATION, schema)


def stopped(schema: str) -> tuple[int, str, float]:
    """Return the values of `END_STOPPED`."""
    return (APPLICATION, schema, STUCK)


def _written(seconds: float) -> str:
    return f"{max(1, int(seconds * _MILLISECONDS))}ms"
