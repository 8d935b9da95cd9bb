"""Store a ledger in PostgreSQL, so that many machines can write.

A ledger is one schema of a database: "dptext_ledger", or the name in `?schema=NAME` of the URL. Each write is one
transaction. It holds an advisory lock of the ledger: alone, or together with the writers in other lanes; then it holds
a lock of its lane and of the scopes and releases that it writes to, too. What it relies on stays true until its commit.
`synchronous_commit` is on, whatever the default of the server. A lost connection is opened again before the next
transaction, never inside one. A call that failed wrote nothing, or it wrote everything and finds that when it is
repeated.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

from dptext_etl import extras, telemetry
from dptext_etl.errors import FullLedgerError, LedgerError, LockedLedgerError, UnavailableLedgerError
from dptext_etl.ledger.storage import postgres_grants, postgres_session, postgres_url
from dptext_etl.ledger.storage.journal import LANES
from dptext_etl.ledger.storage.postgres_sql import dialect, schema
from dptext_etl.ledger.storage.schema import VERSION
from dptext_etl.ledger.storage.store import NOTHING, MissingLedgerError, Store

if TYPE_CHECKING:
    import psycopg


class PostgresStore(Store):
    """Open one connection to a ledger in PostgreSQL. Threads take turns; a forked process opens its own connection."""

    key_file = None
    makes: ClassVar[int] = VERSION

    def __init__(
        self, url: str, *, create: bool = True, read_only: bool = False, timeout: float = 60.0, migrate: bool = False
    ) -> None:
        super().__init__(read_only=read_only, timeout=timeout)
        self._conninfo, self.schema = postgres_url.read(url)
        self.name = self.place = postgres_url.public_name(self._conninfo, self.schema)
        self._owner = os.getpid()
        self._statement, self._used, self._resting = "", 0.0, False
        self._last_lane = 1 + secrets.randbelow(LANES)
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = self._connect()
        try:
            with self._translated():
                self._prepare(create=create and not read_only, migrate=migrate)
        except BaseException:
            self.close()
            raise

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        try:
            import psycopg
            from psycopg.conninfo import make_conninfo
        except ImportError:
            raise LedgerError("a PostgreSQL ledger needs psycopg", extras.install("postgres")) from None
        options, until = postgres_session.options(self._timeout), time.monotonic() + self._timeout
        for attempt in count():
            try:
                connection = psycopg.connect(self._conninfo, autocommit=True, **options)
                break
            except psycopg.Error as exc:
                state = exc.sqlstate or postgres_session.refusal(make_conninfo(self._conninfo, **options))
            if state not in postgres_session.TRY_AGAIN or time.monotonic() >= until:
                raise self._meaning(state, "OperationalError") from None
            postgres_session.pause(attempt)
        with self._translated():
            version, read_only = connection.info.server_version, self.read_only
            connection.execute(postgres_session.settings(self._timeout, self.schema, version, read_only=read_only))
            self._used = time.monotonic()
        return connection

    def _prepare(self, *, create: bool, migrate: bool) -> None:
        """Check that the schema is a ledger of a known version, or make it one."""
        tables = {name for (name,) in self.rows(_TABLES, (self.schema,))}
        if "meta" not in tables:
            if tables:
                hint = "name another with ?schema=NAME"
                raise LedgerError(f"{self.name} holds tables of another kind", hint)
            if not create:
                hint = "`dptext run` and Ledger.open(url) make one"
                raise MissingLedgerError(f"there is no ledger at {self.name}", hint)
            self._make()
        elif not self.rows(_USABLE, (self.schema,))[0][0]:
            hint = "`dptext ledger grants --role auditor` prints what to grant"
            raise LedgerError(
                f"the ledger {self.name} may not be used by this user: it lacks USAGE on the schema", hint
            )
        self.version = self._stored_version()
        self.require_version(migrate=migrate)
        if migrate and self.version < VERSION:
            with self.transaction():
                self.version = self._stored_version()
                self.migrate()
                self.mark_lanes()

    def _stored_version(self) -> int:
        found = self.row("select value from meta where name='schema'")
        if found is None:
            raise LedgerError(f"{self.name} is an unfinished ledger", "drop the schema: it holds no charge")
        return int(found[0])

    def _make(self) -> None:
        with self.transaction():
            if not self._run(_SCHEMAS, (self.schema,)).fetchall():  # to make it takes more than to own it
                self._run(f'create schema if not exists "{self.schema}"', ())
            if self._run(_TABLES, (self.schema,)).fetchall():
                return  # another process was faster
            for statement in schema():
                self._run(statement, ())
            self._run("insert into meta values('schema',?)", (str(VERSION),))

    @property
    def lanes(self) -> bool:
        """Whether several writers may write in parallel: not before an older ledger was migrated."""
        return self.version >= VERSION and not self.read_only

    def mark_lanes(self) -> None:
        """Note that the journal has lanes."""
        self.execute("update meta set value=? where name='schema'", (str(VERSION),))

    def _begin_reading(self) -> None:
        self._begin("begin isolation level repeatable read read only")

    def _named_columns(self) -> list[tuple[Any, ...]]:
        return self.rows(_COLUMNS, (self.schema,))

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._connection is not None and self._owner == os.getpid():
                self._connection.close()
            self._connection = None

    def _begin_writing(self, rows: int, *, beside: bool) -> None:
        """Begin a transaction that holds the lock of the ledger, alone, or with others and then in a lane."""
        self._begin("begin isolation level read committed")  # what is read after a lock is current
        try:
            self._run(postgres_session.LIMITS, postgres_session.limits(rows))
            self._wait([postgres_session.turn_of_ledger(self.schema, beside=beside)])
            if beside:
                self.lane = self._last_lane = self._free_lane()
        except BaseException:
            self.lane = 0
            self._roll_back()
            raise

    def _free_lane(self) -> int:
        """Take a lane that no one is in: the last one if possible. If all are taken, wait for that one."""
        order = [(self._last_lane - 1 + step) % LANES + 1 for step in range(LANES)]
        for lane in order:
            if self._taken(f"lane/{lane}"):
                return lane
        self._wait([(postgres_session.WAIT, postgres_session.key(self.schema, f"lane/{order[0]}"))])
        return order[0]

    def turn(self, *names: str) -> None:
        """Wait until no other writer holds one of these names, and hold them until the transaction ends."""
        if self.lane:
            keys = sorted({postgres_session.key(self.schema, name) for name in names})
            with telemetry.waiting("turn"):
                self._wait([(postgres_session.WAIT, each) for each in keys])

    def take(self, name: str) -> bool:
        """Hold a name until the transaction ends if no other writer does; return whether this one holds it."""
        return not self.lane or self._taken(name)

    def _taken(self, name: str) -> bool:
        key = postgres_session.key(self.schema, name)
        return bool(self._run(postgres_session.TRY, key).fetchall()[0][0])

    def _wait(self, locks: list[tuple[str, tuple[Any, ...]]]) -> None:
        """Take locks one after the other; end the session of a writer that was stopped while it holds the ledger."""
        import psycopg

        until = time.monotonic() + self._timeout
        self._run("savepoint turn", ())
        while True:
            try:
                wait = min(until - time.monotonic(), postgres_session.LOOK)
                self._run(postgres_session.PATIENCE, (postgres_session.written(wait),))
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
                self._run(postgres_session.LOOK_AGAIN, ())
                self._run(postgres_session.END_STOPPED, postgres_session.stopped(self.schema))
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
        if self._owner != os.getpid():  # a connection must not cross a fork, nor be closed on its other side
            _INHERITED.append(self._connection)
            self._connection, self._owner, self._depth = self._connect(), os.getpid(), 0
        if self._connection is None:
            raise LedgerError(f"the ledger {self.name} is closed", "open it again")
        if self._resting or self._rests():
            self._resting = True  # also where no connection is left now
            self._connection.close()
            self._connection, self._resting = self._connect(), False
        self._statement = sql
        plain = tuple(int(value) if isinstance(value, bool) else value for value in values)
        try:
            return self._connection.execute(dialect(sql), plain, binary=True)
        finally:
            self._used = time.monotonic()

    def _rests(self) -> bool:
        """Return whether the server has ended this session between two calls, or is about to."""
        idle = self._connection is not None and self._connection.info.transaction_status == 0
        return idle and time.monotonic() - self._used > postgres_session.IDLE / 2

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Translate an error of PostgreSQL and drop the original, which may quote a connection string or a value."""
        try:
            import psycopg
        except ImportError:
            yield
            return
        try:
            yield
        except psycopg.Error as exc:
            failure = self._meaning(exc.sqlstate or "", type(exc).__name__)
        else:
            return
        raise failure from None

    def _meaning(self, state: str, what: str) -> LedgerError:
        if state == _DENIED:
            said, hint = postgres_grants.lacking(self._statement)
            return LedgerError(f"the ledger {self.name} may not be so used by this user: {said}", hint)
        kind, said, hint = next(
            (meaning for prefix, meaning in _MEANINGS.items() if state.startswith(prefix)),
            _UNREACHABLE
            if not state
            else (LedgerError, f"cannot be used ({what} {state})", "run `dptext ledger verify`"),
        )
        return kind(f"the ledger {self.name} {said.format(timeout=self._timeout)}", hint)


def there_is(url: str) -> bool:
    """Return whether a ledger exists at a URL. Makes none."""
    try:
        PostgresStore(url, create=False, read_only=True).close()
    except MissingLedgerError:
        return False
    return True


_INHERITED: list[Any] = []
_DENIED = "42501"
_SCHEMAS = "select 1 from pg_namespace where nspname=?"
_USABLE = "select has_schema_privilege(?, 'usage')"
_TABLES = "select tablename from pg_tables where schemaname=?"
_COLUMNS = (
    "select table_name::text, column_name::text from information_schema.columns where table_schema=?"
    " order by table_name, ordinal_position"
)
_UNREACHABLE = (
    UnavailableLedgerError,
    "cannot be reached",
    f"is the server up, and are host, user and database right? {NOTHING}",
)
_MEANINGS: dict[str, tuple[type[LedgerError], str, str]] = {
    "55P03": (LockedLedgerError, "is locked: another writer has been busy for {timeout:g} s", NOTHING),
    "40P01": (LockedLedgerError, "is locked by two writers in turn", NOTHING),
    "25P03": (
        UnavailableLedgerError,
        "ended a write of this process, which had been silent while others waited",
        NOTHING,
    ),
    "53300": (
        LockedLedgerError,
        "has had no connection left for {timeout:g} s",
        f"raise max_connections, or run fewer tasks at once; {NOTHING}",
    ),
    "08P01": (
        UnavailableLedgerError,
        "is behind a pooler that gave no connection for {timeout:g} s",
        f"PgBouncer's max_client_conn must exceed the number of tasks; {NOTHING}",
    ),
    "53": (FullLedgerError, "has no room left", f"free some space; {NOTHING}"),
    "57014": (UnavailableLedgerError, "ended a statement that took too long", NOTHING),
    "57P": (UnavailableLedgerError, "was shut down by its server, or ended this session", NOTHING),
    "08": (UnavailableLedgerError, "lost its connection", NOTHING),
    "25006": (LedgerError, "is read-only", "open it with read_only=False, or ask for write access"),
    "28": (
        LedgerError,
        "refuses this user or password",
        "look at the URL that the policy's reference names, and at pg_hba.conf",
    ),
    "3D000": (LedgerError, "is in a database that does not exist", "make the database, or name another"),
}
