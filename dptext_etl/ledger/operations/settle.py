"""End reservations that were never computed: expire them and keep the charge, or abort them and give it back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dptext_etl.column import INFINITE
from dptext_etl.errors import LedgerError
from dptext_etl.ledger.operations.balances import balances, charged
from dptext_etl.ledger.operations.book import Book
from dptext_etl.ledger.operations.scopes import LARGEST, Pinned, components
from dptext_etl.ledger.storage.keyed_ids import Index, keyed_ids
from dptext_etl.ledger.storage.parts import Part
from dptext_etl.ledger.storage.records import Places
from dptext_etl.ledger.storage.segments import LAYOUTS, seal
from dptext_etl.ledger.terms import AGAIN, U8, Event, Mask, State


class Reserved(NamedTuple):
    """A reserved batch in the ledger."""

    seq: int
    release: int
    nonce: int
    scope: int
    attached: int
    states: U8


def expire(book: Book, job: str, reason: str | None) -> int:
    """Turn the open reservations of a job into permanent charges, and return their number of records."""
    moved = 0
    for batch in _batches(book, job):
        rows = np.flatnonzero(batch.states == State.RESERVED)
        if len(rows):
            _move(book, job, batch, Event.EXPIRE, rows, reason)
            moved += len(rows)
    return moved


def abort(book: Book, job: str, reason: str | None) -> int:
    """Give back the open reservations of a job that never computed, and return their number of records."""
    batches = _batches(book, job)
    if any((batch.states == State.COMMITTED).any() for batch in batches):
        raise LedgerError("the job has committed records: its computation has started", "expire it: charges stay")
    if any(batch.attached for batch in batches):
        raise LedgerError("another job relies on the reservations of this one", "expire it: charges stay")
    pinned = book.releases.pins()
    if any((batch.states == State.RESERVED).any() and batch.seq < pinned.get(batch[1:3], 0) for batch in batches):
        msg = "a table was pinned over the reservations of this job, and draws from it may have been seen"
        raise LedgerError(msg, "expire it: charges stay; or run the same table again, which finishes it at no cost")
    moved = 0
    for batch in batches:
        rows = np.flatnonzero(batch.states == State.RESERVED)
        if len(rows) and book.journal.facts(batch.seq).get(AGAIN):
            _move(book, job, batch, Event.EXPIRE, rows, reason)  # aborted, it would hide the texts before it
        elif len(rows):
            _move(book, job, batch, Event.ABORT, rows, reason)
            _refund(book, batch, rows)
            moved += len(rows)
    return moved


def rebuild(book: Book, pinned: Pinned) -> None:
    """Add up what was charged in a scope before it had a cap."""
    runs = balances(book.store, book.cache, pinned)
    for part in _charged_before(book, pinned):
        runs.insert(part)


def require_finite(book: Book, pinned: Pinned) -> None:
    """Refuse a cap of a scope whose charges no balance of its measure can hold; nothing is written."""
    for _ in _charged_before(book, pinned):
        pass


def _charged_before(book: Book, pinned: Pinned) -> Iterator[Part]:
    for (seq,) in book.store.rows("select seq from batch where scope=? order by seq", (pinned.id,)):
        yield _amounts(book, seq, pinned, book.records.states(seq) != State.ABORTED, 1)


def _batches(book: Book, job: str) -> list[Reserved]:
    found = book.store.rows(
        "select seq, release, nonce, scope, attached, state from batch where job=? order by seq", (job,)
    )
    return [Reserved(row[0], row[1], row[2], row[3], row[4], np.frombuffer(row[5], np.uint8)) for row in found]


def _move(  # noqa: PLR0917
    book: Book, job: str, batch: Reserved, kind: Event, rows: Index, reason: str | None
) -> None:
    state, column = _ENDS[kind]
    places = Places(np.full(len(rows), batch.seq, np.int64), rows.astype(np.int64))
    facts, blobs = seal(LAYOUTS[kind], {"batch": places.batch, "row": places.row})
    facts |= {} if reason is None else {"reason": reason}
    seq = book.journal.append(kind, job=job, release=batch.release, nonce=batch.nonce, **facts)
    book.segments.write(seq, blobs)
    book.records.move(places, state)
    book.store.execute(
        f"update tally set {column} = {column} + ? where release=? and nonce=?",  # noqa: S608
        (len(rows), batch.release, batch.nonce),
    )


_ENDS = {Event.EXPIRE: (State.EXPIRED, "expired"), Event.ABORT: (State.ABORTED, "aborted")}


def _refund(book: Book, batch: Reserved, rows: Index) -> None:
    pinned = book.scopes.by_id(batch.scope)
    if pinned.measure is None:
        return
    chosen = np.zeros(len(batch.states), np.bool_)
    chosen[rows] = True
    balances(book.store, book.cache, pinned).insert(_amounts(book, batch.seq, pinned, chosen, -1))


def _amounts(book: Book, seq: int, pinned: Pinned, chosen: Mask, sign: int) -> Part:
    """Return the amounts of a batch's rows against the cap of their scope, per unit, times `sign` (1 or -1)."""
    names = components(pinned)
    columns = book.segments.read(seq, book.journal.facts(seq), ["unit", "canary", *names])
    rows = chosen & (columns["canary"] == 0)
    amounts = np.stack([columns[name][rows] for name in names])
    if (amounts >= LARGEST).any():
        endless = "infinite" if (amounts == INFINITE).any() else "too large"
        msg = f"the scope holds charges that are {endless} on {pinned.measure}, made before it had a cap"
        raise LedgerError(msg, "declare the cap in a new period")
    return charged(keyed_ids(columns["unit"][rows]), sign * amounts)
