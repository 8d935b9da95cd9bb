"""Copy a ledger while others write: one consistent state of it, from either kind of store to either kind.

The copy is the ledger as it was at one moment: same name, same journal, same head. It holds no id key. Anyone who goes
on with it goes on with an old copy (docs/spec/privacy.md#lost-ledger).
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from dptext_etl.errors import LedgerError
from dptext_etl.files import flush
from dptext_etl.ledger.storage.journal import HEAD, Journal
from dptext_etl.ledger.storage.sqlite import SqliteStore
from dptext_etl.ledger.storage.store import POSTGRES, Store, location, open_store, resolved, there_is
from dptext_etl.ledger.terms import Anchor

_LARGE = {
    "event": ("seq",),
    "segment": ("seq", "name"),
    "batch": ("seq",),
    "run_part": ("run", "part", "piece"),
}
"""Tables that are copied row by row, by these keys; the others fit into memory."""
_TAKEN = "there is something at the place of the copy already"
_ELSEWHERE = "name a file that does not exist"


def copy(source: Store, to: str) -> Anchor:
    """Copy a ledger to a place where there is none."""
    to = resolved(to)
    if to.startswith(POSTGRES):
        if there_is(to):
            raise LedgerError(_TAKEN, "name another schema with ?schema=NAME")
        target = open_store(to)
        try:
            with target.transaction():
                if target.row("select 1 from meta where name='ledger_id'") is not None:
                    raise LedgerError(_TAKEN, "name another schema with ?schema=NAME")
                _fill(source, target)
            return _head(target)
        finally:
            target.close()
    return _copy_to_file(source, location(to))


def _copy_to_file(source: Store, path: Path) -> Anchor:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    problem = hint = None
    if path.exists():
        raise LedgerError(_TAKEN, _ELSEWHERE)
    try:
        head = _draft(source, draft)
        flush(draft)
        os.link(draft, path)
        flush(path.parent)
    except FileExistsError:
        problem, hint = _TAKEN, _ELSEWHERE
    except OSError as exc:
        problem, hint = f"the copy cannot be written ({exc.strerror})", "the folder must have room"
    finally:
        for left in path.parent.glob(f"{draft.name}*"):
            left.unlink()
    if problem is not None:
        raise LedgerError(problem, hint)
    return head


def _draft(source: Store, draft: Path) -> Anchor:
    target = SqliteStore(draft)
    try:
        if isinstance(source, SqliteStore):
            source.copy_pages(target)
        else:
            with target.transaction():
                _fill(source, target)
        return _head(target)
    finally:
        target.close()


def _head(store: Store) -> Anchor:
    (name,) = store.rows("select value from meta where name='ledger_id'")[0]
    return Journal(store, name, "").anchor()


def _fill(source: Store, target: Store) -> None:
    """Copy the rows of all tables, from one snapshot; the target knows its schema, which is the same."""
    with source.snapshot():
        if source.row("select 1 from meta where name like ?", (f"{HEAD}/%",)) is not None:
            target.mark_lanes()
        for table, names in source.columns().items():
            listed, marks = ", ".join(names), ", ".join("?" * len(names))
            into = f"insert into {table}({listed}) values({marks})"
            keys = _LARGE.get(table)
            if keys is None:
                found = source.rows(f"select {listed} from {table}")  # noqa: S608
                chosen = [row for row in found if table != "meta" or "schema" not in row]
                for row in chosen:
                    target.execute(into, row)
                continue
            named = " and ".join(f"{key}=?" for key in keys)
            for at in source.rows(f"select {', '.join(keys)} from {table}"):  # noqa: S608
                for row in source.rows(f"select {listed} from {table} where {named}", at):  # noqa: S608
                    target.execute(into, row)
