"""Store a ledger in PostgreSQL, so that many machines can write.

A ledger is one schema of a database: "dptext_ledger", or the name in `?schema=NAME` of the URL. Each write is one
transaction with `synchronous_commit` on. It holds an advisory lock of the ledger: exclusively, or together with other
writers; then it also locks the scopes and releases that it writes to, and last the journal, so its facts stay
true until its commit. A lost connection is opened again before the next transaction, never inside one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator
from contextlib import suppress
from datetime import UTC
from functools import cache
from itertools import count
from secrets import SystemRandom
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from zlib import crc32

from dptext_etl import extensions, telemetry
from dptext_etl.errors import FullLedgerError, LedgerError, LockedLedgerError, UnavailableLedgerError
from dptext_etl.ledger.storage import postgres_sql as pg
from dptext_etl.ledger.storage.store import APPLICATION, NOTHING_WRITTEN, SCHEMA, VERSION, MissingLedgerError, Store

if TYPE_CHECKING:
    import psycopg


class PostgresStore(Store):
    """One connection to a ledger in PostgreSQL. Threads take turns; a forked process opens its own connection."""

    key_file = None

    def __init__(self, url: str, *, create: bool = True, read_only: bool = False, timeout: float = 60.0) -> None:
        super().__init__(read_only=read_only, timeout=timeout)
        self._conninfo, self.schema = pg.split_url(url)
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
        options, until = pg.options(self._timeout), time.monotonic() + self._timeout
        for attempt in count():
            try:
                connection = _timed_connection().connect(self._conninfo, autocommit=True, **options)
                break
            except psycopg.Error as exc:
                state = exc.sqlstate or pg.refusal(make_conninfo(self._conninfo, **options))
            if state not in pg.TRY_AGAIN or time.monotonic() >= until:
                raise self._failure(state, "OperationalError") from None
            # longer each time, and not all clients equally long
            time.sleep(min(pg.PAUSE, 0.05 * 2**attempt) * SystemRandom().uniform(0.5, 1.5))
        with self._translate_errors():
            version, read_only = connection.info.server_version, self.read_only
            connection.execute(pg.settings(self._timeout, self.schema, version, read_only=read_only))
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
            self._make_schema()
        elif not self.rows("select has_schema_privilege(?, 'usage')", (self.schema,))[0][0]:
            msg = f"the ledger {self.name} may not be used by this user: it lacks USAGE on the schema"
            raise LedgerError(msg, "`dptext ledger grants --role auditor` prints what to grant")
        stored = self.meta("schema")
        if stored is None:
            raise LedgerError(f"{self.name} is an unfinished ledger", "drop the schema: it holds no charge")
        self.require_version(int(stored))
        self.concurrent = not self.read_only

    def _make_schema(self) -> None:
        with self.transaction():
            if not self._run("select 1 from pg_namespace where nspname=?", (self.schema,)).fetchall():
                self._run(f'create schema if not exists "{self.schema}"', ())  # creation needs more rights
            if self._run(_TABLES, (self.schema,)).fetchall():
                return  # another process was faster
            for statement in re.sub(r"--[^\n]*", "", SCHEMA).split(";\n"):
                self._run(statement, ())
            # blobs are random bytes: PostgreSQL must not try to compress them
            self._run("alter table segment alter column data set storage external", ())
            self._run("insert into meta values('schema',?)", (str(VERSION),))

    def who(self) -> dict[str, str]:
        user, now = self.rows("select session_user::text, clock_timestamp()")[0]
        return {"user": user, "server_ts": now.astimezone(UTC).isoformat(timespec="milliseconds")}

    def require_steward(self) -> None:
        if not self.rows("select has_table_privilege('meta', 'update')")[0][0]:
            raise self._denied("only a steward may do this", pg.PRINT_GRANTS.format(role="steward"))

    def _begin_reading(self) -> None:
        self._begin("begin isolation level repeatable read read only")

    def _begin_writing(self, rows: int, *, shared: bool) -> None:
        """Begin a transaction that holds the lock of the ledger: exclusively, or together with other writers."""
        self._begin("begin isolation level read committed")  # reads after a lock are current
        try:
            hold = pg.HOLD + pg.HOLD_PER_MILLION * rows / 1_000_000
            self._run(pg.SET_HOLD, (pg.milliseconds(hold),))
            self._wait([(pg.LOCK_LEDGER_SHARED if shared else pg.LOCK_LEDGER, (APPLICATION, self.schema))])
        except BaseException:
            self._roll_back()
            raise
        self.shared = shared

    def lock(self, *names: str) -> None:
        if self.shared:
            keys = sorted({crc32(f"{self.schema}/{name}".encode()) - (1 << 31) for name in names})
            with telemetry.waiting("turn"):
                self._wait([(pg.LOCK, (APPLICATION + 1, key)) for key in keys])

    def _wait(self, locks: list[tuple[str, tuple[Any, ...]]]) -> None:
        """Take locks one after the other; end the session of a writer that was stopped while it holds the ledger."""
        import psycopg

        until = time.monotonic() + self._timeout
        self._run("savepoint turn", ())
        while True:
            try:
                self._run(pg.SET_LOCK_TIMEOUT, (pg.milliseconds(min(until - time.monotonic(), pg.LOOK)),))
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
                self._run(pg.FORGET_SESSIONS, ())
                self._run(pg.END_STUCK, (APPLICATION, self.schema, pg.STUCK))
            except psycopg.errors.InsufficientPrivilege:  # another role's session: its server ends it
                self._run("rollback to savepoint turn", ())

    def _begin(self, statement: str) -> None:
        """Begin a transaction. If the connection was lost since the last one, open it again."""
        import psycopg

        try:
            self._run(statement, ())
        except psycopg.OperationalError:
            if self._connection is not None and not self._connection.broken:
                raise
            self._connection = self._connect()
            self._run(statement, ())

    def _roll_back(self) -> None:
        import psycopg

        if self._connection is not None and not self._connection.closed:
            with suppress(psycopg.Error):
                self._connection.execute("rollback")

    def _run(self, sql: str, values: tuple[Any, ...]) -> psycopg.Cursor[tuple[Any, ...]]:
        connection = self._own_connection()
        # the server has ended this session between two calls, or is about to
        idle = connection.info.transaction_status == 0 and time.monotonic() - self._last_used > pg.IDLE / 2
        if self._reconnecting or idle:
            self._reconnecting = True  # also where no connection is left now
            connection.close()
            connection = self._connection = self._connect()
            self._reconnecting = False
        self._statement = sql
        plain = tuple(int(value) if isinstance(value, bool) else value for value in values)
        try:
            cursor: psycopg.Cursor[tuple[Any, ...]] = connection.execute(pg.dialect(sql), plain, binary=True)
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
            return self._denied(*pg.missing_grant(self._statement))
        other = (LedgerError, f"cannot be used ({error} {state})", "run `dptext ledger verify`")
        if state == "25006" and not self.read_only:
            return self._standby()
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
            if lacking := self.rows(pg.LACKING, (self.schema, *pg.run_rights())):
                *others, last = [right for name, right in lacking if name == lacking[0][0]]
                rights = f"{', '.join(others)} and {last}" if others else last
                what = f"it lacks {rights} on the table {lacking[0][0]}", pg.PRINT_GRANTS.format(role="writer")
        elif self.rows("select 1 from pg_namespace where nspname=?", (self.schema,)):
            may_create = self.rows("select has_schema_privilege(?::text, 'create')", (self.schema,))
            what = None if may_create[0][0] else pg.missing_grant("create table")
        else:
            may_create = self.rows("select has_database_privilege(current_database(), 'create')")
            what = None if may_create[0][0] else pg.missing_grant("create schema")
        if what is not None:
            raise self._denied(*what)


@cache
def _timed_connection() -> type[psycopg.Connection[tuple[Any, ...]]]:
    """Return the class of connections, which psycopg, imported only when used, is the base of."""
    import psycopg

    class TimedConnection(psycopg.Connection[tuple[Any, ...]]):
        """Closes itself, and fails as a lost connection does, if an answer does not arrive for `pg.ANSWER` seconds.

        A proxy may keep the socket of a client open, and answer its keepalives, after it lost the server.
        """

        def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
            try:
                return super().wait(_until(gen, time.monotonic() + pg.ANSWER), *args, **options)
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
