"""Speak to PostgreSQL: ledger URLs, SQL dialect, session settings, locks, grants.

A write holds locks until its transaction ends. A writer that is stopped must not hold up the others, so three things
end its session, and with it its transaction, of which nothing is left:

* the server, when the transaction has been silent for `HOLD` seconds (and more for batches of millions of records);
* a writer that waits, when the session has been stuck within a message for `STUCK` seconds, which no timeout of the
  server covers before PostgreSQL 17;
* TCP, when the other machine is gone.

A stopped writer that continues finds its session ended: the call failed, wrote nothing, and can be repeated.

Reads hold no lock, but their transactions hold back vacuum. The server limits their statements and their silence, too
(`STATEMENT`, `READ_HOLD`). If an answer never arrives because a proxy keeps a dead connection open, the client gives up
after `ANSWER` seconds (`TimedConnection`).
"""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from dptext_etl.errors import LedgerError
from dptext_etl.markup import one_line

HOLD = 10.0  # seconds for which the transaction of a writer may be silent
HOLD_PER_MILLION = 10.0  # seconds more per million records of its batch: so long may it compute between two statements
STUCK = 20.0  # seconds after which a session that is within a message counts as stuck
LOOK = 12.0  # seconds that a writer waits before it looks whether the one before it is stuck
READ_HOLD = 120.0  # seconds for which the transaction of a reader may be silent
STATEMENT = 120.0  # seconds that one statement may run
ANSWER = 150.0
"""Seconds after which a client gives up on an answer: more than `STATEMENT`, so that the server's own error arrives."""
IDLE = 2.0
"""Seconds after which the server ends a session outside a transaction, so that a process that computes for minutes
holds no connection meanwhile; a client uses no session half as old."""
PAUSE = 5.0  # seconds between two attempts to connect while no connection is left, at most about
ASKING = 10.0  # seconds for which a server is asked why it refused a connection
TRY_AGAIN = ("53300", "08P01", "00000")
"""No connection left; none at PgBouncer (its `max_client_conn`); a connection after all."""
_HAS_IDLE = 140_000
_STATE = re.compile(rb'\sC "(\w{5})"')
_DEFAULT_SCHEMA = "dptext_ledger"
_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")

SET_HOLD = "select set_config('idle_in_transaction_session_timeout', ?, true)"
SET_LOCK_TIMEOUT = "select set_config('lock_timeout', ?, true)"
LOCK = "select pg_advisory_xact_lock(?, ?)"  # two names with one key wait for each other without need
LOCK_LEDGER = "select pg_advisory_xact_lock(?, hashtext(?))"
LOCK_LEDGER_SHARED = "select pg_advisory_xact_lock_shared(?, hashtext(?))"
FORGET_SESSIONS = "select pg_stat_clear_snapshot()"  # forget the other sessions that the transaction saw before
END_STUCK = (
    "select pg_terminate_backend(held.pid) from pg_locks held join pg_stat_activity session on session.pid = held.pid"
    " where held.locktype = 'advisory' and held.granted and held.classid::bigint = ?"
    " and held.objid::bigint = (hashtext(?)::bigint & 4294967295) and held.objsubid = 2"
    " and held.database = (select oid from pg_database where datname = current_database())"
    " and session.state = 'active' and session.wait_event_type = 'Client'"
    " and session.query_start < clock_timestamp() - make_interval(secs => ?)"
)
"""End the sessions that hold the lock of the ledger, as every writer does, and wait for a client within a message."""


def split_url(url: str) -> tuple[str, str]:
    """Split postgresql://USER@HOST:PORT/DATABASE?schema=NAME into the connection string and the schema's name."""
    try:
        parts = urlsplit(url)
    except ValueError:  # it quotes the URL
        hint = "write postgresql://user@host:port/database?schema=NAME; separate several hosts by commas"
        raise LedgerError("the ledger's URL cannot be read", hint) from None
    query = parse_qsl(parts.query, keep_blank_values=True)
    schema = dict(query).get("schema", _DEFAULT_SCHEMA)
    if not _SCHEMA_NAME.fullmatch(schema):
        raise LedgerError("the schema in the ledger's URL is not a plain name", "use lower-case letters, digits and _")
    rest = urlencode([pair for pair in query if pair[0] != "schema"])
    return urlunsplit(parts._replace(query=rest)), schema


def database(conninfo: str) -> str:
    name = unquote(urlsplit(conninfo).path.strip("/"))
    if not name:
        raise LedgerError("the URL of the ledger names no database", "write postgresql://user@host/database")
    return name


@cache
def dialect(sql: str) -> str:
    """Translate a statement of the ledger to the SQL of PostgreSQL."""
    sql = sql.replace("%", "%%").replace("?", "%s")
    if sql.lstrip().startswith("create table"):
        for old, new in ((" strict", ""), (" integer", " bigint"), (" blob", " bytea")):
            sql = sql.replace(old, new)
    return sql


def options(timeout: float) -> dict[str, Any]:
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
    """Return the statements by which a session asks a server of some version for its facts, in one message."""
    values = {"synchronous_commit": "on", "lock_timeout": milliseconds(timeout), "tcp_user_timeout": "30s"}
    values |= {"plan_cache_mode": "force_generic_plan"}  # a plan for given values is made with copies of all blobs
    values |= {"statement_timeout": milliseconds(STATEMENT)}
    values |= {"idle_in_transaction_session_timeout": milliseconds(READ_HOLD)}  # a write sets its own
    values |= {"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}
    values |= {"idle_session_timeout": milliseconds(IDLE)} if version >= _HAS_IDLE else {}
    values |= {"default_transaction_read_only": "on"} if read_only else {}
    statements = [f'set search_path = "{schema}"', *(f"set {name} = '{value}'" for name, value in values.items())]
    return "; ".join(statements).encode()


def refusal(conninfo: str) -> str:
    """Ask again for a connection that failed, and return the SQLSTATE of the answer; empty if no server gave one.

    The driver reports no SQLSTATE for a connection that was never made, and the words depend on the server's language.
    """
    from psycopg import Error, pq

    if not hasattr(os, "memfd_create"):
        return ""
    waiting = {pq.PollingStatus.READING: ([0], []), pq.PollingStatus.WRITING: ([], [0])}
    until, log = time.monotonic() + ASKING, os.memfd_create("dptext")
    connection = pq.PGconn.connect_start(conninfo.encode())
    try:
        connection.trace(log)
        while (status := pq.PollingStatus(connection.connect_poll())) in waiting and time.monotonic() < until:
            reading, writing = ([connection.socket] * len(side) for side in waiting[status])
            select.select(reading, writing, [], 1.0)
        connection.untrace()
        if status == pq.PollingStatus.OK:
            return "00000"
        states = _STATE.findall(os.pread(log, 1 << 20, 0))
    except (Error, OSError):
        return ""
    finally:
        connection.finish()
        os.close(log)
    return states[-1].decode() if states else ""


def milliseconds(seconds: float) -> str:
    return f"{max(1, int(seconds * 1000))}ms"


Role = Literal["writer", "steward", "auditor", "owner"]
WRITES: Mapping[str, str] = {"meta": "", "event": "INSERT", "segment": "INSERT, UPDATE (seq), DELETE"}
"""The operations of a writer on each table, in addition to reading it: no writer changes or deletes an event."""
STEWARDS: Mapping[str, str] = {"meta": "UPDATE"}
"""The further right of a steward: the policies below know a steward by it."""
_FIRST_CAP = (  # no scope has a cap already, and no charge of the dataset or group is in another scope
    "NOT EXISTS (SELECT FROM {event} AS earlier WHERE"
    " (earlier.kind = 'CAP_SET' AND earlier.body::jsonb->'name' = event.body::jsonb->'name'"
    " AND earlier.body::jsonb->'period' = event.body::jsonb->'period')"
    " OR (earlier.kind = 'RESERVE' AND earlier.body::jsonb->'scope' <> event.body::jsonb->'scope'"
    " AND (earlier.body::jsonb->'name' = event.body::jsonb->'name'"
    " OR earlier.body::jsonb->'dataset' = event.body::jsonb->'dataset')))"
)
_EVENTS = (
    "INSERT WITH CHECK (has_table_privilege({meta}, 'UPDATE') OR CASE WHEN kind = 'CAP_SET'"
    f" THEN {_FIRST_CAP} ELSE kind NOT IN ('THAW', 'UNITS', 'READMIT') END)"
)
_POLICIES = {
    "segment": (
        "SELECT USING (true)",
        "INSERT WITH CHECK (seq < 0)",
        "UPDATE USING (seq < 0) WITH CHECK (seq = (SELECT max(seq) FROM {event}))",
        "DELETE USING (seq < 0)",
    ),
    "event": ("SELECT USING (true)", _EVENTS),
}
"""Row-level security: a blob has no number until its event has it; a steward's events are a steward's."""
_STATEMENT = re.compile(r"\s*(insert|update|delete|select)\b(?:.*?\b(?:into|from)\b)?\s+\"?(\w+)", re.DOTALL)
PRINT_GRANTS = "`dptext ledger grants --role {role}` prints what to grant"


_OWN_TABLES = """DECLARE name text; BEGIN
  FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = {schema} LOOP
    EXECUTE format('ALTER TABLE %I.%I OWNER TO %I', {schema}, name, {owner});
  END LOOP;
END"""


def grants(role: Role, name: str, database: str, schema: str) -> str:
    """Return the statements that make a role a writer, a steward, an auditor, or the owner of a ledger."""
    if one_line(name) != name:
        raise LedgerError("the name of a role has control characters", "name a role of the server: --to NAME")
    to, space = _quote(name), _quote(schema)
    lines = [f"GRANT CONNECT ON DATABASE {_quote(database)} TO {to};"]
    if role == "owner":
        lines += [
            f"CREATE SCHEMA IF NOT EXISTS {space} AUTHORIZATION {to};",
            f"ALTER SCHEMA {space} OWNER TO {to};",
            f"DO {_literal(_OWN_TABLES.format(schema=_literal(schema), owner=_literal(name)))};",
        ]
    else:
        lines += [
            f"GRANT USAGE ON SCHEMA {space} TO {to};",
            f"REVOKE ALL ON ALL TABLES IN SCHEMA {space} FROM {to};",
            f"GRANT SELECT ON ALL TABLES IN SCHEMA {space} TO {to};",
        ]
    granted = {"writer": [WRITES], "steward": [WRITES, STEWARDS]}.get(role, [])
    pairs = [pair for rights in granted for pair in rights.items() if pair[1]]
    lines += [f"GRANT {rights} ON {space}.{table} TO {to};" for table, rights in pairs]
    for table, policies in _POLICIES.items() if granted else ():
        lines.append(f"ALTER TABLE {space}.{table} ENABLE ROW LEVEL SECURITY;")
        for policy in policies:
            on = f"dptext_{policy.partition(' ')[0].lower()} ON {space}.{table}"
            rule = policy.format(meta=_literal(f"{space}.meta"), event=f"{space}.event")
            lines += [f"DROP POLICY IF EXISTS {on};", f"CREATE POLICY {on} FOR {rule};"]
    return "\n".join(lines)


_RIGHT = re.compile(r"(\w+)(?: \((\w+)\))?")


def run_rights() -> list[str]:
    """Return the rights of a writer that a run needs: table, right, and column or nothing, three parts for each."""
    parts = []
    for table, rights in WRITES.items():
        for operation, column in _RIGHT.findall(f"SELECT, {rights}"):
            parts += [table, operation, column]
    return parts


_ASKED = ", ".join(["(?::text, ?::text, ?::text)"] * (len(run_rights()) // 3))
LACKING = (
    "select name, operation || case when part = '' then '' else ' (' || part || ')' end from"  # noqa: S608
    f" (select quote_ident(?::text) as space) as of_schema, (values {_ASKED}) as asked(name, operation, part)"
    " where not case when part = '' then has_table_privilege(space || '.' || name, operation)"
    " else has_column_privilege(space || '.' || name, part, operation) end"
)
"""Lists which of `run_rights` this user lacks in a schema, as pairs of table and right."""


def missing_grant(statement: str) -> tuple[str, str]:
    """Return the missing right of a role whose statement was refused, and a hint."""
    words = statement.split()
    if words[:1] == ["create"]:
        where = "the database" if words[1:2] == ["schema"] else "the schema"
        return f"it lacks CREATE on {where}", PRINT_GRANTS.format(role="owner")
    match = _STATEMENT.match(statement)
    if match is None:
        return "it does not own the tables", PRINT_GRANTS.format(role="owner")
    verb, table = match[1].upper(), match[2]
    role = "auditor" if verb == "SELECT" else "steward" if verb in STEWARDS.get(table, "") else "writer"
    return f"it lacks {verb} on the table {table}", PRINT_GRANTS.format(role=role)


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    """Return a string constant that means the text whatever `standard_conforming_strings` says."""
    quoted = "'" + text.replace("'", "''") + "'"
    return " E" + quoted.replace("\\", "\\\\") if "\\" in quoted else quoted
