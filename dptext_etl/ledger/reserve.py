"""Reserve the worst case of a batch, durably, before a text is scored (docs/spec/privacy.md#reserve-first)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dptext_etl.column import INFINITE
from dptext_etl.errors import BudgetError, LedgerError
from dptext_etl.guarantee import PURE, refuse_more_records
from dptext_etl.ledger.batch import BatchIds, ColumnCharge, seal_rows
from dptext_etl.ledger.caps import Pinned, admit
from dptext_etl.ledger.database import Database
from dptext_etl.ledger.identities import are_forgotten, refuse_other_units
from dptext_etl.ledger.plan import LedgerPlan
from dptext_etl.ledger.storage.hashed_ids import Index, Values
from dptext_etl.ledger.storage.records import Holdings
from dptext_etl.ledger.types import AGAIN, I64, NEW, U8, Event, Mask, Outcome, Scope, State

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
    plan: LedgerPlan
    at: Index  # the places of the records in the plan, shape (records,)
    unit_at: Index  # those of their units

    @classmethod
    def of(  # noqa: PLR0917
        cls,
        db: Database,
        job: str,
        scope: Scope,
        pinned: Pinned,
        batch: BatchIds,
        columns: list[ColumnCharge],
        *,
        again: bool,
    ) -> Request:
        """Find a plan that covers the batch, or make one; nothing is read yet."""
        found = db.plans.covering(scope.dataset, batch.record_ids, batch.record_order, batch.unit_ids)
        return cls(db, job, scope, pinned, batch, columns, again, *found)


class ColumnState(NamedTuple):
    """What the ledger knew of a batch in one column before the request, shape (records,).

    `new` is what is to be charged: records that the release does not hold, and changed ones where these count.
    """

    column: ColumnCharge
    holdings: Holdings
    new: Mask
    changed: Mask
    committed: Mask


class Decision(NamedTuple):
    """What the ledger answers to a batch, before it writes."""

    states: list[ColumnState]  # what it knew of the batch, per column
    outcome: U8  # an `Outcome` per record, shape (records,)

    def charged_rows(self, state: ColumnState) -> Index:
        return np.flatnonzero(state.new & np.isin(self.outcome, CHARGED))


class Preview(NamedTuple):
    """What the ledger would answer to a batch."""

    outcome: U8  # an `Outcome` per record as if there was no cap, shape (records,)
    charged: Mask  # whether a column of a record would be charged, shape (columns, records)
    changes_committed: Mask  # whether every changed column of a record holds a committed text, shape (records,)
    units: npt.NDArray[np.uint64]  # hashes of the units, shape (records,)
    used: I64  # what the units have used by component of the cap, shape (components, records)
    moved: Mask  # whether a record was charged to another unit before, so that `reserve` refuses it, shape (records,)


def reserve(request: Request, *, refuse: bool) -> U8:
    """Judge a batch and charge what is new and fits. Call it inside a transaction.

    Locks are taken in one order everywhere, so that no two writers wait for each other: scope and releases, states, and
    with the first event that of appending. What a lock protects is read after it is held: it may have changed before.
    """
    db, refs = request.db, [column.ref for column in request.columns]
    ahead = {column.ref: db.segments.stage(column.sealed.blobs) for column in request.columns if column.sealed}
    db.store.lock(db.scopes.lock_name(request.pinned), *map(db.records.lock_name, refs))
    db.store.lock(*map(db.records.states_lock_name, refs))
    request.plan.catch_up(db)
    decision = judge(request)
    over = int((decision.outcome == Outcome.OVER_CAP).sum())
    if refuse and over:
        msg = f"{over} of {request.batch.size} records would exceed the cap of {request.scope}; none was charged"
        hint = '`dptext ledger remaining` shows balances; on_cap = "quarantine" leaves such records out'
        raise BudgetError(msg, hint, {"records": over, "of": request.batch.size, "scope": str(request.scope)})
    for state in decision.states:
        rows, staged = decision.charged_rows(state), ahead.get(state.column.ref)
        _write(request, state, rows, staged if len(rows) == request.batch.size else None)
        if staged is not None and len(rows) < request.batch.size:
            db.segments.discard(staged)
        _replay(request, state, np.isin(decision.outcome, _RELEASED))
        _count(request, state, rows)
    return decision.outcome


def preview(
    db: Database,
    scope: Scope,
    batch: BatchIds,
    columns: list[ColumnCharge],
    *,
    again: bool,
) -> Preview:
    """Judge a batch without a look at the cap. Call it inside a snapshot.

    What fits a cap depends on all records before, which are in other batches; a forecast adds them up.
    """
    request = Request.of(db, "", scope, db.scopes.find(scope), batch, columns, again=again)
    request.plan.catch_up(db)
    states, outcome = compare(request)
    used = np.zeros((len(request.pinned.components), batch.size), np.int64)
    used[:, ~batch.canary] = request.plan.used(db, request.pinned)[:, request.unit_at[~batch.canary]]
    charged = np.stack([state.new & np.isin(outcome, CHARGED) for state in states])
    committed = np.all([~state.changed | (state.holdings.state == State.COMMITTED) for state in states], axis=0)
    return Preview(outcome, charged, committed, batch.unit_ids.hi, used, _moved(request))


def judge(request: Request) -> Decision:
    """Return what the ledger answers to a batch now; it writes nothing."""
    batch, pinned = request.batch, request.pinned
    states, outcome = compare(request)
    refuse_other_units(request.scope, int(_moved(request).sum()), batch.size)
    if pinned.measure is None:
        return Decision(states, outcome)
    asking = np.isin(outcome, CHARGED) & ~batch.canary
    if not asking.any():
        return Decision(states, outcome)
    totals = _totals(states, pinned, asking)
    fits = admit(
        pinned.limits, request.unit_at, batch.unit_order, totals, asking, request.plan.used(request.db, pinned)
    )
    outcome[asking & ~fits] = Outcome.OVER_CAP
    return Decision(states, outcome)


def compare(request: Request) -> tuple[list[ColumnState], U8]:
    """Return what the ledger knows of a batch, and what it answers without a look at the cap; it writes nothing."""
    db, batch, scope = request.db, request.batch, request.scope
    states = [_look_up(request, column) for column in request.columns]
    db.standing.refuse_frozen(scope.dataset, scope.group)
    outcome = np.full(batch.size, Outcome.PENDING, np.uint8)
    outcome[np.all([state.committed for state in states], axis=0)] = Outcome.COMMITTED
    outcome[np.any([state.new for state in states], axis=0)] = Outcome.RESERVED
    changed = np.any([state.changed for state in states], axis=0)
    outcome[changed] = Outcome.AGAIN if request.again else Outcome.CHANGED
    outcome[are_forgotten(db, scope.dataset, batch.record_ids, batch.unit_ids)] = Outcome.FORGOTTEN
    return states, outcome


def _moved(request: Request) -> Mask:
    moved, refs = ~request.batch.canary, [column.ref for column in request.columns]
    units = request.batch.unit_ids.take(moved)
    moved[moved] = request.plan.moved(request.db, refs, request.at[moved], units)
    return moved


def _look_up(request: Request, column: ColumnCharge) -> ColumnState:
    ref = column.ref
    if ref.id != NEW:
        request.db.releases.require_usable(ref)
    holdings = request.plan.holdings(request.db, ref, request.at)
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


def _write(request: Request, state: ColumnState, rows: Index, staged: int | None) -> None:
    """Seal the new rows of a column as a batch; a release with a delta holds no more records than it was stated for."""
    if not len(rows):
        return
    db, batch, scope, column = request.db, request.batch, request.scope, state.column
    ref = column.ref
    bound = db.releases.record_bound(ref)
    if bound is not None:
        refuse_more_records(db.records.count(ref) + int((~batch.canary[rows]).sum()), bound, str(ref))
    changed = int(state.changed[rows].sum())
    facts: dict[str, Any] = {"job": request.job, "release": ref.id, "nonce": ref.nonce, "dataset": scope.dataset}
    facts |= {"scope": request.pinned.id, "name": scope.name, "period": scope.period, "unit": scope.unit}
    facts |= {AGAIN: changed} if changed else {}
    seq = db.segments.append_sealed(Event.RESERVE, *seal_rows(batch, column, rows), staged, **facts)
    db.store.execute(
        "insert into batch values(?,?,?,?,?,?,?,0,?)",
        (seq, ref.id, ref.nonce, request.pinned.id, request.job, len(rows), len(rows), bytes(len(rows))),
    )


def _replay(request: Request, state: ColumnState, released: Mask) -> None:
    """Record that texts which the release holds were asked for again; they cost 0. Mark batches of other jobs."""
    pending = ~(state.new | state.changed | state.committed) & released
    committed = state.committed & released
    if not (pending.any() or committed.any()):
        return
    store, ref, attached = request.db.store, state.column.ref, []
    for batch, _ in state.holdings.places.take(pending).groups():
        if store.row("select 1 from batch where seq=? and job<>?", (batch, request.job)) is not None:
            store.execute("update batch set attached=1 where seq=?", (batch,))
            attached.append(batch)
    counts = {"pending": int(pending.sum()), "committed": int(committed.sum()), "attached": attached}
    request.db.journal.append(Event.REPLAY, job=request.job, release=ref.id, nonce=ref.nonce, **counts)


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
