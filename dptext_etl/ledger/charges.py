"""Prepare a batch, judge it, and reserve its worst case before a text is scored (docs/spec/privacy.md#ledger)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl.arrays import to_numpy
from dptext_etl.column import INFINITE
from dptext_etl.errors import BudgetError, InputError, LedgerError, bare
from dptext_etl.guarantee import ADDITIVE, refuse_more_records
from dptext_etl.ledger.caps import EarlierCharges, admit, limits
from dptext_etl.ledger.contents import Pinned
from dptext_etl.ledger.holdings import KEPT, Database, Holdings, LedgerPlan
from dptext_etl.ledger.people import are_forgotten, refuse_other_units, require_forms
from dptext_etl.ledger.reader import LedgerReader
from dptext_etl.ledger.storage.hashed_ids import (
    Bytes,
    HashedIds,
    Index,
    RecordIds,
    WantedIds,
    concatenated,
    hashed_ids,
    matrix,
)
from dptext_etl.ledger.storage.journal import Blob, seal
from dptext_etl.ledger.types import (
    AGAIN,
    I64,
    NEW,
    U8,
    Charge,
    Event,
    IdForms,
    Mask,
    Outcome,
    ReleaseRef,
    Scope,
    State,
    Unit,
)
from dptext_etl.policy import Cap

CHARGED = (Outcome.RESERVED, Outcome.AGAIN)  # outcomes of records that are charged
_ASKING = (*CHARGED, Outcome.OVER_CAP)
_RELEASED = (*CHARGED, Outcome.PENDING, Outcome.COMMITTED)


class ColumnCharge(NamedTuple):
    """The charge of a batch in one column: identities, positions, and amounts, shape (records, 32) and (records,)."""

    ref: ReleaseRef
    idem_keys: Bytes
    identities: HashedIds
    n_worst: I64
    spends: Mapping[str, I64]
    sealed: tuple[dict[str, Any], dict[str, Blob]] | None = None  # facts and blobs of all rows, if encoded ahead


@dataclass(frozen=True)
class PreparedBatch:
    """A batch that is ready to be judged or reserved: hashed ids, shape (records, 32) and (records,), and charges."""

    unit: Unit
    records: RecordIds = field(repr=False)
    units: Bytes = field(repr=False)  # zeros for canary rows
    unit_ids: HashedIds = field(repr=False)
    unit_order: Index = field(repr=False)  # brings the records of one unit together
    columns: list[ColumnCharge] = field(repr=False)

    @property
    def size(self) -> int:
        return len(self.units)

    @property
    def refs(self) -> list[ReleaseRef]:
        return [column.ref for column in self.columns]


def whole_numbers(values: npt.ArrayLike | pa.Array, size: int, name: str) -> I64:
    array: npt.NDArray[Any] = np.asarray(to_numpy(values) if isinstance(values, pa.Array) else values)
    if array.dtype.kind == "f":
        finite = np.where(array >= INFINITE, 0, array)
        if not (finite == np.floor(finite)).all():
            raise InputError(f"{name} must be whole millionths", "round up with dptext_etl.guarantee.micro")
        array = np.where(array >= INFINITE, INFINITE, finite.astype(np.int64))
    elif array.dtype.kind not in "iu" and not all(type(value) is int for value in array.flat):
        raise InputError(f"{name} must be whole numbers, got {array.dtype}", "round up with dptext_etl.guarantee.micro")
    elif array.dtype.kind not in "iu" or array.dtype == np.uint64:  # whole numbers that may be beyond 63 bits
        array = np.clip(array, 0 if array.dtype.kind == "u" else -1, INFINITE)  # -1 is refused below
    amounts = array.astype(np.int64, copy=False)
    if not array.ndim:
        amounts = np.broadcast_to(amounts, (size,))
    if amounts.shape != (size,):
        msg = f"{size} records and {len(amounts)} values of {name}: one per record"
        raise InputError(msg, "pass arrays of the same length")
    if size and amounts.min() < 0:
        raise InputError(f"{name} must not be negative", "pass amounts from 0")
    return amounts


def _seal_rows(
    batch: PreparedBatch, column: ColumnCharge, rows: Index | slice = slice(None)
) -> tuple[dict[str, Any], dict[str, Blob]]:
    values: dict[str, npt.NDArray[Any]] = {
        "record": batch.records.hashes,
        "unit": batch.units,
        "idem_key": column.idem_keys,
        "canary": batch.records.canary.astype(np.int64),
        "n_worst": column.n_worst,
        **column.spends,
    }
    return seal(Event.RESERVE, {name: value[rows] for name, value in values.items()})


class Request(NamedTuple):
    """A request to the ledger: who asks, where spends add up, for which records, and whether changed texts count."""

    db: Database
    job: str
    scope: Scope
    pinned: Pinned
    batch: PreparedBatch
    again: bool
    plan: LedgerPlan
    at: Index  # the places of the records in the plan, shape (records,)
    unit_at: Index  # the places of their units


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


class Charges(LedgerReader):
    """Charge batches: prepare, judge, and reserve them."""

    @bare
    def make_ready(
        self,
        unit: Unit,
        ids: pa.Array,
        subjects: pa.Array | None,
        charges: Sequence[Charge],
        *,
        canary: Mask | None = None,
        sealed: bool = False,
        own: bool = False,
    ) -> PreparedBatch:
        """Prepare a batch for `reserve` or `judge`, in any thread; its commit need not hash its ids again, either.

        Args:
            unit: Who has the budget, "subject" or "record".
            ids: Canonical record ids, strings, no nulls, each once.
            subjects: Canonical subject ids, null for canary rows only. Ignored where the unit is the record.
            charges: One charge per text column.
            canary: Marks canary rows, shape (records,); they belong to no one and count against no cap.
            sealed: Encode the rows, too, as they will be if all of them are new.
            own: A record without a subject is its own unit; otherwise it is refused.

        Returns:
            The batch, whose ids are hashed.

        Raises:
            InputError: Ids are null, repeated or of another type, a subject is missing, or lengths differ.
        """
        records = self._db.id_key.records(ids, canary)
        _ = records.distinct  # refuses repeated ids
        units = self._db.id_key.units(unit, records, subjects, own=own)
        unit_ids = records.ids if units is records.hashes else hashed_ids(units)
        # no two rows share a record's budget
        order = np.arange(unit_ids.size) if unit == "record" else unit_ids.order()
        batch = PreparedBatch(unit, records, units, unit_ids, order, [])
        for charge in charges:
            idem_keys = matrix(charge.idem_keys, "idem keys")
            if len(idem_keys) != batch.size:
                msg = f"{batch.size} records and {len(idem_keys)} idem keys: one per record"
                raise InputError(msg, "pass one idem key per record")
            spends = {name: whole_numbers(charge.spends.get(name, INFINITE), batch.size, name) for name in ADDITIVE}
            n_worst = whole_numbers(charge.n_worst, batch.size, "n_worst")
            if batch.size and n_worst.max() >= 1 << 32:
                raise InputError("n_worst must be below 2^32", "lower n_max")
            column = ColumnCharge(charge.ref, idem_keys, hashed_ids(idem_keys), n_worst, spends)
            batch.columns.append(column._replace(sealed=_seal_rows(batch, column)) if sealed else column)
        return batch

    @bare
    def plan(
        self,
        scope: Scope,
        rows: Iterable[tuple[pa.Array, pa.Array | None, Mask | None]],
        *,
        count: int | None = None,
        own: bool = False,
    ) -> LedgerPlan | None:
        """Look up all records of a run at once, so that its batches need not go through the ledger one by one.

        A plan needs about 70 bytes per record and unit. After `use`, this ledger, or another one that is opened later,
        answers from it; every answer reads newer events.

        Args:
            scope: Where the spends of the run add up.
            rows: Canonical record ids, subject ids, and canary marks, in parts, as for `make_ready`.
            count: How many records there are. If these and all records of the ledger fit into memory, batches are as
                quick without a plan: then the rows are not read, and the plan is None.
            own: A record without a subject is its own unit.

        Returns:
            The plan, or None if the run needs none.

        Raises:
            InputError: As `make_ready`.
        """
        if count is not None:
            with self._db.store.snapshot():
                ledger_rows = sum(batch.rows for batch in self._db.contents.latest().batches.values())
            if 2 * (ledger_rows + count) <= KEPT:
                return None
        records, units = [], []
        for ids, subjects, canary in rows:
            hashed = self._db.id_key.records(ids, canary)
            records.append(hashed.ids)
            units.append(hashed_ids(self._db.id_key.units(scope.unit, hashed, subjects, own=own)))
        unit_ids = concatenated(units)
        real_units = WantedIds(unit_ids.take(unit_ids.are_real()))
        return LedgerPlan(scope.dataset, WantedIds(concatenated(records)), real_units)

    def use(self, plan: LedgerPlan) -> None:
        """Answer calls that name only records of a plan from this plan.

        Args:
            plan: A plan of the same ledger.
        """
        self._db.run = plan

    @bare
    def reserve(
        self,
        job: str,
        scope: Scope,
        cap: Cap | None,
        batch: PreparedBatch,
        *,
        on_cap: Literal["quarantine", "refuse"] = "quarantine",
        forms: IdForms | None = None,
        again: bool = False,
    ) -> U8:
        """Reserve the worst case of a batch, before any of its texts is scored.

        The ledger judges records in row order. It charges a record in all columns or in none. A text that was reserved
        or released before under the same names costs nothing again.

        Args:
            job: The name of the caller; `expire` and `abort` end all reservations of a job.
            scope: Where the spends add up.
            cap: The cap of the policy; its first use pins it, and only `set_cap` changes it. None asks for none,
                but a pinned cap still holds.
            batch: The result of `make_ready`, with at least one charge.
            on_cap: "quarantine" leaves records over the cap out; "refuse" raises and charges nothing of the batch.
            forms: The forms that the ids had before they were canonical strings; their first use pins them.
            again: Charge a record whose text changed once more, for the new text, which the release then holds.

        Returns:
            An `Outcome` per record, uint8, in the order of the batch.

        Raises:
            InputError: The batch has no charge, or is of another dataset or unit than the scope.
            LedgerError: A release is revoked or unknown, the cap or a form differs from the pinned one, or the ledger
                is locked.
            BudgetError: A record is over the cap and `on_cap` is "refuse".
        """
        db = self._db
        if not batch.columns or len({(ref.id, ref.nonce) for ref in batch.refs}) < len(batch.columns):
            msg = "a batch needs a charge in at least one column, and at most one per release"
            raise InputError(msg, "pass one Charge per text column")
        if batch.unit != scope.unit or any(ref.dataset != scope.dataset for ref in batch.refs):
            msg = "scope and releases must be of one dataset, and scope and batch of one unit"
            raise InputError(msg, "use the dataset and the unit of the policy in scope, batch, and releases")
        with db.store.snapshot():  # threads share plans: one at a time reads into them
            places = db.covering(scope.dataset, batch.records.ids, batch.records.distinct, batch.unit_ids)
            request = Request(db, job, scope, db.scopes.find(scope), batch, again, *places)
            request.plan.read_ahead(db, batch.refs, request.at, request.pinned)

        def charge() -> U8:
            pinned = db.scopes.charge(scope, cap)
            require_forms(db, scope, [ref.column for ref in batch.refs], forms)
            return _charge(request._replace(pinned=pinned), refuse=on_cap == "refuse")

        return db.store.write(batch.size, charge)

    @bare
    def judge(
        self,
        scope: Scope,
        cap: Cap | None,
        ready: PreparedBatch,
        *,
        again: bool = False,
        before: EarlierCharges | None = None,
    ) -> Decision:
        """Return the answer that `reserve` would give to a batch under this cap; nothing is pinned or written.

        Args:
            scope: Where the spends would add up.
            cap: The cap that judges, whatever cap is pinned; None judges without a cap.
            ready: The result of `make_ready`; a release that is not pinned yet has the number `types.NEW`.
            again: As in `reserve`.
            before: The batches that were judged before this one; they count as charged.

        Raises:
            LedgerError: A release is revoked, the dataset is frozen, or an amount is infinite under the cap.
        """
        db = self._db
        with db.store.snapshot():
            terms = {"measure": None, "limits": ()} if cap is None else {"measure": cap.measure, "limits": limits(cap)}
            pinned = db.scopes.find(scope)._replace(**terms)
            places = db.covering(scope.dataset, ready.records.ids, ready.records.distinct, ready.unit_ids)
            request = Request(db, "", scope, pinned, ready, again, *places)
            request.plan.catch_up(db)
            return _judge(request, before)


def _charge(request: Request, *, refuse: bool) -> U8:
    """Judge a batch and charge the new records that fit.

    Locks are acquired in one order everywhere, so that no two writers wait for each other: scope and releases, states,
    and with the first event the lock of appending. Data under a lock are read after it is held: they may have changed
    before. Locks matter on PostgreSQL, where writers are next to each other; a writer on SQLite has the whole file.
    """
    db, batch, refs = request.db, request.batch, request.batch.refs
    # Blobs are the slowest part, and no other writer can see them before an event names them: they need no lock.
    ahead = {column.ref: db.journal.stage(column.sealed[1]) for column in batch.columns if column.sealed}
    # 1. Who may add: balances of the scope, and records of the releases. Two batches of one unit wait for each other.
    db.store.lock(scope_lock(request.pinned), *(f"release/{ref.id}/{ref.nonce}" for ref in refs))
    # 2. Who may change states: a commit needs this lock, too, and a scope only where it gives back.
    db.store.lock(*map(states_lock, refs))
    # The plan was read before the locks. It reads once more what others appended meanwhile; from here on, only this
    # transaction adds to the scope and the releases, so the judgment below still holds when it is written.
    request.plan.catch_up(db)
    decision = _judge(request)
    refuse_other_units(request.scope, int(decision.moved.sum()), batch.size)
    over = int((decision.outcome == Outcome.OVER_CAP).sum())
    if refuse and over:
        msg = f"{over} of {batch.size} records would exceed the cap of {request.scope}; none was charged"
        hint = '`dptext ledger remaining` shows balances; on_cap = "quarantine" leaves such records out'
        raise BudgetError(msg, hint, {"records": over, "of": batch.size, "scope": str(request.scope)})
    charged = np.isin(decision.outcome, CHARGED)
    for state in decision.states:
        rows, staged = np.flatnonzero(state.new & charged), ahead.get(state.column.ref)
        _write(request, state, rows, staged if len(rows) == batch.size else None)
        # The staged blobs hold every row of the batch; where fewer are charged, `_write` encoded these anew.
        if staged is not None and len(rows) < batch.size:
            db.journal.discard(staged)
        _replay(request, state, np.isin(decision.outcome, _RELEASED))
    return decision.outcome


def scope_lock(pinned: Pinned) -> str:
    """Return the name of the lock for changes of a scope's balances."""
    return f"scope/{pinned.id}"


def states_lock(ref: ReleaseRef) -> str:
    """Return the name of the lock for changing states of a release."""
    return f"states/{ref.id}/{ref.nonce}"


def _judge(request: Request, before: EarlierCharges | None = None) -> Decision:
    """Return the answer of the ledger to a batch, as if it had admitted the batches in `before`; write nothing."""
    db, batch, scope, pinned = request.db, request.batch, request.scope, request.pinned
    states = []
    for column in batch.columns:
        if column.ref.id != NEW:
            db.contents.latest().require_usable(column.ref)
        holdings = request.plan.holdings(db, column.ref, request.at)
        same = holdings.present & holdings.idem_keys.equal(column.identities)
        differs = holdings.present & ~same
        new = ~holdings.present | differs if request.again else ~holdings.present
        states.append(ColumnState(column, holdings, new, differs, same & (holdings.state == State.COMMITTED)))
    db.contents.latest().refuse_frozen(scope.dataset, scope.group)
    # First without regard to the cap. A later line outranks those before it: a forgotten record stays out, also if it
    # was committed or changed.
    outcome = np.full(batch.size, Outcome.PENDING, np.uint8)
    outcome[np.all([state.committed for state in states], axis=0)] = Outcome.COMMITTED
    outcome[np.any([state.new for state in states], axis=0)] = Outcome.RESERVED
    changed = np.any([state.changed for state in states], axis=0)
    outcome[changed] = Outcome.AGAIN if request.again else Outcome.CHANGED
    outcome[are_forgotten(db, scope.dataset, batch.records.ids, batch.unit_ids)] = Outcome.FORGOTTEN
    used, totals = np.zeros((2, len(pinned.components), batch.size), np.int64)
    moved = ~batch.records.canary
    units = batch.unit_ids.take(moved)
    moved[moved] = request.plan.moved(db, batch.refs, request.at[moved], units)
    asking = np.isin(outcome, CHARGED) & ~batch.records.canary
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
    of_units = request.plan.used(db, pinned)
    # Canary rows belong to no unit, so they have no balance.
    used[:, ~batch.records.canary] = of_units[:, request.unit_at[~batch.records.canary]]
    places = request.unit_at
    if before is not None:
        places, of_units = before.added_to(batch.unit_ids, used)
    fits = admit(pinned.limits, places, batch.unit_order, totals, asking, of_units)
    outcome[asking & ~fits] = Outcome.OVER_CAP
    return Decision(states, outcome, moved, used, np.where(fits, totals, 0))


def _write(request: Request, state: ColumnState, rows: Index, staged: int | None) -> None:
    """Seal the new rows of a column as a batch; a release with a delta holds no more records than it was stated for."""
    if not len(rows):
        return
    db, batch, scope, column = request.db, request.batch, request.scope, state.column
    ref = column.ref
    # Counted under the lock of the release's records: two writers cannot pass the bound together.
    bound = db.contents.latest().releases[ref.id].facts.get("configuration", {}).get("n_rec")
    if isinstance(bound, int):
        refuse_more_records(db.records.count(ref) + int((~batch.records.canary[rows]).sum()), bound, str(ref))
    changed = int(state.changed[rows].sum())
    facts: dict[str, Any] = {"job": request.job, "release": ref.id, "nonce": ref.nonce, "dataset": scope.dataset}
    facts |= {"scope": request.pinned.id, "name": scope.name, "period": scope.period, "unit": scope.unit}
    facts |= {AGAIN: changed} if changed else {}
    whole = len(rows) == batch.size
    sealed = (column.sealed if whole else None) or _seal_rows(batch, column, slice(None) if whole else rows)
    db.journal.append_sealed(Event.RESERVE, *sealed, staged, **facts)


def _replay(request: Request, state: ColumnState, released: Mask) -> None:
    """Record that texts which the release holds were asked for again; they cost 0. Mark batches of other jobs."""
    pending = ~(state.new | state.changed | state.committed) & released
    committed = state.committed & released
    if not (pending.any() or committed.any()):
        return
    batches, ref = request.db.contents.latest().batches, state.column.ref
    # `abort` refuses to end a batch on which another job relies.
    attached = [
        seq for seq in np.unique(state.holdings.places.take(pending).batch).tolist() if batches[seq].job != request.job
    ]
    counts = {"pending": int(pending.sum()), "committed": int(committed.sum()), "attached": attached}
    request.db.journal.append(Event.REPLAY, job=request.job, release=ref.id, nonce=ref.nonce, **counts)
