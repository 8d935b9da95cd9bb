"""Copy a ledger while others write: one consistent state of it, from either kind of store to either kind.

The copy has the same name, journal and head as the ledger at one moment, and no id key. Writing to it instead of the
ledger means to go on with an old copy (docs/spec/privacy.md#lost-ledger).
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from dptext_etl.errors import LedgerError
from dptext_etl.files import flush
from dptext_etl.ledger.storage.journal import Journal
from dptext_etl.ledger.storage.sqlite import SqliteStore
from dptext_etl.ledger.storage.store import POSTGRES, Store, ledger_exists, open_store, resolve_url, sqlite_path
from dptext_etl.ledger.types import Anchor

_LARGE = {"event": ("seq",), "segment": ("seq", "name"), "batch": ("seq",)}
"""Tables that are copied row by row, by these keys; the others fit into memory."""
_TAKEN = "there is something at the place of the copy already"
_OTHER_SCHEMA = "name another schema with ?schema=NAME"
_OTHER_FILE = "name a file that does not exist"


def copy(source: Store, to: str) -> Anchor:
    """Copy a ledger to a place where there is none."""
    to = resolve_url(to)
    if not to.startswith(POSTGRES):
        return _copy_to_file(source, sqlite_path(to))
    if ledger_exists(to):
        raise LedgerError(_TAKEN, _OTHER_SCHEMA)
    target = open_store(to)
    try:
        with target.transaction():
            if target.meta("ledger_id") is not None:
                raise LedgerError(_TAKEN, _OTHER_SCHEMA)
            _fill(source, target)
        return _anchor(target)
    finally:
        target.close()


def _copy_to_file(source: Store, path: Path) -> Anchor:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    problem = hint = None
    if path.exists():
        raise LedgerError(_TAKEN, _OTHER_FILE)
    try:
        anchor = _draft(source, draft)
        flush(draft)
        os.link(draft, path)
        flush(path.parent)
    except FileExistsError:
        problem, hint = _TAKEN, _OTHER_FILE
    except OSError as exc:
        problem, hint = f"the copy cannot be written ({exc.strerror})", "the folder must have room"
    finally:
        for left in path.parent.glob(f"{draft.name}*"):
            left.unlink()
    if problem is not None:
        raise LedgerError(problem, hint)
    return anchor


def _draft(source: Store, draft: Path) -> Anchor:
    target = SqliteStore(draft)
    try:
        if isinstance(source, SqliteStore):
            source.copy_pages(target)
        else:
            with target.transaction():
                _fill(source, target)
        return _anchor(target)
    finally:
        target.close()


def _anchor(store: Store) -> Anchor:
    return Journal(store, store.meta("ledger_id") or "", "").anchor()


def _fill(source: Store, target: Store) -> None:
    """Copy the rows of all tables, from one snapshot; the target knows its schema, which is the same."""
    with source.snapshot():
        for table, names in source.columns().items():
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
