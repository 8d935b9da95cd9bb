"""Store a ledger in a database: the interface of all stores, URLs, and the store that uses an SQLite file.

Statements use the SQL that SQLite and PostgreSQL know, with `?` for values. A batch is a few large blobs, so a store
does no work per record and needs no staging table. Only the SQLite of the standard library opens a file: a second copy
of SQLite in one process corrupts it.
"""

from __future__ import annotations

import os
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from pwd import getpwuid
from threading import RLock
from typing import Any, TypeVar

from dptext_etl import telemetry
from dptext_etl.errors import FullLedgerError, LedgerError, LockedLedgerError, UnavailableLedgerError, file_failure

PREFIX = "sqlite:///"
POSTGRES = ("postgresql://", "postgres://")
REFERENCE = "env:"
NOTHING_WRITTEN = "nothing was written; the same call can be repeated"
RETRY_SECONDS = 1.0
AWAY_SECONDS = 300.0  # how long a server may be away
VERSION = 5  # the schema version of tables and journal
APPLICATION = 0x64707478  # `pragma application_id` of a ledger: "dptx"
KEY_SUFFIX = ".id.key"  # the suffix of the id key file next to a ledger, unless another key is given
PAGE_BYTES = 65_536  # batches are blobs of megabytes: large pages write them at twice the speed of small ones
WAL_BYTES = 256 << 20  # the size to which a checkpoint cuts the write-ahead log back

SCHEMA = """
-- Facts of the ledger: its id, and the check value of its id key.
create table meta(name text primary key, value text not null) strict;

-- The journal: hash = SHA-256(tag || hash of the event before || body).
create table event(seq integer primary key, kind text not null, body text not null, hash blob not null) strict;

-- Sealed segments: one blob per column of a batch; the event's body says how to read it.
create table segment(seq integer, name text, data blob not null, primary key(seq, name)) strict
"""
"""The tables: `event` and `segment` are the ledger, and all that it holds follows from them (`ledger.contents`)."""
COLUMNS = {"meta": ("name", "value"), "event": ("seq", "kind", "body", "hash"), "segment": ("seq", "name", "data")}

T = TypeVar("T")


class MissingLedgerError(LedgerError):
    """There is no ledger to read."""


class NotExclusiveError(Exception):
    """One of several writers is about to change shared state; it must begin again, exclusively."""


class Store(ABC):
    """An open database of a ledger.

    A writer is exclusive, or, in a concurrent store, one of several. Then each locks scopes and releases that it writes
    to, and one after the other they append to the journal.

    Attributes:
        name: The name of the ledger in messages; it holds no password.
        place: The same, from whatever folder it is opened.
        key_file: Where the id key lies if none is named; None where it must be named.
        read_only: Whether the store refuses to write.
        concurrent: Whether several writers may write in parallel.
        shared: Whether the running transaction is one of several writers.
    """

    name: str
    place: str
    key_file: Path | None
    concurrent = False

    def __init__(self, *, read_only: bool, timeout: float) -> None:
        self.read_only, self._timeout = read_only, timeout
        self._thread_lock = RLock()
        self._depth = 0
        self.shared = False
        self._owner = os.getpid()
        self._connection: Any = None

    def write(self, rows: int, work: Callable[[], T]) -> T:
        """Do something in one transaction: together with other writers if that is possible, else exclusively."""
        if self.concurrent:
            # Nothing of a shared attempt stays if it meets work that needs all writers out: it runs again, exclusively.
            with suppress(NotExclusiveError), self.transaction(rows, shared=True):
                return work()
        with self.transaction(rows):
            return work()

    def require_exclusive(self) -> None:
        """Refuse to change what other writers rely on."""
        if self.shared:
            raise NotExclusiveError

    def lock(self, *names: str) -> None:  # noqa: B027  (a store with one writer locks nothing)
        """Wait until no other writer holds one of these names, and hold them until the transaction ends.

        To prevent deadlocks, lock scopes and releases first, then states, and last the journal.
        """

    def transaction(self, rows: int = 0, *, shared: bool = False) -> AbstractContextManager[None]:
        """Write everything in the block durably, or nothing; without `shared`, nothing else writes meanwhile."""
        return self._block(rows, writes=True, shared=shared)

    def snapshot(self) -> AbstractContextManager[None]:
        """Read one consistent state in the block, whatever others write meanwhile."""
        return self._block()

    @contextmanager
    def _block(self, rows: int = 0, *, writes: bool = False, shared: bool = False) -> Iterator[None]:
        with self._thread_lock, self._translate_errors():
            if self._depth:
                yield
                return
            with telemetry.waiting("ledger") if writes else nullcontext():
                self._begin(rows, writes=writes, shared=shared)
            self._depth += 1
            committed = False
            try:
                yield
                if writes:
                    self._run("commit", ())
                    committed = True
            finally:
                self._depth -= 1
                self.shared = False
                if not committed:
                    self._roll_back()

    def execute(self, sql: str, values: Iterable[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Run one statement and read its rows, if it has any, one by one."""
        with self._thread_lock, self._translate_errors():
            cursor = self._run(sql, tuple(values))
            return iter(cursor) if cursor.description else iter(())

    def rows(self, sql: str, values: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        with self._thread_lock, self._translate_errors():
            rows: list[tuple[Any, ...]] = self._run(sql, tuple(values)).fetchall()
            return rows

    def row(self, sql: str, values: Iterable[Any] = ()) -> tuple[Any, ...] | None:
        rows = self.rows(sql, values)
        return rows[0] if rows else None

    def meta(self, name: str) -> str | None:
        row = self.row("select value from meta where name=?", (name,))
        return None if row is None else row[0]

    def require_version(self, version: int) -> None:
        """Refuse a schema version that this version of the library does not write."""
        if version != VERSION:
            old = "versions before 0.3.0 wrote it: start a new ledger under new release names"
            hint = "upgrade dptext-etl" if version > VERSION else old
            msg = f"{self.name} has ledger schema {version}; this version of dptext-etl knows {VERSION}"
            raise LedgerError(msg, f"{hint}; nothing was read or changed")

    def who(self) -> dict[str, str]:
        """Return who decides: the user of this process, or a server's user with the server's time."""
        try:
            return {"user": getpwuid(os.getuid()).pw_name}
        except KeyError:  # of a container, for example
            return {"user": f"uid {os.getuid()}"}

    def require_steward(self) -> None:  # noqa: B027  (the permissions of a file are all that protects it)
        """Refuse a user of a server who may not change caps, thaw, readmit, or accept units."""

    def checkpoint(self) -> None:  # noqa: B027  (a server does so by itself)
        """Do now what `close` would do with a write-ahead log; others may read and write meanwhile."""

    @abstractmethod
    def _begin(self, rows: int, *, writes: bool, shared: bool) -> None: ...

    @abstractmethod
    def _roll_back(self) -> None:
        """End a transaction, if there is one, and drop its writes."""

    @abstractmethod
    def _run(self, sql: str, values: tuple[Any, ...]) -> Any: ...

    @abstractmethod
    def _connect(self) -> Any: ...

    @abstractmethod
    def _meaning(self, error: Exception) -> LedgerError | None:
        """Return the meaning of an error of the database; None for an error of another kind."""

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Translate an error of the database and drop the original, which may quote a value."""
        try:
            yield
        except Exception as error:
            failure = self._meaning(error)
            if failure is None:
                raise
        else:
            return
        raise failure from None

    def _own_connection(self) -> Any:
        """Return the connection of this process: none may cross a fork, nor be closed on its other side."""
        if self._owner != os.getpid():
            _INHERITED.append(self._connection)
            self._connection, self._owner, self._depth = self._connect(), os.getpid(), 0
        if self._connection is None:
            raise LedgerError(f"the ledger {self.name} is closed", "open it again")
        return self._connection

    def close(self) -> None:
        with self._thread_lock:
            if self._connection is not None and self._owner == os.getpid():
                self._connection.close()
            self._connection = None


# Connections of the parent process: kept, because collecting one would close it. The store's lock guards it.
_INHERITED: list[Any] = []


class SqliteStore(Store):
    """One connection to a ledger file. Threads take turns; a forked process opens its own connection.

    Each write is one `BEGIN IMMEDIATE` transaction that is on disk when it returns (WAL, synchronous=FULL).
    """

    def __init__(self, path: Path, *, create: bool = True, read_only: bool = False, timeout: float = 60.0) -> None:
        self.path = path
        self.name = str(path)
        self.place = str(path.resolve())
        self.key_file = path.with_name(path.name + KEY_SUFFIX)
        super().__init__(read_only=read_only, timeout=timeout)
        if create and not read_only:
            self._create_file()
        elif not path.is_file():
            raise MissingLedgerError(f"there is no ledger at {path}", "`dptext run` and Ledger.open(url) make one")
        self._connection = self._connect()
        try:
            with self._translate_errors():
                self._prepare()
        except BaseException:
            self.close()
            raise

    def _create_file(self) -> None:
        """Make an empty file that only its owner can read; SQLite gives its log the same mode."""
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            return
        except OSError as exc:
            problem, hint = f"a ledger cannot be made at {self.path}", "the folder must exist and be writable"
            raise file_failure(exc, problem, hint, LedgerError) from None

    def _connect(self) -> sqlite3.Connection:
        url = f"{self.path.absolute().as_uri()}?mode={'ro' if self.read_only else 'rw'}"
        options: dict[str, Any] = {"isolation_level": None, "check_same_thread": False, "uri": True}
        with self._translate_errors():
            connection: sqlite3.Connection = sqlite3.connect(url, timeout=self._timeout, **options)
            # Wait for the disk at every commit; fill no freed page with zeros: the ledger holds keyed hashes only.
            for option in ("synchronous=full", "secure_delete=fast"):
                connection.execute(f"pragma {option}")
            return connection
        raise AssertionError

    def _prepare(self) -> None:
        run = self._connection.execute
        run(f"pragma page_size={PAGE_BYTES}")
        empty = not run("select count(*) from sqlite_schema").fetchone()[0]  # first: another process may be making it
        application, version = run("pragma application_id").fetchone()[0], run("pragma user_version").fetchone()[0]
        if not empty and application != APPLICATION:
            hint = "name a ledger, or a file that does not exist"
            raise LedgerError(f"{self.path} is a database of another kind", hint)
        if empty and self.read_only:
            hint = "a run makes a new ledger in the file; where charges were made before, restore the ledger instead"
            raise MissingLedgerError(f"{self.path} is empty, not a ledger", hint)
        self.require_version(VERSION if empty else version)
        until = time.monotonic() + self._timeout
        while not self.read_only:
            # SQLite does not wait for other processes where it switches to a write-ahead log.
            try:
                run("pragma journal_mode=wal")
                run(f"pragma journal_size_limit={WAL_BYTES}")
                break
            except sqlite3.OperationalError as exc:
                if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
                time.sleep(0.01)
        if not empty:
            return
        with self.transaction():
            if run("select count(*) from sqlite_schema").fetchone()[0]:
                return  # another process was faster
            for statement in SCHEMA.split(";\n"):
                run(statement)
            run(f"pragma application_id={APPLICATION}")
            run(f"pragma user_version={VERSION}")

    def _begin(self, rows: int, *, writes: bool, shared: bool) -> None:  # noqa: ARG002
        # The right to write comes before the first read, so no other write comes between judgment and charge.
        self._run("begin immediate" if writes else "begin", ())

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.rollback()

    def copy_pages(self, target: SqliteStore) -> None:
        """Make another file a copy of this one, as it is at one moment; others may write meanwhile."""
        with self._thread_lock, self._translate_errors(), target._thread_lock:
            self._run("select 1", ())  # after a fork: its own connection
            self._connection.backup(target._connection)

    def checkpoint(self) -> None:
        """Copy from the log to the file what no one reads from the log any more; the log stays."""
        with self._thread_lock, self._translate_errors():
            self._run("pragma wal_checkpoint(passive)", ()).fetchall()

    def _run(self, sql: str, values: tuple[Any, ...]) -> sqlite3.Cursor:
        cursor: sqlite3.Cursor = self._own_connection().execute(sql, values)
        return cursor

    def _meaning(self, error: Exception) -> LedgerError | None:
        if not isinstance(error, sqlite3.Error):
            return None
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        other = (LedgerError, f"cannot be used ({type(error).__name__} {code})", "run `dptext ledger verify`")
        kind, problem, hint = _MEANINGS.get(code, other)
        return kind(f"the ledger {self.path} {problem.format(timeout=self._timeout)}", hint)


class MemoryStore(SqliteStore):
    """An empty ledger in memory, which judges a plan where there is no ledger yet."""

    def __init__(self) -> None:
        super().__init__(Path("a new ledger"))

    def _create_file(self) -> None:
        pass

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)


_PERMISSIONS = (LedgerError, "cannot be opened", "the file and its folder must be readable and writable")
_MEANINGS: dict[int, tuple[type[LedgerError], str, str]] = {
    sqlite3.SQLITE_BUSY: (
        LockedLedgerError,
        "is locked: another process has been writing for {timeout:g} s",
        NOTHING_WRITTEN,
    ),
    sqlite3.SQLITE_LOCKED: (LockedLedgerError, "is locked by this process", NOTHING_WRITTEN),
    sqlite3.SQLITE_FULL: (FullLedgerError, "has no room: the disk is full", f"free some space; {NOTHING_WRITTEN}"),
    sqlite3.SQLITE_IOERR: (FullLedgerError, "cannot be written or read: the disk fails or is full", NOTHING_WRITTEN),
    sqlite3.SQLITE_READONLY: (LedgerError, "is read-only", "open it with read_only=False, or ask for write access"),
    sqlite3.SQLITE_CANTOPEN: _PERMISSIONS,
    sqlite3.SQLITE_PERM: _PERMISSIONS,
    sqlite3.SQLITE_NOTADB: (LedgerError, "is not a ledger", "name a ledger, or a file that does not exist"),
    sqlite3.SQLITE_CORRUPT: (LedgerError, "is damaged", "restore it from a copy; its datasets are frozen until then"),
}


def resolve_url(url: str) -> str:
    """Return the URL behind "env:NAME"; any other text is the URL."""
    if not url.startswith(REFERENCE):
        return url
    name = url.removeprefix(REFERENCE)
    value = os.environ.get(name)
    if not value:
        message = f"the environment variable {name} must hold the URL of the ledger, and it is not set here"
        hint = f"set it where this process starts; for Spark's executors, set spark.executorEnv.{name}"
        raise LedgerError(message, hint)
    if not value.startswith((PREFIX, *POSTGRES)):  # it may be another secret, so it names no file
        message = f"the environment variable {name} must hold the URL of the ledger, and it holds something else"
        raise LedgerError(message, "it begins with sqlite:/// or postgresql://; a path is written sqlite:///PATH")
    return value


def sqlite_path(url: str) -> Path:
    if url.startswith(PREFIX):
        url = url.removeprefix(PREFIX)
    elif "://" in url or not url:
        hint = 'write "sqlite:///ledger.db", a path, or "postgresql://user@host/database"'
        raise LedgerError("a ledger is kept in SQLite or PostgreSQL; this URL names neither", hint)
    return Path(url)


def wait_for_ledger(call: Callable[[], T], given_up: Callable[[], bool] = lambda: False) -> T:
    """Repeat a call while other writers lock the ledger, or, for a few minutes, while its server is away."""
    away_since: float | None = None
    while True:
        try:
            return call()
        except LockedLedgerError:
            away_since = None
            if given_up():
                raise
        except UnavailableLedgerError:
            away_since = time.monotonic() if away_since is None else away_since
            if given_up() or time.monotonic() - away_since > AWAY_SECONDS:
                raise
        time.sleep(RETRY_SECONDS)
