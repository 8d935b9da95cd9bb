"""Open the store that the URL of a ledger names, and copy a ledger to another one while others write.

A copy has the same name, journal and head as the ledger at one moment, and no id key. Writing to it instead of the
ledger means to continue with an old copy (docs/spec/privacy.md#lost-ledger).
"""

from __future__ import annotations

import os
from contextlib import closing

from dptext_etl import files
from dptext_etl.errors import DPTextError, LedgerError, file_failure
from dptext_etl.files import flush
from dptext_etl.ledger.storage.journal import Journal
from dptext_etl.ledger.storage.store import (
    COLUMNS,
    POSTGRES,
    MissingLedgerError,
    SqliteStore,
    Store,
    resolve_url,
    sqlite_path,
)
from dptext_etl.ledger.types import Anchor

_LARGE = {"event": ("seq",), "segment": ("seq", "name")}
"""Tables that are copied row by row, by these keys; `meta` fits into memory."""
_TAKEN = "there is something at the place of the copy already"
_OTHER_SCHEMA = "name another schema with ?schema=NAME"
_OTHER_FILE = "name a file that does not exist"


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


def copy(source: Store, to: str) -> Anchor:
    """Copy a ledger to a place where there is none."""
    to = resolve_url(to)
    if to.startswith(POSTGRES):
        with closing(open_store(to)) as target:
            return _copy(source, target)
    path = sqlite_path(to)
    failure: DPTextError | None = None
    if path.exists():
        raise LedgerError(_TAKEN, _OTHER_FILE)
    try:
        with files.temporary_folder(path.absolute().parent) as drafts:
            draft = drafts / path.name
            with closing(SqliteStore(draft)) as target:
                anchor = _copy(source, target)
            flush(draft)
            os.link(draft, path)
            flush(path.parent)
    except FileExistsError:
        failure = LedgerError(_TAKEN, _OTHER_FILE)
    except OSError as exc:
        hint = "the folder must exist and have room"
        failure = file_failure(exc, "the copy cannot be written", hint, LedgerError)
    if failure is not None:
        raise failure
    return anchor


def _copy(source: Store, target: Store) -> Anchor:
    if isinstance(source, SqliteStore) and isinstance(target, SqliteStore):
        source.copy_pages(target)
    else:
        with target.transaction():
            if target.meta("ledger_id") is not None:
                raise LedgerError(_TAKEN, _OTHER_SCHEMA)
            _fill(source, target)
    return Journal(target, target.meta("ledger_id") or "", "").anchor()


def _fill(source: Store, target: Store) -> None:
    """Copy the rows of all tables, from one snapshot; the target knows its schema, which is the same."""
    with source.snapshot():
        for table, names in COLUMNS.items():
            columns, marks = ", ".join(names), ", ".join("?" * len(names))
            select, insert = f"select {columns} from {table}", f"insert into {table}({columns}) values({marks})"  # noqa: S608
            keys = _LARGE.get(table)
            if keys is None:
                for row in source.rows(select):
                    if table != "meta" or "schema" not in row:
                        target.execute(insert, row)
                continue
            where = " and ".join(f"{key}=?" for key in keys)
            for key in source.rows(f"select {', '.join(keys)} from {table}"):  # noqa: S608
                for row in source.rows(f"{select} where {where}", key):
                    target.execute(insert, row)
