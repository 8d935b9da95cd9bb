"""Open the store that the URL of a ledger names: SQLite or PostgreSQL, whose libraries are imported when used."""

from __future__ import annotations

import os

from dptext_etl.errors import LedgerError
from dptext_etl.ledger.storage.sqlite import SqliteStore
from dptext_etl.ledger.storage.store import POSTGRES, MissingLedgerError, Store, resolve_url, sqlite_path


def open_store(url: str, *, create: bool = True, read_only: bool = False, timeout: float = 60.0) -> Store:
    url = resolve_url(url)
    if url.startswith(POSTGRES):
        from dptext_etl.ledger.storage.postgres import PostgresStore

        return PostgresStore(url, create=create, read_only=read_only, timeout=timeout)
    return SqliteStore(sqlite_path(url), create=create, read_only=read_only, timeout=timeout)


def ledger_exists(url: str) -> bool:
    """Return whether there is a ledger, or what opening it refuses; a full disk leaves empty files."""
    try:
        open_store(url, create=False, read_only=True).close()
    except MissingLedgerError:
        return False
    except LedgerError as error:
        if error.transient:  # an outage says nothing about the ledger
            raise
    return True


def require_writable(url: str) -> None:
    """Refuse a ledger that cannot be made or written to by this user; nothing is made."""
    if (url := resolve_url(url)).startswith(POSTGRES):
        from dptext_etl.ledger.storage import postgres

        postgres.require_writable(url)
        return
    path = sqlite_path(url)
    if not path.parent.is_dir() or path.is_dir():
        why = "it is a folder" if path.is_dir() else "there is no such folder"
        raise LedgerError(f"a ledger cannot be made at {path}: {why}", "the folder must exist and be writable")
    if not os.access(path.parent, os.W_OK | os.X_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise LedgerError(f"the ledger {path} cannot be written to", "file and folder must be writable")
