"""Bound how long a writer in PostgreSQL can hold up the others, whatever becomes of its process, machine or network.

A write holds locks until its transaction ends: of its ledger or, with other writers, of its lane, scopes and
releases. If the writer is stopped there, three things end its session, and with it its transaction, of which nothing is
left:

* the server, when the transaction has been silent for `HOLD` seconds (and more for batches of millions of records);
* a writer that waits, when the session has been stuck within a message for `STUCK` seconds, which no timeout of the
  server covers before PostgreSQL 17;
* TCP, when the other machine is gone.

A stopped writer that goes on finds its session ended: the call failed, wrote nothing, and can be repeated.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

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

LIMITS = "select set_config('idle_in_transaction_session_timeout', ?, true), set_config('statement_timeout', ?, true)"
"""Set the limits of a transaction."""

PATIENCE = "select set_config('lock_timeout', ?, true)"
"""Set how long a statement waits for a lock."""

WAIT = "select pg_advisory_xact_lock(?, ?)"
"""Wait for the turn at what a key names."""

TRY = "select pg_try_advisory_xact_lock(?, ?)"
"""Take what a key names if no one holds it."""

LOOK_AGAIN = "select pg_stat_clear_snapshot()"
"""Forget what the transaction saw of other sessions before."""

END_STOPPED = (
    "select pg_terminate_backend(held.pid) from pg_locks held join pg_stat_activity session on session.pid = held.pid"
    " where held.locktype = 'advisory' and held.granted and held.classid::bigint = ?"
    " and held.objid::bigint = (hashtext(?)::bigint & 4294967295) and held.objsubid = 2"
    " and held.database = (select oid from pg_database where datname = current_database())"
    " and session.state = 'active' and session.wait_event_type = 'Client'"
    " and session.query_start < clock_timestamp() - make_interval(secs => ?)"
)
"""End the sessions that hold the lock of the ledger, as every writer does, and wait for a client within a message."""


def options(timeout: float) -> dict[str, Any]:
    """Return the options of a connection."""
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
    """Return what every session asks of the server, whatever its defaults."""
    asked = {"synchronous_commit": "on", "lock_timeout": written(timeout), "tcp_user_timeout": "30s"}
    asked |= {"plan_cache_mode": "force_generic_plan"}  # a plan for given values is made with copies of all blobs
    asked |= {"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}
    return [f"set {name} = '{value}'".encode() for name, value in asked.items()]


def limits(rows: int) -> tuple[str, str]:
    """Return the values of `LIMITS`."""
    return (written(HOLD + HOLD_PER_MILLION * rows / 1_000_000), written(STATEMENT))


def turn_of_ledger(schema: str, *, beside: bool) -> tuple[str, tuple[int, str]]:
    """Return the statement that waits for the lock of a ledger, and its values."""
    return f"select pg_advisory_xact_lock{'_shared' if beside else ''}(?, hashtext(?))", (APPLICATION, schema)


def key(schema: str, name: str) -> tuple[int, int]:
    """Return the key of a lock within a ledger. Two names with one key wait for each other without need."""
    return APPLICATION + 1, crc32(f"{schema}/{name}".encode()) - (1 << 31)


def stopped(schema: str) -> tuple[int, str, float]:
    """Return the values of `END_STOPPED`."""
    return (APPLICATION, schema, STUCK)


def written(seconds: float) -> str:
    """Write a time as a setting of the server has it."""
    return f"{max(1, int(seconds * _MILLISECONDS))}ms"
