"""Store a ledger in an SQLite file.

Each write is one `BEGIN IMMEDIATE` transaction that is on disk when it returns (WAL, synchronous=FULL). Only the SQLite
of the standard library opens the file: a second copy of SQLite in one process corrupts it.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Any

from dptext_etl.errors import FullLedgerError, LedgerError, LockedLedgerError, file_failure
from dptext_etl.ledger.storage.store import (
    APPLICATION,
    NOTHING_WRITTEN,
    SCHEMA,
    VERSION,
    MissingLedgerError,
    Store,
)

KEY_SUFFIX = ".id.key"  # the suffix of the id key file next to a ledger, unless another key is given
PAGE_BYTES = 65_536  # batches are blobs of megabytes: large pages write them at twice the speed of small ones
WAL_BYTES = 256 << 20  # the size to which a checkpoint cuts the write-ahead log back


class SqliteStore(Store):
    """One connection to a ledger file. Threads take turns; a forked process opens its own connection."""

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
            failure = file_failure(exc, problem, hint, LedgerError)
        else:
            return
        raise failure

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
        if not self.read_only:
            self._use_log()
            run(f"pragma journal_size_limit={WAL_BYTES}")
        if empty:
            self._make_schema()

    def _use_log(self) -> None:
        """Switch to a write-ahead log; SQLite does not wait for other processes here, so this method does."""
        until = time.monotonic() + self._timeout
        while True:
            try:
                self._connection.execute("pragma journal_mode=wal")
            except sqlite3.OperationalError as exc:
                if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
                time.sleep(0.01)
            else:
                return

    def _make_schema(self) -> None:
        with self.transaction():
            if self._connection.execute("select count(*) from sqlite_schema").fetchone()[0]:
                return  # another process was faster
            for statement in SCHEMA.split(";\n"):
                self._connection.execute(statement)
            self._connection.execute(f"pragma application_id={APPLICATION}")
            self._connection.execute(f"pragma user_version={VERSION}")

    def _begin_writing(self, rows: int, *, shared: bool) -> None:  # noqa: ARG002
        # The right to write comes before the first read, so no other write comes between judgment and charge.
        self._run("begin immediate", ())

    def _begin_reading(self) -> None:
        self._run("begin", ())

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
