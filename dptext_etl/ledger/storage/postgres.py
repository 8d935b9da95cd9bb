"""Store a ledger in PostgreSQL, so that many machines can write, one after the other.

A ledger is one schema of a database: "dptext_ledger", or the name in `?schema=NAME` of the URL. Each write is one
transaction that holds an advisory lock of the ledger; what it reads stays true until its commit. `synchronous_commit`
is on, whatever the default of the server. A lost connection is opened again before the next transaction, never inside
one. A call that failed wrote nothing, or it wrote everything and finds that when it is repeated.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from threading import RLock
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from dptext_etl import extras
from dptext_etl.errors import LedgerError
from dptext_etl.ledger.storage.schema import APPLICATION, SCHEMA, VERSION
from dptext_etl.ledger.storage.store import NOTHING, MissingLedgerError, Store

if TYPE_CHECKING:
    import psycopg

DEFAULT_SCHEMA = "dptext_ledger"
_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_MILLISECONDS = 1000


class PostgresStore(Store):
    """Open one connection to a ledger in PostgreSQL. Threads take turns; a forked process opens its own connection.

    Args:
        url: "postgresql://USER:PASSWORD@HOST:PORT/DATABASE?schema=NAME"; leave out whatever libpq knows.
        create: Make a new ledger if there is none.
        read_only: Never write.
        timeout: Seconds to wait for another writer, and for the server.
        migrate: Bring a ledger of an older schema to the schema of this version.

    Raises:
        LedgerError: There is no server, database or ledger, the schema is newer, access is denied, or psycopg is not
            installed.
    """

    key_file = None

    def __init__(
        self, url: str, *, create: bool = True, read_only: bool = False, timeout: float = 60.0, migrate: bool = False
    ) -> None:
        self.read_only = read_only
        self._conninfo, self.schema = _read(url)
        self.name = self.place = _public_name(self._conninfo, self.schema)
        self._timeout = timeout
        self._lock = RLock()
        self._depth = 0
        self._owner = os.getpid()
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
        except ImportError:
            problem = "a PostgreSQL ledger needs psycopg, which is not installed"
            raise LedgerError(problem, extras.install("postgres")) from None
        options = {
            "autocommit": True,
            "client_encoding": "UTF8",  # also of a database without an encoding, which initdb makes in the locale C
            "connect_timeout": max(2, int(self._timeout)),
            "application_name": "dptext_etl",
            "keepalives_idle": 30,
        }
        with self._translated():
            connection = psycopg.connect(self._conninfo, **options)  # type: ignore[arg-type]
            connection.execute(f'set search_path = "{self.schema}"')
            connection.execute("set synchronous_commit = on")
            connection.execute(f"set lock_timeout = {max(1, int(self._timeout * _MILLISECONDS))}")
            if self.read_only:
                connection.execute("set default_transaction_read_only = on")
            return connection
        raise AssertionError

    def _prepare(self, *, create: bool, migrate: bool) -> None:
        """Check that the schema is a ledger of a known version, or make it one."""
        tables = {name for (name,) in self.rows(_TABLES, (self.schema,))}
        if "meta" not in tables:
            if tables:
                hint = "name another with ?schema=NAME"
                raise LedgerError(f"{self.name} holds tables of another kind", hint)
            if not create:
                raise MissingLedgerError(
                    f"there is no ledger at {self.name}", "`dptext run` and Ledger.open(url) make one"
                )
            self._make()
        self.version = self._stored_version()
        self.require_version(migrate=migrate)
        if self.version < VERSION:
            with self.transaction():
                self.version = self._stored_version()
                self.migrate()
                self.execute("update meta set value=? where name='schema'", (str(VERSION),))

    def _stored_version(self) -> int:
        found = self.row("select value from meta where name='schema'")
        if found is None:
            raise LedgerError(f"{self.name} is an unfinished ledger", "drop the schema: it holds no charge")
        return int(found[0])

    def _make(self) -> None:
        with self.transaction():
            self._run(f'create schema if not exists "{self.schema}"', ())
            if self._run(_TABLES, (self.schema,)).fetchall():
                return  # another process was faster
            for statement in _translated_schema():
                self._run(statement, ())
            self._run("insert into meta values('schema',?)", (str(VERSION),))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Write everything in the block durably, or nothing (see `Store.transaction`)."""
        with self._lock, self._translated():
            if self._depth:
                yield
                return
            self._begin("begin isolation level read committed")  # what is read after the lock is current
            self._depth += 1
            try:
                self._run("select pg_advisory_xact_lock(?, hashtext(?))", (APPLICATION, self.schema))
                yield
                self._run("commit", ())
            except BaseException:
                self._roll_back()
                raise
            finally:
                self._depth -= 1

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read one consistent state in the block, whatever others write meanwhile."""
        with self._lock, self._translated():
            if self._depth:
                yield
                return
            self._begin("begin isolation level repeatable read read only")
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                self._roll_back()

    def execute(self, sql: str, values: Iterable[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Run one statement and read its rows, if it has any, one by one."""
        with self._lock, self._translated():
            cursor = self._run(sql, tuple(values))
            return iter(cursor) if cursor.description else iter(())

    def rows(self, sql: str, values: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one query and return all its rows."""
        with self._lock, self._translated():
            return self._run(sql, tuple(values)).fetchall()

    def columns(self) -> dict[str, list[str]]:
        """Return the columns of every table of the ledger, in their order."""
        found: dict[str, list[str]] = {}
        for table, column in self.rows(_COLUMNS, (self.schema,)):
            found.setdefault(table, []).append(column)
        return found

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._connection is not None and self._owner == os.getpid():
                self._connection.close()
            self._connection = None

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
        plain = tuple(int(value) if isinstance(value, bool) else value for value in values)
        return self._connection.execute(_dialect(sql), plain)

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
            failure = self._meaning(exc)
        else:
            return
        raise failure from None

    def _meaning(self, exc: psycopg.Error) -> LedgerError:
        state = exc.sqlstate or ""
        said, hint = next(
            (meaning for prefix, meaning in _MEANINGS.items() if state.startswith(prefix)),
            ("cannot be reached", f"is the server up, and are host, user and database right? {NOTHING}")
            if not state
            else (f"cannot be used ({type(exc).__name__} {state})", "run `dptext ledger verify`"),
        )
        return LedgerError(f"the ledger {self.name} {said.format(timeout=self._timeout)}", hint)


def there_is(url: str) -> bool:
    """Return whether a ledger exists at a URL. Makes none.

    Raises:
        LedgerError: The server cannot be reached.
    """
    try:
        PostgresStore(url, create=False, read_only=True).close()
    except MissingLedgerError:
        return False
    return True


_INHERITED: list[Any] = []
_TABLES = "select tablename from pg_tables where schemaname=?"
_COLUMNS = (
    "select table_name::text, column_name::text from information_schema.columns where table_schema=?"
    " order by table_name, ordinal_position"
)
_MEANINGS = {
    "55P03": ("is locked: another writer has been busy for {timeout:g} s", NOTHING),
    "40P01": ("is locked by two writers in turn", NOTHING),
    "53": ("has no room or no connection left", f"free some space or connections; {NOTHING}"),
    "57P": ("was shut down by its server", NOTHING),
    "08": ("lost its connection", NOTHING),
    "25006": ("is read-only", "open it with read_only=False, or ask for write access"),
    "28": ("refuses this user or password", "look at the URL that the policy's reference names, and at pg_hba.conf"),
    "3D000": ("is in a database that does not exist", "make the database, or name another"),
    "42501": ("may not be used by this user", "grant the user usage and create on the schema"),
}


def _read(url: str) -> tuple[str, str]:
    """Split a URL into the connection string and the name of the schema."""
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    schema = dict(query).get("schema", DEFAULT_SCHEMA)
    if not _SCHEMA_NAME.fullmatch(schema):
        raise LedgerError("the schema in the ledger's URL is no plain name", "use lower-case letters, digits and _")
    rest = urlencode([pair for pair in query if pair[0] != "schema"])
    return urlunsplit(parts._replace(query=rest)), schema


def _public_name(conninfo: str, schema: str) -> str:
    """Name a ledger without its user and password."""
    parts = urlsplit(conninfo)
    port = f":{parts.port}" if parts.port else ""
    return f"postgresql://{parts.hostname or ''}{port}{parts.path} (schema {schema})"


@cache
def _dialect(sql: str) -> str:
    """Translate a statement of the ledger to the SQL of PostgreSQL."""
    sql = sql.replace("%", "%%").replace("?", "%s")
    if sql.startswith("insert or ignore "):
        sql = sql.replace("insert or ignore ", "insert ", 1) + " on conflict do nothing"
    elif sql.lstrip().startswith("create table"):
        for old, new in ((" strict, without rowid", ""), (" strict", ""), (" integer", " bigint"), (" blob", " bytea")):
            sql = sql.replace(old, new)
    elif sql.startswith("insert or replace into meta "):
        sql = sql.replace("insert or replace ", "insert ", 1) + " on conflict(name) do update set value=excluded.value"
    return sql


def _translated_schema() -> Iterator[str]:
    """Translate the tables to PostgreSQL. Blobs are random bytes, so PostgreSQL must not try to compress them."""
    yield from (statement for statement in re.sub(r"--[^\n]*", "", SCHEMA).split(";\n") if statement.strip())
    for table, column in (("segment", "data"), ("run_part", "data"), ("batch", "state")):
        yield f"alter table {table} alter column {column} set storage external"
