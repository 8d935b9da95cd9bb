"""Bound how long a writer in PostgreSQL can hold up the others, whatever becomes of its process, machine or network.

A write holds locks until its transaction ends: of its ledger or, with other writers, of its lane, scopes and
releases. If the writer is stopped there, three things end its session, and with it its transaction, of which nothing is
left:

* the server, when the transaction has been silent for `HOLD` seconds (and more for batches of millions of records);
* a writer that waits, when the session has been stuck within a message for `STUCK` seconds, which no timeout of the
  server covers before PostgreSQL 17;
* TCP, when the other machine is gone.

A stopped writer that goes on finds its session ended: the call failed, wrote nothing, and can be repeated.

Between calls the server ends a session after `IDLE` seconds, and the next call opens another. So a process that
computes for minutes takes none of the server's connections meanwhile.
"""

from __future__ import annotations

import os
import re
import select
import time
from secrets import SystemRandom
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
IDLE = 2.0
"""Seconds after which the server ends a session that is within no transaction; a client uses none half as old."""
PAUSE = 5.0
"""Seconds between two attempts to connect while no connection is left, at most about."""
ASKING = 10.0
"""Seconds for which a server is asked why it refused a connection."""
TRY_AGAIN = ("53300", "08P01", "00000")
"""No connection left; none at PgBouncer (its `max_client_conn`); a connection after all."""
_HAS_IDLE = 140_000
_MILLISECONDS = 1000
_STATE = re.compile(rb'\sC "(\w{5})"')

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
        "client_encoding": "UTF8",  # also of a database without an encoding, which initdb makes in the locale C
        "connect_timeout": max(2, int(timeout)),
        "application_name": "dptext_etl",
        "keepalives": 1,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
    }


def settings(timeout: float, schema: str, version: int, *, read_only: bool) -> bytes:
    """Return the statements by which a session asks a server of some version for what it needs, in one message."""
    asked = {"synchronous_commit": "on", "lock_timeout": written(timeout), "tcp_user_timeout": "30s"}
    asked |= {"plan_cache_mode": "force_generic_plan"}  # a plan for given values is made with copies of all blobs
    asked |= {"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}
    asked |= {"idle_session_timeout": written(IDLE)} if version >= _HAS_IDLE else {}
    asked |= {"default_transaction_read_only": "on"} if read_only else {}
    listed = [f'set search_path = "{schema}"', *(f"set {name} = '{value}'" for name, value in asked.items())]
    return "; ".join(listed).encode()


def refusal(conninfo: str) -> str:
    """Ask again for a connection that failed, and return the SQLSTATE of the answer; empty if no server gave one.

    The driver reports no SQLSTATE for a connection that was never made, and the words depend on the server's language.
    """
    from psycopg import Error, pq

    waiting = {pq.PollingStatus.READING: ([0], []), pq.PollingStatus.WRITING: ([], [0])}
    until, log = time.monotonic() + ASKING, os.memfd_create("dptext") if hasattr(os, "memfd_create") else None
    if log is None:
        return ""
    asking = pq.PGconn.connect_start(conninfo.encode())
    try:
        asking.trace(log)
        while (status := pq.PollingStatus(asking.connect_poll())) in waiting and time.monotonic() < until:
            reading, writing = ([asking.socket] * len(side) for side in waiting[status])
            select.select(reading, writing, [], 1.0)
        asking.untrace()
        if status == pq.PollingStatus.OK:
            return "00000"
        found = _STATE.findall(os.pread(log, 1 << 20, 0))
    except (Error, OSError):
        return ""
    finally:
        asking.finish()
        os.close(log)
    return found[-1].decode() if found else ""


def pause(attempt: int) -> None:
    """Wait before the next attempt to connect: longer each time, and not all clients equally long."""
    time.sleep(min(PAUSE, 0.05 * 2**attempt) * SystemRandom().uniform(0.5, 1.5))


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
