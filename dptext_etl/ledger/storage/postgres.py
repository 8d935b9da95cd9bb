"""Store a ledger in PostgreSQL, so that many machines can write: URLs, SQL dialect, sessions, locks, and grants.

A ledger is one schema of a database: "dptext_ledger", or the name in `?schema=NAME` of the URL. Each write is one
transaction with `synchronous_commit` on. It holds an advisory lock of the ledger: exclusively, or together with other
writers; then it also locks the scopes and releases that it writes to, and last the journal, so its facts stay
true until its commit. A lost connection is opened again before the next transaction, never inside one.

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
from collections.abc import Generator, Mapping
from contextlib import suppress
from datetime import UTC
from functools import cache
from itertools import count
from secrets import SystemRandom
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit
from zlib import crc32

from dptext_etl import extensions, telemetry
from dptext_etl.errors import FullLedgerError, LedgerError, LockedLedgerError, UnavailableLedgerError, seam
from dptext_etl.ledger.storage.store import APPLICATION, NOTHING_WRITTEN, SCHEMA, VERSION, MissingLedgerError, Store
from dptext_etl.markup import one_line

if TYPE_CHECKING:
    import psycopg


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

_TABLES = "select tablename from pg_tables where schemaname=?"
_UNREACHABLE = (
    UnavailableLedgerError,
    "cannot be reached",
    f"is the server up, and are host, user and database right? {NOTHING_WRITTEN}",
)
_MEANINGS: dict[str, tuple[type[LedgerError], str, str]] = {
    "55P03": (LockedLedgerError, "is locked: another writer has been busy for {timeout:g} s", NOTHING_WRITTEN),
    "40P01": (LockedLedgerError, "is locked by two writers in turn", NOTHING_WRITTEN),
    "25P03": (
        UnavailableLedgerError,
        "ended a write of this process, which had been silent while others waited",
        NOTHING_WRITTEN,
    ),
    "53300": (
        LockedLedgerError,
        "has had no connection left for {timeout:g} s",
        f"raise max_connections, or run fewer tasks at once; {NOTHING_WRITTEN}",
    ),
    "08P01": (
        UnavailableLedgerError,
        "is behind a pooler that gave no connection for {timeout:g} s",
        f"PgBouncer's max_client_conn must exceed the number of tasks; {NOTHING_WRITTEN}",
    ),
    "53": (FullLedgerError, "has no room left", f"free some space; {NOTHING_WRITTEN}"),
    "57014": (UnavailableLedgerError, "ended a statement that ran too long", NOTHING_WRITTEN),
    "57P": (UnavailableLedgerError, "was shut down by its server, or ended this session", NOTHING_WRITTEN),
    "08": (UnavailableLedgerError, "lost its connection", NOTHING_WRITTEN),
    "25006": (LedgerError, "is read-only", "open it with read_only=False, or ask for write access"),
    "28": (
        LedgerError,
        "refuses this user or password",
        "look at the URL that the policy's reference names, and at pg_hba.conf",
    ),
    "3D000": (LedgerError, "is in a database that does not exist", "make the database, or name another"),
}


class PostgresStore(Store):
    """One connection to a ledger in PostgreSQL. Threads take turns; a forked process opens its own connection."""

    key_file = None

    def __init__(self, url: str, *, create: bool = True, read_only: bool = False, timeout: float = 60.0) -> None:
        super().__init__(read_only=read_only, timeout=timeout)
        self._conninfo, self.schema = split_url(url)
        # hosts without user and password
        parts = urlsplit(self._conninfo)
        hosts = parts.netloc.rpartition("@")[2].lower().translate({ord("["): None, ord("]"): None})
        self.name = self.place = f"postgresql://{hosts}{parts.path} (schema {self.schema})"
        self._statement, self._last_used, self._reconnecting = "", 0.0, False
        self._connection = self._connect()
        try:
            with self._translate_errors():
                self._prepare(create=create and not read_only)
        except BaseException:
            self.close()
            raise

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        try:
            import psycopg
            from psycopg.conninfo import make_conninfo
        except ImportError:
            raise LedgerError("a PostgreSQL ledger needs psycopg", extensions.pip_install("postgres")) from None
        options: dict[str, Any] = {
            "client_encoding": "UTF8",  # also of a database without an encoding, which initdb makes in the locale C
            "connect_timeout": max(2, int(self._timeout)),
            "application_name": "dptext_etl",
            "keepalives": 1,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 30_000,
        }
        until = time.monotonic() + self._timeout
        for attempt in count():
            try:
                connection = _timed_connection().connect(self._conninfo, autocommit=True, **options)
                break
            except psycopg.Error as exc:
                state = exc.sqlstate or refusal(make_conninfo(self._conninfo, **options))
            if state not in TRY_AGAIN or time.monotonic() >= until:
                raise self._failure(state, "OperationalError") from None
            # longer each time, and not all clients equally long
            time.sleep(min(PAUSE, 0.05 * 2**attempt) * SystemRandom().uniform(0.5, 1.5))
        with self._translate_errors():
            version, read_only = connection.info.server_version, self.read_only
            connection.execute(settings(self._timeout, self.schema, version, read_only=read_only))
            self._last_used = time.monotonic()
        return connection

    def _prepare(self, *, create: bool) -> None:
        """Check that the schema is a ledger of a known version, or make it one."""
        tables = {name for (name,) in self.rows(_TABLES, (self.schema,))}
        if "meta" not in tables:
            if tables:
                raise LedgerError(f"{self.name} holds tables of another kind", "name another with ?schema=NAME")
            if not create:
                hint = "`dptext run` and Ledger.open(url) make one"
                raise MissingLedgerError(f"there is no ledger at {self.name}", hint)
            with self.transaction():
                if not self._run("select 1 from pg_namespace where nspname=?", (self.schema,)).fetchall():
                    self._run(f'create schema if not exists "{self.schema}"', ())  # creation needs more rights
                if not self._run(_TABLES, (self.schema,)).fetchall():  # no other process was faster
                    for statement in re.sub(r"--[^\n]*", "", SCHEMA).split(";\n"):
                        self._run(statement, ())
                    # blobs are random bytes: PostgreSQL must not try to compress them
                    self._run("alter table segment alter column data set storage external", ())
                    self._run("insert into meta values('schema',?)", (str(VERSION),))
        elif not self.rows("select has_schema_privilege(?, 'usage')", (self.schema,))[0][0]:
            msg = f"the ledger {self.name} may not be used by this user: it lacks USAGE on the schema"
            raise LedgerError(msg, "`dptext ledger grants --role auditor` prints what to grant")
        stored = self.meta("schema")
        if stored is None:
            raise LedgerError(f"{self.name} is an unfinished ledger", "drop the schema: it holds no charge")
        self.require_version(int(stored))
        self.concurrent = not self.read_only

    def who(self) -> dict[str, str]:
        user, now = self.rows("select session_user::text, clock_timestamp()")[0]
        return {"user": user, "server_ts": now.astimezone(UTC).isoformat(timespec="milliseconds")}

    def require_steward(self) -> None:
        if not self.rows("select has_table_privilege('meta', 'update')")[0][0]:
            raise self._denied("only a steward may do this", PRINT_GRANTS.format(role="steward"))

    def _begin(self, rows: int, *, writes: bool, shared: bool) -> None:
        """Begin a transaction. One that writes holds the lock of the ledger: exclusively, or with other writers."""
        import psycopg

        # reads after a lock are current
        statement = f"begin isolation level {'read committed' if writes else 'repeatable read read only'}"
        try:
            self._run(statement, ())
        except psycopg.OperationalError:
            # If the connection was lost since the last transaction, open it again.
            if self._connection is not None and not self._connection.broken:
                raise
            self._connection = self._connect()
            self._run(statement, ())
        if not writes:
            return
        try:
            self._run(SET_HOLD, (milliseconds(HOLD + HOLD_PER_MILLION * rows / 1_000_000),))
            self._wait([(LOCK_LEDGER_SHARED if shared else LOCK_LEDGER, (APPLICATION, self.schema))])
        except BaseException:
            self._roll_back()
            raise
        self.shared = shared

    def lock(self, *names: str) -> None:
        if self.shared:
            keys = sorted({crc32(f"{self.schema}/{name}".encode()) - (1 << 31) for name in names})
            with telemetry.waiting("turn"):
                self._wait([(LOCK, (APPLICATION + 1, key)) for key in keys])

    def _wait(self, locks: list[tuple[str, tuple[Any, ...]]]) -> None:
        """Take locks one after the other; end the session of a writer that was stopped while it holds the ledger."""
        import psycopg

        until = time.monotonic() + self._timeout
        self._run("savepoint turn", ())
        while True:
            try:
                self._run(SET_LOCK_TIMEOUT, (milliseconds(min(until - time.monotonic(), LOOK)),))
                for statement, values in locks:
                    self._run(statement, values)
            except psycopg.errors.LockNotAvailable:
                self._run("rollback to savepoint turn", ())
                if time.monotonic() >= until:
                    raise
            else:
                self._run("release savepoint turn", ())
                return
            try:
                self._run(FORGET_SESSIONS, ())
                self._run(END_STUCK, (APPLICATION, self.schema, STUCK))
            except psycopg.errors.InsufficientPrivilege:  # another role's session: its server ends it
                self._run("rollback to savepoint turn", ())

    def _roll_back(self) -> None:
        import psycopg

        if self._connection is not None and not self._connection.closed:
            with suppress(psycopg.Error):
                self._connection.execute("rollback")

    def _run(self, sql: str, values: tuple[Any, ...]) -> psycopg.Cursor[tuple[Any, ...]]:
        connection = self._own_connection()
        # the server has ended this session between two calls, or is about to
        idle = connection.info.transaction_status == 0 and time.monotonic() - self._last_used > IDLE / 2
        if self._reconnecting or idle:
            self._reconnecting = True  # also where no connection is left now
            connection.close()
            connection = self._connection = self._connect()
            self._reconnecting = False
        self._statement = sql
        plain = tuple(int(value) if isinstance(value, bool) else value for value in values)
        try:
            cursor: psycopg.Cursor[tuple[Any, ...]] = connection.execute(dialect(sql), plain, binary=True)
            return cursor
        finally:
            self._last_used = time.monotonic()

    def _meaning(self, error: Exception) -> LedgerError | None:
        import psycopg

        return self._failure(error.sqlstate or "", type(error).__name__) if isinstance(error, psycopg.Error) else None

    def _denied(self, problem: str, hint: str) -> LedgerError:
        return LedgerError(f"permission denied on the ledger {self.name}: {problem}", hint)

    def _standby(self) -> LedgerError:
        hint = "name the primary in the ledger's URL, or all hosts and target_session_attrs=read-write"
        return LedgerError(f"the ledger {self.name} is on a server that is read-only, such as a standby", hint)

    def _failure(self, state: str, error: str) -> LedgerError:
        if state == "42501":
            return self._denied(*missing_grant(self._statement))
        if state == "25006" and not self.read_only:
            return self._standby()
        other = (LedgerError, f"cannot be used ({error} {state})", "run `dptext ledger verify`")
        kind, problem, hint = next(
            (meaning for prefix, meaning in _MEANINGS.items() if state.startswith(prefix)),
            other if state else _UNREACHABLE,
        )
        return kind(f"the ledger {self.name} {problem.format(timeout=self._timeout)}", hint)


def require_writable(url: str) -> None:
    """Ask a server, read-only, whether this user may write to a ledger or make it, and refuse missing rights."""
    _RightsStore(url, create=False, read_only=True).close()


class _RightsStore(PostgresStore):
    """A connection that asks for its user's rights, and makes nothing."""

    def _prepare(self, *, create: bool) -> None:
        if self.rows("select pg_is_in_recovery()")[0][0]:
            raise self._standby()
        what = None
        if self.rows(_TABLES, (self.schema,)):
            super()._prepare(create=create)
            # of these, the rights on the first table are named
            if lacking := self.rows(LACKING, (self.schema, *run_rights())):
                *others, last = [right for name, right in lacking if name == lacking[0][0]]
                rights = f"{', '.join(others)} and {last}" if others else last
                what = f"it lacks {rights} on the table {lacking[0][0]}", PRINT_GRANTS.format(role="writer")
        elif self.rows("select 1 from pg_namespace where nspname=?", (self.schema,)):
            may_create = self.rows("select has_schema_privilege(?::text, 'create')", (self.schema,))
            what = None if may_create[0][0] else missing_grant("create table")
        else:
            may_create = self.rows("select has_database_privilege(current_database(), 'create')")
            what = None if may_create[0][0] else missing_grant("create schema")
        if what is not None:
            raise self._denied(*what)


@cache
def _timed_connection() -> type[psycopg.Connection[tuple[Any, ...]]]:
    """Return the class of connections, which psycopg, imported only when used, is the base of."""
    import psycopg

    class TimedConnection(psycopg.Connection[tuple[Any, ...]]):
        """Closes itself, and fails as a lost connection does, if an answer does not arrive for `ANSWER` seconds.

        A proxy may keep the socket of a client open, and answer its keepalives, after it lost the server.
        """

        def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
            try:
                return super().wait(_until(gen, time.monotonic() + ANSWER), *args, **options)
            except TimeoutError:
                self.pgconn.finish()
                raise psycopg.errors.ConnectionFailure from None

    return TimedConnection


def _until(steps: Generator[Any, Any, Any], until: float) -> Generator[Any, Any, Any]:
    """Pass on what psycopg waits for; it asks again several times a second while nothing arrives."""
    try:
        wanted = next(steps)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() > until:
                raise TimeoutError
            wanted = steps.send(ready)
    except StopIteration as done:
        return done.value


def split_url(url: str) -> tuple[str, str]:
    """Split postgresql://USER@HOST:PORT/DATABASE?schema=NAME into the connection string and the schema's name."""
    hint = "write postgresql://user@host:port/database?schema=NAME; separate several hosts by commas"
    try:
        parts = urlsplit(url)
    except ValueError:  # it quotes the URL, with its password
        seam("reading the ledger's URL").leave(LedgerError("the ledger's URL cannot be read", hint))
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
