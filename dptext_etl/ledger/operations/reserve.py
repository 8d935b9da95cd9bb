"""Reserve the worst case of a batch, durably, before any of its texts is scored.

Specification: docs/spec/privacy.md#reserve-first.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dptext_etl.column import INFINITE
from dptext_etl.delta_policy import refuse_more_records
from dptext_etl.errors import BudgetError, DPTextError, LedgerError
from dptext_etl.guarantee import PURE
from dptext_etl.ledger.operations.attribution import require_same_units
from dptext_etl.ledger.operations.balances import admit, balances, charged
from dptext_etl.ledger.operations.batch import BatchIds, ColumnCharge
from dptext_etl.ledger.operations.book import Book
from dptext_etl.ledger.operations.erasure import are_forgotten
from dptext_etl.ledger.operations.foresight import Foresight, Sealed
from dptext_etl.ledger.operations.freezing import refuse_frozen_group
from dptext_etl.ledger.operations.scopes import Pinned, components
from dptext_etl.ledger.storage.keyed_ids import Index
from dptext_etl.ledger.storage.parts import Part, Values
from dptext_etl.ledger.storage.records import Held
from dptext_etl.ledger.storage.segments import LAYOUTS, seal
from dptext_etl.ledger.terms import AGAIN, NEW, U8, Event, Mask, Outcome, ReleaseRef, Scope, State

CHARGED = (Outcome.RESERVED, Outcome.AGAIN)
"""Outcomes of records that are charged."""


class Request(NamedTuple):
    """A request to the ledger: who asks, where spends add up, for which records, and whether changed texts count."""

    book: Book
    job: str
    scope: Scope
    pinned: Pinned
    batch: BatchIds
    again: bool = False


class Judged(NamedTuple):
    """What the ledger answers to a batch, before it writes.

    Attributes:
        seen: What it knew of the batch, per column.
        outcome: An `Outcome` per record, shape (records,).
        totals: What each record takes from the cap, shape (components, records); None without a cap.
    """

    seen: list[Seen]
    outcome: U8
    totals: Values | None

    def rows(self, item: Seen) -> Index:
        """Return the rows of a column that are charged."""
        return np.flatnonzero(item.fresh & np.isin(self.outcome, CHARGED))


class Seen(NamedTuple):
    """What the ledger knew of a batch in one column before the request, shape (records,).

    `fresh` is what is to be charged: records that the release does not hold, and changed ones where these count.
    """

    column: ColumnCharge
    held: Held
    fresh: Mask
    changed: Mask
    committed: Mask

    @property
    def name(self) -> str:
        """Names the column in the batch."""
        return f"{self.column.ref.id}/{self.column.ref.nonce}"

    @property
    def pending(self) -> Mask:
        """Where the same text is reserved and not yet committed."""
        return ~(self.fresh | self.changed | self.committed)


def reserve(request: Request, columns: list[ColumnCharge], foresight: Foresight, *, refuse: bool) -> U8:
    """Judge a batch and charge what is new and fits. Call it inside a transaction."""
    book, releases = request.book, [column.ref for column in columns]
    runs = None if request.pinned.measure is None else balances(book.store, book.cache, request.pinned)
    foresight.send(book.segments, runs)
    book.store.turn(f"next/{book.scopes.turn(request.pinned)}")  # one at a time looks at what the one before wrote
    foresight.catch_up()
    book.store.turn(book.scopes.turn(request.pinned), *(book.records.turn(ref) for ref in releases))
    seen, outcome, _ = judged = judge(request, columns, foresight)
    over = int((outcome == Outcome.OVER_CAP).sum())
    if refuse and over:
        msg = f"{over} of {request.batch.size} records would exceed the cap of {request.scope}; none was charged"
        hint = '`dptext ledger remaining` shows balances; on_cap = "quarantine" leaves such records out'
        raise BudgetError(msg, hint, {"records": over, "of": request.batch.size, "scope": str(request.scope)})
    if runs is not None:
        foresight.charge(runs, *_taken(request, judged), lambda: _charged(request, judged))
    attached: list[int] = []
    for item in seen:
        _write(request, item, judged.rows(item), foresight)
        attached += _replay(request, item, np.isin(outcome, _TAKEN))
    foresight.clear(book.segments)
    book.store.turn(*(book.records.turn_of_states(ref) for ref in releases))
    for batch in attached:
        book.store.execute("update batch set attached=1 where seq=?", (batch,))
    for item in seen:
        _count(request, item, judged.rows(item))
        book.records.remember(item.column.ref, foresight.records(item.column.ref))
    return outcome


_TAKEN = (*CHARGED, Outcome.PENDING, Outcome.COMMITTED)


def foresee(
    book: Book, job: str, scope: Scope, batch: BatchIds, columns: list[ColumnCharge], *, again: bool = False
) -> Foresight:
    """Make a reservation ready where other writers may go on meanwhile; what is refused, is refused later."""
    if book.store.lanes:
        with suppress(DPTextError), book.store.snapshot():
            book.forget_dead_runs()
            pinned = book.scopes.find(scope)
            if pinned is not None:
                return _foreseen(Request(book, job, scope, pinned, batch, again), columns)
    return Foresight()


def _foreseen(request: Request, columns: list[ColumnCharge]) -> Foresight:
    foresight = Foresight()
    judged = judge(request, columns, foresight)
    for item in judged.seen:
        rows = judged.rows(item)
        if len(rows):
            foresight.prepare(item.name, _sealed(request.batch, item.column, rows))
    if judged.totals is not None:
        foresight.prepare_charge(*_taken(request, judged), _charged(request, judged))
    return foresight


def _taken(request: Request, judged: Judged) -> tuple[Index, Values]:
    """Return the rows that take from the cap, in ascending order of their units, and what each takes."""
    mask, order = np.isin(judged.outcome, CHARGED) & ~request.batch.canary, request.batch.unit_order
    rows = order[mask[order]]
    empty = np.zeros((0, len(rows)), np.int64)
    return rows, empty if judged.totals is None else judged.totals[:, rows]


def _charged(request: Request, judged: Judged) -> Part:
    rows, taken = _taken(request, judged)
    return charged(request.batch.unit_ids.take(rows), taken, ordered=True)


def judge(request: Request, columns: list[ColumnCharge], foresight: Foresight) -> Judged:
    """Return what the ledger answers to a batch now; it writes nothing."""
    book, batch, pinned = request.book, request.batch, request.pinned
    seen, outcome = compare(request, columns, foresight)
    if pinned.measure is None:
        return Judged(seen, outcome, None)
    asking = np.isin(outcome, CHARGED) & ~batch.canary
    totals = _totals(seen, pinned, asking)
    runs, recall = balances(book.store, book.cache, pinned), foresight.recall("balance", asking.tobytes())
    fits = admit(runs, pinned.limits, batch.unit_ids, batch.unit_order, totals, asking, recall)
    outcome[asking & ~fits] = Outcome.OVER_CAP
    return Judged(seen, outcome, totals)


def compare(request: Request, columns: list[ColumnCharge], foresight: Foresight) -> tuple[list[Seen], U8]:
    """Return what the ledger knows of a batch, and what it answers without a look at the cap; it writes nothing."""
    book, batch = request.book, request.batch
    seen = [_look(request, column, foresight) for column in columns]
    refuse_frozen_group(book.store, request.scope.group)
    require_same_units(book, request.scope, batch, {item.column.ref: item.held for item in seen}, foresight)
    outcome = _compared(seen, batch.size, again=request.again)
    outcome[are_forgotten(book, request.scope.dataset, batch.record_ids)] = Outcome.FORGOTTEN
    return seen, outcome


def _look(request: Request, column: ColumnCharge, foresight: Foresight) -> Seen:
    ref, batch = column.ref, request.batch
    if ref.id != NEW:
        request.book.releases.require_usable(ref)
    held = request.book.records.held(ref, batch.record_ids, batch.record_order, foresight.records(ref))
    same = held.same(column.identities)
    changed = held.known & ~same
    fresh = ~held.known | changed if request.again else ~held.known
    return Seen(column, held, fresh, changed, same & (held.state == State.COMMITTED))


def _compared(seen: list[Seen], size: int, *, again: bool) -> U8:
    outcome = np.full(size, Outcome.PENDING, np.uint8)
    outcome[np.all([item.committed for item in seen], axis=0)] = Outcome.COMMITTED
    outcome[np.any([item.fresh for item in seen], axis=0)] = Outcome.RESERVED
    outcome[np.any([item.changed for item in seen], axis=0)] = Outcome.AGAIN if again else Outcome.CHANGED
    return outcome


def _totals(seen: list[Seen], pinned: Pinned, asking: Mask) -> Values:
    """Add up what each record takes from the cap over its columns; no amount counts for more than the limit plus 1."""
    totals = np.zeros((len(pinned.limits), len(asking)), np.int64)
    for item in seen:
        taken = item.fresh & asking
        for at, (name, limit) in enumerate(zip(components(pinned), pinned.limits, strict=True)):
            amounts = item.column.spends[name]
            if (amounts[taken] == INFINITE).any():
                msg = f"{item.column.ref} costs an infinite {name}; its scope is capped on {pinned.measure}"
                raise LedgerError(msg, "cap a measure on which the mechanism is finite, in a scope of its own")
            totals[at] += np.where(taken, np.minimum(amounts, limit + 1), 0)
    return totals


def _write(request: Request, item: Seen, rows: Index, foresight: Foresight) -> None:
    """Seal the new rows of a column as a batch; a release with a delta holds no more records than it was stated for."""
    if not len(rows):
        return
    book, batch, column, order = request.book, request.batch, item.column, request.batch.record_order
    bound = book.releases.record_bound(column.ref)
    if bound is not None:
        own = int((~batch.canary[rows]).sum())
        refuse_more_records(book.records.count(column.ref) + own, bound, str(column.ref))
    if len(rows) < batch.size:
        order = _among(order, rows)
    sealed, store = foresight.take(book.segments, item.name, rows, lambda: _sealed(batch, column, rows))
    changed = int(item.changed[rows].sum())
    said = {**sealed.facts, **({AGAIN: changed} if changed else {})}
    seq = book.journal.append(Event.RESERVE, job=request.job, **_place(request, column.ref), **said)
    store(seq)
    place = (column.ref.id, column.ref.nonce, request.pinned.id)
    book.store.execute(
        "insert into batch values(?,?,?,?,?,?,?,0,?)",
        (seq, *place, request.job, len(rows), len(rows), bytes(len(rows))),
    )
    book.records.reserve(column.ref, seq, batch.record_ids.take(rows), order, column.identities.take(rows))


def seal_ahead(batch: BatchIds, column: ColumnCharge) -> ColumnCharge:
    """Encode all rows of a column, as they will be if all of them are new."""
    return column._replace(sealed=_sealed(batch, column, np.arange(batch.size)))


def _sealed(batch: BatchIds, column: ColumnCharge, rows: Index) -> Sealed:
    """Encode the new rows of a column, unless that was done."""
    if column.sealed is not None and len(rows) == batch.size:
        return column.sealed
    values: dict[str, npt.NDArray[Any]] = {
        "record": batch.records,
        "unit": batch.units,
        "idem_key": column.idem_keys,
        "canary": batch.canary.astype(np.int64),
        "n_worst": column.n_worst,
        **column.spends,
    }
    if len(rows) < batch.size:
        values = {name: value[rows] for name, value in values.items()}
    return Sealed(rows, *seal(LAYOUTS[Event.RESERVE], values))


def _place(request: Request, ref: ReleaseRef) -> dict[str, Any]:
    scope = request.scope
    where = {"scope": request.pinned.id, "name": scope.name, "period": scope.period, "unit": scope.unit}
    return {"release": ref.id, "nonce": ref.nonce, "dataset": scope.dataset, **where}


def _count(request: Request, item: Seen, rows: Index) -> None:
    if not len(rows):
        return
    store, ref = request.book.store, item.column.ref
    most, canaries = int(item.column.spends[PURE][rows].max()), int(request.batch.canary[rows].sum())
    store.execute("insert or ignore into tally(release, nonce) values(?,?)", (ref.id, ref.nonce))
    highest = None if most == INFINITE else most
    store.execute(
        "update tally set records = records + ?, canaries = canaries + ?,"
        " max_pure = case when max_pure < ? then ? when max_pure >= ? then max_pure end where release=? and nonce=?",
        (len(rows), canaries, highest, highest, highest, ref.id, ref.nonce),
    )


def _among(order: Index, rows: Index) -> Index:
    """Return the order of some rows among themselves, from the order of all rows."""
    place = np.full(len(order), -1, np.intp)
    place[rows] = np.arange(len(rows))
    placed = place[order]
    return placed[placed >= 0]


def _replay(request: Request, item: Seen, counted: Mask) -> list[int]:
    """Record that texts which the release holds were asked for again; they cost 0. Return the batches of other jobs."""
    pending, committed = item.pending & counted, item.committed & counted
    if not (pending.any() or committed.any()):
        return []
    store, attached = request.book.store, []
    for batch, _ in item.held.places.take(pending).groups():
        if store.row("select 1 from batch where seq=? and job<>?", (batch, request.job)) is not None:
            attached.append(batch)
    ref = item.column.ref
    counts = {"pending": int(pending.sum()), "committed": int(committed.sum()), "attached": attached}
    request.book.journal.append(Event.REPLAY, job=request.job, release=ref.id, nonce=ref.nonce, **counts)
    return attached
