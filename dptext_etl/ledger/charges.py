"""Reserve the worst case of a batch before a text is scored, then commit the results or end the reservation.

The first result is the release; a later one that differs is recorded and discarded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl.column import INFINITE
from dptext_etl.errors import BudgetError, InputError, LedgerError, counted
from dptext_etl.guarantee import PURE, refuse_more_records
from dptext_etl.ledger.batch import BatchIds, ColumnCharge, IdKey, RecordIds, seal_rows, whole_numbers
from dptext_etl.ledger.caps import EarlierCharges, admit
from dptext_etl.ledger.contents import PROVENANCES, Batch, Pinned
from dptext_etl.ledger.people import are_forgotten, refuse_other_units
from dptext_etl.ledger.plan import Database, LedgerPlan
from dptext_etl.ledger.records import Holdings
from dptext_etl.ledger.storage.hashed_ids import Bytes, HashedIds, Index, hashed_ids, matrix
from dptext_etl.ledger.storage.segments import Blob, Places, seal
from dptext_etl.ledger.types import AGAIN, I64, NEW, U8, CommitOutcome, Event, Mask, Outcome, ReleaseRef, Scope, State

CHARGED = (Outcome.RESERVED, Outcome.AGAIN)  # outcomes of records that are charged
_ASKING = (*CHARGED, Outcome.OVER_CAP)
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
    unit_at: Index  # the places of their units

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
        plan_and_places = db.plans.covering(scope.dataset, batch.record_ids, batch.wanted, batch.unit_ids)
        return cls(db, job, scope, pinned, batch, columns, again, *plan_and_places)


class ColumnState(NamedTuple):
    """The state of a batch in one column before the request, shape (records,).

    `new` marks the records to charge: those that the release does not hold, and changed ones where these count.
    """

    column: ColumnCharge
    holdings: Holdings
    new: Mask
    changed: Mask
    committed: Mask


class Decision(NamedTuple):
    """The answer of the ledger to a batch, before it writes."""

    states: list[ColumnState]  # state of the batch, per column
    outcome: U8  # an `Outcome` per record, shape (records,)
    moved: Mask  # whether a record was charged to another unit before, so that `reserve` refuses it, shape (records,)
    used: I64  # the amounts that the units had used, by component of the cap, shape (components, records)
    admitted: I64  # the amounts that the cap admits, in the same shape

    def charged_rows(self, state: ColumnState) -> Index:
        return np.flatnonzero(state.new & np.isin(self.outcome, CHARGED))

    @property
    def asking(self) -> Mask:
        """Whether a column of a record is charged, or would be without the cap, shape (columns, records)."""
        return np.stack([state.new & np.isin(self.outcome, _ASKING) for state in self.states])

    @property
    def changes_committed(self) -> Mask:
        """Whether every changed column of a record holds a committed text, shape (records,)."""
        committed: Mask = np.all(
            [~state.changed | (state.holdings.state == State.COMMITTED) for state in self.states], axis=0
        )
        return committed


def reserve(request: Request, *, refuse: bool) -> U8:
    """Judge a batch and charge the new records that fit. Call it inside a transaction.

    Locks are acquired in one order everywhere, so that no two writers wait for each other: scope and releases, states,
    and with the first event the lock of appending. Data under a lock are read after it is held: they may have changed
    before. Locks matter on PostgreSQL, where writers are next to each other; a writer on SQLite has the whole file.
    """
    db, refs = request.db, [column.ref for column in request.columns]
    # Blobs are the slowest part, and no other writer can see them before an event names them: they need no lock.
    ahead = {column.ref: db.segments.stage(column.sealed.blobs) for column in request.columns if column.sealed}
    # 1. Who may add: balances of the scope, and records of the releases. Two batches of one unit wait for each other.
    db.store.lock(db.scopes.lock_name(request.pinned), *map(db.records.lock_name, refs))
    # 2. Who may change states: a commit needs this lock, too, and a scope only where it gives back.
    db.store.lock(*map(db.records.states_lock_name, refs))
    # The plan was read before the locks. It reads once more what others appended meanwhile; from here on, only this
    # transaction adds to the scope and the releases, so the judgment below still holds when it is written.
    request.plan.catch_up(db)
    decision = judge(request)
    refuse_other_units(request.scope, int(decision.moved.sum()), request.batch.size)
    over = int((decision.outcome == Outcome.OVER_CAP).sum())
    if refuse and over:
        msg = f"{over} of {request.batch.size} records would exceed the cap of {request.scope}; none was charged"
        hint = '`dptext ledger remaining` shows balances; on_cap = "quarantine" leaves such records out'
        raise BudgetError(msg, hint, {"records": over, "of": request.batch.size, "scope": str(request.scope)})
    for state in decision.states:
        rows, staged = decision.charged_rows(state), ahead.get(state.column.ref)
        _write(request, state, rows, staged if len(rows) == request.batch.size else None)
        # The staged blobs hold every row of the batch; where fewer are charged, `_write` encoded these anew.
        if staged is not None and len(rows) < request.batch.size:
            db.segments.discard(staged)
        _replay(request, state, np.isin(decision.outcome, _RELEASED))
    return decision.outcome


def judge(request: Request, before: EarlierCharges | None = None) -> Decision:
    """Return the answer of the ledger to a batch, as if it had admitted the batches in `before`; write nothing."""
    batch, pinned = request.batch, request.pinned
    states, outcome = compare(request)
    used, totals = np.zeros((2, len(pinned.components), batch.size), np.int64)
    moved, refs = ~batch.canary, [column.ref for column in request.columns]
    units = batch.unit_ids.take(moved)
    moved[moved] = request.plan.moved(request.db, refs, request.at[moved], units)
    asking = np.isin(outcome, CHARGED) & ~batch.canary
    if pinned.measure is None or not asking.any():
        return Decision(states, outcome, moved, used, totals)
    # Add up the charges of each record over its columns; no amount counts for more than the limit plus 1
    for state in states:
        taken = state.new & asking
        for at, (name, limit) in enumerate(zip(pinned.components, pinned.limits, strict=True)):
            amounts = state.column.spends[name]
            if (amounts[taken] == INFINITE).any():
                msg = f"{state.column.ref} costs an infinite {name}; its scope is capped on {pinned.measure}"
                raise LedgerError(msg, "cap a measure on which the mechanism is finite, in its own scope")
            totals[at] += np.where(taken, np.minimum(amounts, limit + 1), 0)
    of_units = request.plan.used(request.db, pinned)
    # Canary rows belong to no unit, so they have no balance.
    used[:, ~batch.canary] = of_units[:, request.unit_at[~batch.canary]]
    places = request.unit_at
    if before is not None:
        places, of_units = before.added_to(batch.unit_ids, used)
    fits = admit(pinned.limits, places, batch.unit_order, totals, asking, of_units)
    outcome[asking & ~fits] = Outcome.OVER_CAP
    return Decision(states, outcome, moved, used, np.where(fits, totals, 0))


def compare(request: Request) -> tuple[list[ColumnState], U8]:
    """Return the state of a batch, and the answer without regard to the cap; write nothing."""
    db, batch, scope = request.db, request.batch, request.scope
    states = [_look_up(request, column) for column in request.columns]
    db.contents.latest().refuse_frozen(scope.dataset, scope.group)
    # A later line outranks those before it: a forgotten record stays out, also if it was committed or changed.
    outcome = np.full(batch.size, Outcome.PENDING, np.uint8)
    outcome[np.all([state.committed for state in states], axis=0)] = Outcome.COMMITTED
    outcome[np.any([state.new for state in states], axis=0)] = Outcome.RESERVED
    changed = np.any([state.changed for state in states], axis=0)
    outcome[changed] = Outcome.AGAIN if request.again else Outcome.CHANGED
    outcome[are_forgotten(db, scope.dataset, batch.record_ids, batch.unit_ids)] = Outcome.FORGOTTEN
    return states, outcome


def _look_up(request: Request, column: ColumnCharge) -> ColumnState:
    ref = column.ref
    if ref.id != NEW:
        request.db.releases.require_usable(ref)
    holdings = request.plan.holdings(request.db, ref, request.at)
    same = holdings.same_text(column.identities)
    changed = holdings.present & ~same
    new = ~holdings.present | changed if request.again else ~holdings.present
    return ColumnState(column, holdings, new, changed, same & (holdings.state == State.COMMITTED))


def _write(request: Request, state: ColumnState, rows: Index, staged: int | None) -> None:
    """Seal the new rows of a column as a batch; a release with a delta holds no more records than it was stated for."""
    if not len(rows):
        return
    db, batch, scope, column = request.db, request.batch, request.scope, state.column
    ref = column.ref
    # Counted under the lock of the release's records: two writers cannot pass the bound together.
    bound = db.releases.record_bound(ref)
    if bound is not None:
        refuse_more_records(db.records.count(ref) + int((~batch.canary[rows]).sum()), bound, str(ref))
    changed = int(state.changed[rows].sum())
    facts: dict[str, Any] = {"job": request.job, "release": ref.id, "nonce": ref.nonce, "dataset": scope.dataset}
    facts |= {"scope": request.pinned.id, "name": scope.name, "period": scope.period, "unit": scope.unit}
    facts |= {AGAIN: changed} if changed else {}
    db.segments.append_sealed(Event.RESERVE, *seal_rows(batch, column, rows), staged, **facts)


def _replay(request: Request, state: ColumnState, released: Mask) -> None:
    """Record that texts which the release holds were asked for again; they cost 0. Mark batches of other jobs."""
    pending = ~(state.new | state.changed | state.committed) & released
    committed = state.committed & released
    if not (pending.any() or committed.any()):
        return
    batches, ref = request.db.contents.latest().batches, state.column.ref
    # `abort` refuses to end a batch on which another job relies.
    attached = [seq for seq in state.holdings.places.take(pending).batches() if batches[seq].job != request.job]
    counts = {"pending": int(pending.sum()), "committed": int(committed.sum()), "attached": attached}
    request.db.journal.append(Event.REPLAY, job=request.job, release=ref.id, nonce=ref.nonce, **counts)


REFUNDED_MEASURE = "pure"


class Results(NamedTuple):
    """The results of a batch, shape (records,) or (records, 32)."""

    records: RecordIds  # hashed record ids
    identities: HashedIds  # identities of the texts
    digests: Bytes  # digests of the staged texts
    positions: I64  # draw counts
    spent: I64 | None  # the pure epsilon that was used, in millionths; None charges the reserved worst case


class Comparison(NamedTuple):
    """The comparison of results with the state of the release, and the content of the commit."""

    holdings: Holdings  # state of the records in the release
    outcome: U8  # a `CommitOutcome` per record, shape (records,)
    new: Index  # the rows that are committed
    diverged: Index  # rows whose digests differ from the committed ones
    sealed: dict[Event, tuple[dict[str, Any], dict[str, Blob]]]  # facts and blobs of their events, by kind


class PreparedCommit(NamedTuple):
    """A batch of results that is ready to be committed, if no other writer moves its records meanwhile."""

    ref: ReleaseRef
    results: Results
    comparison: Comparison


def read_results(  # noqa: PLR0917
    id_key: IdKey,
    ids: pa.Array,
    idem_keys: pa.Array,
    digests: pa.Array,
    positions: npt.ArrayLike | None,
    canary: Mask | None,
    spent: npt.ArrayLike | None,
) -> Results:
    records = id_key.records(ids, canary)
    size, _ = records.ids.size, records.distinct
    identities, staged = hashed_ids(matrix(idem_keys, "idem keys")), matrix(digests, "digests")
    if not size == identities.size == len(staged):
        raise InputError("a commit has one idem key and one digest per record", "pass arrays of the same length")
    drawn = whole_numbers(0 if positions is None else positions, size, "positions")
    used = None if spent is None else whole_numbers(spent, size, "spent epsilons")
    return Results(records, identities, staged, drawn, used)


def examine(db: Database, ref: ReleaseRef, results: Results) -> Comparison:
    """Compare results with the reserved and committed records, and encode them. Call it inside a snapshot."""
    db.releases.require_usable(ref)
    records = results.records.ids
    holdings = db.look_up(ref, records, results.records.distinct)
    same = holdings.same_text(results.identities)
    if not same.all():
        missing, other = int((~holdings.present).sum()), int((holdings.present & ~same).sum())
        msg = f"{counted(missing, 'record was', 'records were')} never reserved in this release, "
        msg += f"{counted(other, 'was', 'were')} reserved with another text"
        raise LedgerError(f"{msg}; nothing was committed", "reserve the batch before you compute it")
    committed = holdings.state == State.COMMITTED
    # More draws than were reserved would lose more than was charged.
    over = int((results.positions > db.records.reserved(holdings.places, "n_worst")).sum())
    if over:
        msg = f"{counted(over, 'record')} used more positions than were reserved; nothing was committed"
        raise LedgerError(msg, "reserve the worst case of the mechanism")
    outcome = np.full(records.size, CommitOutcome.COMMITTED, np.uint8)
    # A record has one released text: another result is recorded, and is never published.
    if committed.any():
        differs = (db.records.digests(holdings.places.take(committed)) != results.digests[committed]).any(axis=1)
        outcome[committed] = np.where(differs, CommitOutcome.DIVERGED, CommitOutcome.ALREADY)
    new, diverged = (np.flatnonzero(outcome == kind) for kind in (CommitOutcome.COMMITTED, CommitOutcome.DIVERGED))
    sealed = {}
    for kind, rows in ((Event.COMMIT, new), (Event.DIVERGED, diverged)):
        if len(rows):
            columns = holdings.places.take(rows).columns()
            columns |= {"positions": results.positions[rows], "digest": results.digests[rows]}
            sealed[kind] = seal(kind, columns)
    return Comparison(holdings, outcome, new, diverged, sealed)


def commit(db: Database, job: str, ready: PreparedCommit) -> U8:
    """Commit a batch. Call it inside a transaction."""
    ref, results, comparison = ready
    db.releases.require_usable(ref)
    records = results.records.ids
    rows = int(are_forgotten(db, ref.dataset, records).sum())
    if rows:
        msg = f"{rows:,} of {records.size:,} records were forgotten since they were reserved; none of them is released"
        raise LedgerError(msg, "run again: forgotten records are excluded then")
    # Giving back changes balances, so the scopes come first, as in `reserve`; other commits leave them to reservations.
    if results.spent is not None:
        batches = np.unique(comparison.holdings.places.batch).tolist()
        db.store.lock(*(db.scopes.lock_name(db.scopes.of_batch(batch)) for batch in batches))
    db.store.lock(db.records.states_lock_name(ref))
    # `examine` read the states without this lock; where another writer changed them since, it reads all once more.
    if (db.records.states_of(comparison.holdings.places) != comparison.holdings.state).any():
        comparison = examine(db, ref, results)
    holdings, outcome, new, diverged, sealed = comparison
    names: dict[str, Any] = {"job": job, "release": ref.id, "nonce": ref.nonce}
    if len(new):
        expired = int((holdings.state[new] == State.EXPIRED).sum())
        facts = names | ({"expired": expired} if expired else {})
        db.segments.append_sealed(Event.COMMIT, *sealed[Event.COMMIT], **facts)
        if results.spent is not None:
            _refund(db, ref, names, holdings.places.take(new), results.spent[new])
    if len(diverged):
        db.segments.append_sealed(Event.DIVERGED, *sealed[Event.DIVERGED], **names)
    return outcome


def _refund(db: Database, ref: ReleaseRef, names: dict[str, Any], places: Places, spent: I64) -> None:
    """Give back the part of a worst case that committed rows did not use (docs/spec/privacy.md#expost).

    This is valid only under a pure cap: along every path the sum stays below the cap. The number of steps must follow
    from the released text or from coins that no text decides, never from anything else in the input. The guarantee of
    the record stays its worst case; only the balance of its unit gets the difference back.
    """
    db.releases.require_refundable(ref)
    for batch, group in places.groups():
        pinned, rows, used = db.scopes.of_batch(batch), places.row[group], spent[group]
        worst = db.segments.read(batch, [PURE])[PURE][rows]
        if (used < 0).any() or (used > worst).any():
            msg = f"{counted(int((used > worst).sum()), 'record')} used more than was reserved; nothing was committed"
            raise LedgerError(msg, "reserve the worst case of the mechanism")
        if pinned.measure == REFUNDED_MEASURE:
            settled = {"batch": np.full(len(rows), batch, np.int64), "row": rows, PURE: used}
            db.segments.append(Event.SETTLE, settled, **names)


def record_postprocessing(  # noqa: PLR0917
    db: Database,
    job: str,
    ref: ReleaseRef,
    chain: str,
    steps: Sequence[Mapping[str, Any]],
    records: RecordIds,
    digests: Bytes,
) -> U8:
    """Record the results of post-processing: spend 0, and the first result is the published one.

    Call it inside a transaction. Specification: docs/spec/privacy.md#rewrite-again.
    """
    db.releases.require_usable(ref)
    if not steps or any(step.get("training_provenance") not in PROVENANCES for step in steps):
        allowed = " or ".join(map(repr, PROVENANCES))
        msg = f"post-processing costs nothing only where its training_provenance is {allowed}"
        raise LedgerError(msg, "declare training_provenance in the post-processing of the policy")
    # The first result under a chain is the one that is published: two writers must not both find none.
    db.store.lock(db.records.states_lock_name(ref))
    holdings = db.look_up(ref, records.ids, records.distinct)
    missing = int((~holdings.committed).sum())
    if missing:
        msg = f"{counted(missing, 'record is', 'records are')} not committed, so nothing of them is rewritten"
        raise LedgerError(msg, "commit them before")
    rewritten, first = db.records.postprocessed(holdings.places, chain)
    outcome = np.full(records.ids.size, CommitOutcome.COMMITTED, np.uint8)
    outcome[rewritten] = np.where((first != digests).any(axis=1), CommitOutcome.DIVERGED, CommitOutcome.ALREADY)[
        rewritten
    ]
    if not rewritten.all():
        places = holdings.places.take(~rewritten)
        columns = places.columns() | {"digest": digests[~rewritten]}
        facts = {"job": job, "release": ref.id, "nonce": ref.nonce, "spend": 0, "chain": chain}
        db.segments.append(Event.POST, columns, **facts, steps=[dict(step) for step in steps])
    return outcome


def expire(db: Database, job: str, reason: str | None) -> int:
    return sum(_end(db, batch, Event.EXPIRE, reason) for batch in _batches(db, job))


def abort(db: Database, job: str, reason: str | None) -> int:
    batches, pins, moved = _batches(db, job), db.contents.pins, 0
    if any((db.records.states(batch.seq) == State.COMMITTED).any() for batch in batches):
        raise LedgerError("the job has committed records: its computation has started", "expire it: charges stay")
    if any(batch.attached for batch in batches):
        raise LedgerError("another job relies on the reservations of this one", "expire it: charges stay")
    if any(batch.seq < pins.get(batch.key, (0,))[0] and len(_open_rows(db, batch)) for batch in batches):
        msg = "a table was pinned over the reservations of this job, and draws from it may have been seen"
        raise LedgerError(msg, "expire it: charges stay; or run the same table again, which finishes it at no cost")
    for batch in batches:
        if batch.again:
            _end(db, batch, Event.EXPIRE, reason)  # aborted, it would hide the texts before it
        else:
            moved += _end(db, batch, Event.ABORT, reason)
    return moved


def _batches(db: Database, job: str) -> list[Batch]:
    return [batch for batch in db.contents.latest().batches.values() if batch.job == job]


def _open_rows(db: Database, batch: Batch) -> Index:
    return np.flatnonzero(db.records.states(batch.seq) == State.RESERVED)


def _end(db: Database, batch: Batch, kind: Event, reason: str | None) -> int:
    rows, (release, nonce) = _open_rows(db, batch), batch.key
    if len(rows):
        places = Places(np.full(len(rows), batch.seq, np.int64), rows)
        facts = {} if reason is None else {"reason": reason}
        db.segments.append(kind, places.columns(), job=batch.job, release=release, nonce=nonce, **facts)
    return len(rows)
