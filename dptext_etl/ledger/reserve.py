"""Reserve the worst case of a batch, durably, before a text is scored (docs/spec/privacy.md#reserve-first)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dptext_etl.column import INFINITE
from dptext_etl.errors import BudgetError, DPTextError, LedgerError
from dptext_etl.guarantee import PURE, refuse_more_records
from dptext_etl.ledger.batch import BatchIds, ColumnCharge, Preparation, seal_rows
from dptext_etl.ledger.caps import Pinned, admit
from dptext_etl.ledger.database import Database
from dptext_etl.ledger.identities import are_forgotten, refuse_other_units, with_other_units
from dptext_etl.ledger.releases import refuse_frozen
from dptext_etl.ledger.storage.hashed_ids import Fold, Index, Part, Values, fold
from dptext_etl.ledger.storage.records import Holdings, look_up_in_order
from dptext_etl.ledger.types import AGAIN, I64, NEW, U8, Event, Mask, Outcome, ReleaseRef, Scope, State

CHARGED = (Outcome.RESERVED, Outcome.AGAIN)
"""Outcomes of records that are charged."""
_RELEASED = (*CHARGED, Outcome.PENDING, Outcome.COMMITTED)


class Request(NamedTuple):
    """A request to the ledger: who asks, where spends add up, for which records, and whether changed texts count."""

    db: Database
    job: str
    scope: Scope
    pinned: Pinned
    batch: BatchIds
    columns: list[ColumnCharge]
    again: bool


class ColumnState(NamedTuple):
    """What the ledger knew of a batch in one column before the request, shape (records,).

    `new` is what is to be charged: records that the release does not hold, and changed ones where these count.
    """

    column: ColumnCharge
    holdings: Holdings
    new: Mask
    changed: Mask
    committed: Mask

    @property
    def name(self) -> str:
        """Names the column in the batch."""
        return f"{self.column.ref.id}/{self.column.ref.nonce}"


class Decision(NamedTuple):
    """What the ledger answers to a batch, before it writes."""

    states: list[ColumnState]  # what it knew of the batch, per column
    outcome: U8  # an `Outcome` per record, shape (records,)
    totals: Values | None  # what each record takes from the cap, shape (components, records); None without a cap

    def charged_rows(self, state: ColumnState) -> Index:
        return np.flatnonzero(state.new & np.isin(self.outcome, CHARGED))

    def taken(self, batch: BatchIds) -> tuple[Index, Values]:
        """Return the rows that take from the cap, in ascending order of their units, and what each takes."""
        mask, order = np.isin(self.outcome, CHARGED) & ~batch.canary, batch.unit_order
        rows = order[mask[order]]
        return rows, np.zeros((0, len(rows)), np.int64) if self.totals is None else self.totals[:, rows]


class Preview(NamedTuple):
    """What the ledger would answer to a batch."""

    outcome: U8  # an `Outcome` per record as if there was no cap, shape (records,)
    charged: Mask  # whether a column of a record would be charged, shape (columns, records)
    changes_committed: Mask  # whether every changed column of a record holds a committed text, shape (records,)
    units: npt.NDArray[np.uint64]  # hashes of the units, shape (records,)
    used: I64  # what the units have used by component of the cap, shape (components, records)
    moved: Mask  # whether a record was charged to another unit before, so that `reserve` refuses it, shape (records,)


def reserve(request: Request, prepared: Preparation, *, refuse: bool) -> U8:
    """Judge a batch and charge what is new and fits. Call it inside a transaction."""
    db, batch, refs = request.db, request.batch, [column.ref for column in request.columns]
    balances = None if request.pinned.measure is None else db.scopes.balances(request.pinned)
    prepared.stage(db.segments, balances)
    lock = db.scopes.lock_name(request.pinned)
    db.store.lock(f"next/{lock}")  # one at a time looks at what the one before wrote
    prepared.catch_up()
    db.store.lock(lock, *map(db.records.lock_name, refs))
    decision = judge(request, prepared)
    over = int((decision.outcome == Outcome.OVER_CAP).sum())
    if refuse and over:
        msg = f"{over} of {batch.size} records would exceed the cap of {request.scope}; none was charged"
        hint = '`dptext ledger remaining` shows balances; on_cap = "quarantine" leaves such records out'
        raise BudgetError(msg, hint, {"records": over, "of": batch.size, "scope": str(request.scope)})
    if balances is not None:
        taken = decision.taken(batch)
        prepared.take_charge(balances, *taken, lambda: _per_unit(batch, *taken))
    attached: list[int] = []
    for state in decision.states:
        _write(request, state, decision.charged_rows(state), prepared)
        attached += _replay(request, state, np.isin(decision.outcome, _RELEASED))
    prepared.discard(db.segments)
    db.store.lock(*map(db.records.states_lock_name, refs))
    for seq in attached:
        db.store.execute("update batch set attached=1 where seq=?", (seq,))
    for state in decision.states:
        _count(request, state, decision.charged_rows(state))
        db.records.remember(state.column.ref, prepared.records_memo(state.column.ref))
    return decision.outcome


def prepare(
    db: Database,
    job: str,
    scope: Scope,
    batch: BatchIds,
    columns: list[ColumnCharge],
    *,
    again: bool,
) -> Preparation:
    """Prepare a reservation where other writers may go on meanwhile; what is refused, is refused later."""
    if db.store.concurrent:
        with suppress(DPTextError), db.store.snapshot():
            db.forget_merged_runs()
            pinned = db.scopes.find(scope)
            if pinned.id != NEW:
                prepared = Preparation()
                decision = judge(Request(db, job, scope, pinned, batch, columns, again), prepared)
                for state in decision.states:
                    rows = decision.charged_rows(state)
                    if len(rows):
                        prepared.sealed[state.name] = seal_rows(batch, state.column, rows)
                taken = decision.taken(batch)
                if decision.totals is not None and len(taken[0]):
                    prepared.charge = (*taken, _per_unit(batch, *taken))
                return prepared
    return Preparation()


def preview(
    db: Database,
    scope: Scope,
    batch: BatchIds,
    columns: list[ColumnCharge],
    *,
    again: bool,
    published: bool,
) -> Preview:
    """Judge a batch without a look at the cap. Call it inside a snapshot.

    What fits a cap depends on all records before, which stand in other batches; a forecast adds them up.
    """
    pinned = db.scopes.find(scope)
    request = Request(db, "", scope, pinned, batch, columns, again)
    prepared = Preparation(in_order=published)
    states, outcome = compare(request, prepared)
    used = np.zeros((len(pinned.components), batch.size), np.int64)
    if not published and pinned.measure is not None:
        order = batch.unit_order
        memo = prepared.balance_memo(np.ones(batch.size, np.bool_))
        used[:, order] = db.scopes.balances(pinned).find(batch.unit_ids.take(order), memo)[1]
    charged = np.stack([state.new & np.isin(outcome, CHARGED) for state in states])
    committed = np.all([~state.changed | (state.holdings.state == State.COMMITTED) for state in states], axis=0)
    return Preview(outcome, charged, committed, batch.unit_ids.hi, used, _moved(request, states, prepared))


def judge(request: Request, prepared: Preparation) -> Decision:
    """Return what the ledger answers to a batch now; it writes nothing."""
    batch, pinned = request.batch, request.pinned
    states, outcome = compare(request, prepared)
    refuse_other_units(request.scope, int(_moved(request, states, prepared).sum()), batch.size)
    if pinned.measure is None:
        return Decision(states, outcome, None)
    asking = np.isin(outcome, CHARGED) & ~batch.canary
    totals = _totals(states, pinned, asking)
    runs = request.db.scopes.balances(pinned)
    memo = prepared.balance_memo(asking.copy())
    fits = admit(runs, pinned.limits, batch.unit_ids, batch.unit_order, totals, asking, memo)
    outcome[asking & ~fits] = Outcome.OVER_CAP
    return Decision(states, outcome, totals)


def compare(request: Request, prepared: Preparation) -> tuple[list[ColumnState], U8]:
    """Return what the ledger knows of a batch, and what it answers without a look at the cap; it writes nothing."""
    db, batch, scope = request.db, request.batch, request.scope
    states = [_look_up(request, column, prepared) for column in request.columns]
    refuse_frozen(db.store, scope.dataset, scope.group)
    outcome = np.full(batch.size, Outcome.PENDING, np.uint8)
    outcome[np.all([state.committed for state in states], axis=0)] = Outcome.COMMITTED
    outcome[np.any([state.new for state in states], axis=0)] = Outcome.RESERVED
    changed = np.any([state.changed for state in states], axis=0)
    outcome[changed] = Outcome.AGAIN if request.again else Outcome.CHANGED
    outcome[are_forgotten(db, scope.dataset, batch.record_ids, batch.unit_ids)] = Outcome.FORGOTTEN
    return states, outcome


def _moved(request: Request, states: list[ColumnState], prepared: Preparation) -> Mask:
    known = {state.column.ref: state.holdings for state in states}
    return with_other_units(request.db, request.scope, request.batch, known, prepared)


def _look_up(request: Request, column: ColumnCharge, prepared: Preparation) -> ColumnState:
    ref, batch = column.ref, request.batch
    if ref.id != NEW:
        request.db.releases.require_usable(ref)
    if prepared.in_order:
        holdings = look_up_in_order(request.db, ref, batch.records)
    else:
        holdings = request.db.records.look_up(ref, batch.record_ids, batch.record_order, prepared.records_memo(ref))
    same = holdings.same_text(column.identities)
    changed = holdings.known & ~same
    new = ~holdings.known | changed if request.again else ~holdings.known
    return ColumnState(column, holdings, new, changed, same & (holdings.state == State.COMMITTED))


def _totals(states: list[ColumnState], pinned: Pinned, asking: Mask) -> Values:
    """Add up what each record takes from the cap over its columns; no amount counts for more than the limit plus 1."""
    totals = np.zeros((len(pinned.limits), len(asking)), np.int64)
    for state in states:
        taken = state.new & asking
        for at, (name, limit) in enumerate(zip(pinned.components, pinned.limits, strict=True)):
            amounts = state.column.spends[name]
            if (amounts[taken] == INFINITE).any():
                msg = f"{state.column.ref} costs an infinite {name}; its scope is capped on {pinned.measure}"
                raise LedgerError(msg, "cap a measure on which the mechanism is finite, in a scope of its own")
            totals[at] += np.where(taken, np.minimum(amounts, limit + 1), 0)
    return totals


def _per_unit(batch: BatchIds, rows: Index, taken: Values) -> Part:
    return fold(batch.unit_ids.take(rows), taken, Fold.SUM, ordered=True)


def _write(request: Request, state: ColumnState, rows: Index, prepared: Preparation) -> None:
    """Seal the new rows of a column as a batch; a release with a delta holds no more records than it was stated for."""
    if not len(rows):
        return
    db, batch, scope, column = request.db, request.batch, request.scope, state.column
    ref, order = column.ref, batch.record_order
    bound = db.releases.record_bound(ref)
    if bound is not None:
        refuse_more_records(db.records.count(ref) + int((~batch.canary[rows]).sum()), bound, str(ref))
    if len(rows) < batch.size:
        order = _order_among(order, rows)
    changed = int(state.changed[rows].sum())
    facts: dict[str, Any] = {"job": request.job, "release": ref.id, "nonce": ref.nonce, "dataset": scope.dataset}
    facts |= {"scope": request.pinned.id, "name": scope.name, "period": scope.period, "unit": scope.unit}
    facts |= {AGAIN: changed} if changed else {}
    ready = prepared.take_rows(state.name, rows)
    if ready is None:
        sealed = seal_rows(batch, column, rows)
        seq = db.segments.append_sealed(Event.RESERVE, sealed.facts, sealed.blobs, **facts)
    else:
        seq = db.segments.append_sealed(Event.RESERVE, ready[0].facts, {}, **facts)
        db.segments.attach(ready[1], seq)
    db.store.execute(
        "insert into batch values(?,?,?,?,?,?,?,0,?)",
        (seq, ref.id, ref.nonce, request.pinned.id, request.job, len(rows), len(rows), bytes(len(rows))),
    )
    db.records.reserve(ref, seq, batch.record_ids.take(rows), order, column.identities.take(rows))


def _order_among(order: Index, rows: Index) -> Index:
    """Return the order of some rows among themselves, from the order of all rows."""
    place = np.full(len(order), -1, np.intp)
    place[rows] = np.arange(len(rows))
    placed = place[order]
    return placed[placed >= 0]


def _replay(request: Request, state: ColumnState, released: Mask) -> list[int]:
    """Record that texts which the release holds were asked for again; they cost 0. Return the batches of other jobs."""
    pending = ~(state.new | state.changed | state.committed) & released
    committed = state.committed & released
    if not (pending.any() or committed.any()):
        return []
    store, ref, attached = request.db.store, state.column.ref, []
    for batch, _ in state.holdings.places.take(pending).groups():
        if store.row("select 1 from batch where seq=? and job<>?", (batch, request.job)) is not None:
            attached.append(batch)
    counts = {"pending": int(pending.sum()), "committed": int(committed.sum()), "attached": attached}
    request.db.journal.append(Event.REPLAY, job=request.job, release=ref.id, nonce=ref.nonce, **counts)
    return attached


def _count(request: Request, state: ColumnState, rows: Index) -> None:
    if not len(rows):
        return
    store, ref = request.db.store, state.column.ref
    largest, canaries = int(state.column.spends[PURE][rows].max()), int(request.batch.canary[rows].sum())
    finite = None if largest == INFINITE else largest
    store.execute("insert or ignore into tally(release, nonce) values(?,?)", (ref.id, ref.nonce))
    store.execute(
        "update tally set records = records + ?, canaries = canaries + ?,"
        " max_pure = case when max_pure < ? then ? when max_pure >= ? then max_pure end where release=? and nonce=?",
        (len(rows), canaries, finite, finite, finite, ref.id, ref.nonce),
    )


def merge_after_write(db: Database, scope: Scope, refs: Iterable[ReleaseRef]) -> None:
    """Merge what many writes left behind. The charge is durable: what fails here is left to a later write."""
    with suppress(LedgerError):
        pinned = db.scopes.find(scope)
        if pinned.measure is not None:
            db.scopes.balances(pinned).merge_concurrently(db.scopes.lock_name(pinned))
        for ref in refs:
            db.records.index(ref.id, ref.nonce).merge_concurrently(db.records.lock_name(ref))
