"""Define the one interface to the database of a ledger; SQLite and PostgreSQL implement it.

Statements are written in the SQL that both know, with `?` for values. A batch is a few large blobs, and sorted runs
find its records (`segments`, `sorted_runs`). So a store does no work per record and needs no staging table: the
database only makes one transaction of many blobs durable.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import Any, ClassVar, TypeVar

from dptext_etl import telemetry
from dptext_etl.errors import LedgerError
from dptext_etl.ledger.storage.schema import TABLES, VERSION, steps

PREFIX = "sqlite:///"
POSTGRES = ("postgresql://", "postgres://")
REFERENCE = "env:"
NOTHING = "nothing was written; the same call can be repeated"


T = TypeVar("T")


class MissingLedgerError(LedgerError):
    """There is no ledger to read."""


class NotAloneError(Exception):
    """One of several writers is about to change shared state; it must begin again, alone."""


class Store(ABC):
    """An open database of a ledger.

    A writer is alone, or, where the store has lanes, one of several: then each has a lane of the journal, and
    anyone who writes to the same scope or release waits for its turn there.

    Attributes:
        name: The name of the ledger in messages; it holds no password.
        place: The same, from whatever folder it is opened.
        version: The schema that the ledger had when it was opened.
        key_file: Where the id key lies if none is named; None where it must be named.
        read_only: Whether the store refuses to write.
        makes: The version of the ledgers that this kind of store makes, and to which it brings older ones.
        lane: The lane of the journal that the running transaction writes to; 0 where it is alone.
    """

    makes: ClassVar[int] = TABLES

    name: str
    place: str
    version: int
    key_file: Path | None
    read_only: bool

    def __init__(self, *, read_only: bool, timeout: float) -> None:
        self.read_only = read_only
        self._timeout = timeout
        self._lock = RLock()
        self._depth = 0
        self.lane = 0

    @property
    def lanes(self) -> bool:
        """Whether several writers may write in parallel."""
        return False

    def write(self, rows: int, work: Callable[[], T]) -> T:
        """Do something in one transaction: next to other writers if that is possible, else alone."""
        if self.lanes:
            with suppress(NotAloneError), self.transaction(rows, beside=True):
                return work()
        with self.transaction(rows):
            return work()

    def require_alone(self) -> None:
        """Refuse to change what writers in other lanes rely on."""
        if self.lane:
            raise NotAloneError

    def turn(self, *names: str) -> None:  # noqa: B027  (a store of one lane waits for no one)
        """Wait until no other writer holds one of these names, and hold them until the transaction ends.

        Anyone who takes several turns takes scopes and releases first, then states. A writer that is alone holds all.
        """

    def take(self, name: str) -> bool:  # noqa: ARG002  (a store of one lane asks no one)
        """Hold a name until the transaction ends if no other writer does; return whether this one holds it."""
        return True

    @contextmanager
    def transaction(self, rows: int = 0, *, beside: bool = False) -> Iterator[None]:
        """Write everything in the block durably, or nothing; no one else writes meanwhile."""
        with self._lock, self._translated():
            if self._depth:
                yield
                return
            with telemetry.waiting("ledger"):
                self._begin_writing(rows, beside=beside)
            self._depth += 1
            try:
                yield
                self._run("commit", ())
            except BaseException:
                self._roll_back()
                raise
            finally:
                self._depth -= 1
                self.lane = 0

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read one consistent state in the block, whatever others write meanwhile."""
        with self._lock, self._translated():
            if self._depth:
                yield
                return
            self._begin_reading()
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
            found: list[tuple[Any, ...]] = self._run(sql, tuple(values)).fetchall()
            return found

    def columns(self) -> dict[str, list[str]]:
        """Return the columns of every table of the ledger, in their order."""
        found: dict[str, list[str]] = {}
        for table, column in self._named_columns():
            found.setdefault(table, []).append(column)
        return found

    @abstractmethod
    def _begin_writing(self, rows: int, *, beside: bool) -> None:
        """Begin a transaction when it is this writer's turn (see `transaction`)."""

    @abstractmethod
    def _begin_reading(self) -> None:
        """Begin a transaction that sees one state."""

    @abstractmethod
    def _roll_back(self) -> None:
        """End a transaction, if there is one, and drop what it wrote."""

    @abstractmethod
    def _run(self, sql: str, values: tuple[Any, ...]) -> Any:
        """Run one statement and return the cursor of the database."""

    @abstractmethod
    def _named_columns(self) -> list[tuple[Any, ...]]:
        """Return (table, column) of every column, in the order of tables and columns."""

    @abstractmethod
    def _translated(self) -> AbstractContextManager[None]:
        """Translate an error of the database and drop the original, which may quote a value."""

    def row(self, sql: str, values: Iterable[Any] = ()) -> tuple[Any, ...] | None:
        """Run one query and return its first row."""
        found = self.rows(sql, values)
        return found[0] if found else None

    def migrate(self) -> None:
        """Bring the tables to the schema of this version. Call it inside a transaction."""
        for statement in steps(self.version, self.makes):
            self.execute(statement)

    @abstractmethod
    def mark_lanes(self) -> None:
        """Note that the journal has lanes: versions of the library that do not know them must not write."""

    def require_version(self, *, migrate: bool) -> None:
        """Refuse a schema that this version of the library does not write.

        A ledger without lanes is written as it is, one writer at a time, so that older versions can go on with it.
        """
        if self.version > VERSION:
            msg = f"{self.name} has ledger schema {self.version}; this version of dptext-etl knows {VERSION}"
            raise LedgerError(msg, "upgrade dptext-etl; nothing was read or changed")
        if self.version < TABLES and (not migrate or self.read_only):
            msg = f"{self.name} has ledger schema {self.version}; this version of dptext-etl writes {self.makes}"
            raise LedgerError(msg, "`dptext ledger migrate` changes it, once and for all writers; take a copy first")

    def fold_log(self) -> None:  # noqa: B027  (a server does so by itself)
        """Do now what `close` would do with a log of what was written; others may read and write meanwhile."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""


def open_store(
    url: str, *, create: bool = True, read_only: bool = False, timeout: float = 60.0, migrate: bool = False
) -> Store:
    """Open the database that a ledger URL names."""
    url = resolved(url)
    if url.startswith(POSTGRES):
        from dptext_etl.ledger.storage.postgres import PostgresStore

        return PostgresStore(url, create=create, read_only=read_only, timeout=timeout, migrate=migrate)
    from dptext_etl.ledger.storage.sqlite import SqliteStore

    return SqliteStore(location(url), create=create, read_only=read_only, timeout=timeout, migrate=migrate)


def resolved(url: str) -> str:
    """Return the URL behind "env:NAME"; any other text is the URL."""
    if not url.startswith(REFERENCE):
        return url
    name = url.removeprefix(REFERENCE)
    found = os.environ.get(name)
    if not found:
        message = f"the environment variable {name} must hold the URL of the ledger, and it is not set here"
        raise LedgerError(message, "set it where this process starts; Spark's executors take spark.executorEnv." + name)
    return found


def newest(url: str) -> int:
    """Return the version to which `migrate` brings a ledger at a URL: lanes are for servers alone."""
    return VERSION if resolved(url).startswith(POSTGRES) else TABLES


def there_is(url: str) -> bool:
    """Return whether a ledger exists at a URL. Makes none."""
    url = resolved(url)
    if url.startswith(POSTGRES):
        from dptext_etl.ledger.storage import postgres

        return postgres.there_is(url)
    from dptext_etl.ledger.storage import sqlite

    return sqlite.there_is(location(url))


def require_writable(url: str) -> None:
    """Refuse a ledger file that cannot be made or written to; nothing is made. Of a server it asks nothing."""
    if resolved(url).startswith(POSTGRES):
        return
    path = location(resolved(url))
    if not path.parent.is_dir() or path.is_dir():
        why = "it is a folder" if path.is_dir() else "there is no such folder"
        raise LedgerError(f"a ledger cannot be made at {path}: {why}", "the folder must exist and be writable")
    if not os.access(path.parent, os.W_OK | os.X_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise LedgerError(f"the ledger {path} cannot be written to", "file and folder must be writable")


def location(url: str) -> Path:
    """Return the file that a ledger URL names."""
    if url.startswith(PREFIX):
        url = url.removeprefix(PREFIX)
    elif "://" in url or not url:
        hint = 'write "sqlite:///ledger.db", a path, or "postgresql://user@host/database"'
        raise LedgerError("a ledger is kept in SQLite or PostgreSQL; this URL names neither", hint)
    return Path(url)
