"""Commit what was computed, or end reservations that were never computed.

The first result is the release; a later one that differs is recorded and discarded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl.errors import InputError, LedgerError, counted
from dptext_etl.guarantee import PURE
from dptext_etl.ledger.batch import whole_numbers
from dptext_etl.ledger.database import Database
from dptext_etl.ledger.id_key import IdKey, RecordIds
from dptext_etl.ledger.identities import are_forgotten
from dptext_etl.ledger.storage.hashed_ids import Bytes, HashedIds, Index, hashed_ids, matrix
from dptext_etl.ledger.storage.records import Holdings, Places
from dptext_etl.ledger.storage.segments import Blob, seal
from dptext_etl.ledger.types import AGAIN, I64, U8, CommitOutcome, Event, Mask, ReleaseRef, State

PROVENANCES = ("public", "disjoint-records")
"""What a post-processing that costs nothing may have learned from."""
REFUNDED_MEASURE = "pure"
_ENDS = {Event.EXPIRE: (State.EXPIRED, "expired"), Event.ABORT: (State.ABORTED, "aborted")}


class Results(NamedTuple):
    """The results of a batch, shape (records,) or (records, 32)."""

    records: RecordIds  # hashed record ids
    identities: HashedIds  # identities of the texts
    digests: Bytes  # digests of what was staged
    positions: I64  # draw counts
    spent: I64 | None  # the pure epsilon that was used, in millionths; None charges the reserved worst case


class Comparison(NamedTuple):
    """How results compare with what the release held, and what a commit will write of them.

    Attributes:
        holdings: What the release held of the records.
        outcome: A `CommitOutcome` per record, shape (records,).
        new: The rows that are committed.
        diverged: The rows that differ from what was committed before.
        sealed: What the events state of these rows, and their blobs, by kind of event.
    """

    holdings: Holdings
    outcome: U8
    new: Index
    diverged: Index
    sealed: dict[Event, tuple[dict[str, Any], dict[str, Blob]]]


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
    size, _ = records.ids.size, records.distinct_order
    identities, staged = hashed_ids(matrix(idem_keys, "idem keys")), matrix(digests, "digests")
    if not size == identities.size == len(staged):
        raise InputError("a commit has one idem key and one digest per record")
    drawn = whole_numbers(0 if positions is None else positions, size, "positions")
    used = None if spent is None else whole_numbers(spent, size, "spent epsilons")
    return Results(records, identities, staged, drawn, used)


def examine(db: Database, ref: ReleaseRef, results: Results) -> Comparison:
    """Compare results with what was reserved and committed, and encode them. Call it inside a snapshot."""
    db.releases.require_usable(ref)
    records, order = results.records.ids, results.records.distinct_order
    holdings = db.look_up(ref, records, order)
    same = holdings.same_text(results.identities)
    if not same.all():
        missing, other = int((~holdings.known).sum()), int((holdings.known & ~same).sum())
        msg = (
            f"{counted(missing, 'record was', 'records were')} never reserved in this "
            f"release, {counted(other, 'was', 'were')} reserved with another text"
        )
        raise LedgerError(f"{msg}; nothing was committed", "reserve the batch before you compute it")
    done = holdings.state == State.COMMITTED
    over = int((results.positions > db.records.reserved(holdings.places, "n_worst")).sum())
    if over:
        msg = f"{counted(over, 'record')} took more positions than were reserved; nothing was committed"
        raise LedgerError(msg, "reserve the worst case of the mechanism")
    outcome = np.full(records.size, CommitOutcome.COMMITTED, np.uint8)
    if done.any():
        differs = (db.records.digests(holdings.places.take(done)) != results.digests[done]).any(axis=1)
        outcome[done] = np.where(differs, CommitOutcome.DIVERGED, CommitOutcome.ALREADY)
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
    gone = int(are_forgotten(db, ref.dataset, records).sum())
    if gone:
        msg = f"{gone:,} of {records.size:,} records were forgotten since they were reserved; none of them is released"
        raise LedgerError(msg, "run again: forgotten records are left out then")
    if results.spent is not None:
        batches = np.unique(comparison.holdings.places.batch).tolist()
        db.store.lock(*(db.scopes.lock_name(db.scopes.of_batch(batch)) for batch in batches))
    db.store.lock(db.records.states_lock_name(ref))
    if (db.records.states_of(comparison.holdings.places) != comparison.holdings.state).any():
        comparison = examine(db, ref, results)  # another writer was faster
    holdings, outcome, new, diverged, sealed = comparison
    places, seq = holdings.places.take(new), 0
    names: dict[str, Any] = {"job": job, "release": ref.id, "nonce": ref.nonce}
    if len(new):
        seq = db.segments.append_sealed(Event.COMMIT, *sealed[Event.COMMIT], **names)
        if results.spent is not None:
            _refund(db, ref, names, places, results.spent[new])
    if len(diverged):
        db.segments.append_sealed(Event.DIVERGED, *sealed[Event.DIVERGED], **names)
    if len(new):
        db.records.move(places, State.COMMITTED)
        for batch, _ in places.groups():
            db.store.execute("insert into commit_part values(?,?)", (batch, seq))
    if len(new) or len(diverged):
        expired = int((holdings.state[new] == State.EXPIRED).sum())
        db.store.execute(
            "update tally set committed = committed + ?, expired = expired - ?, diverged = diverged + ?"
            " where release=? and nonce=?",
            (len(new), expired, len(diverged), ref.id, ref.nonce),
        )
    return outcome


def _refund(db: Database, ref: ReleaseRef, names: dict[str, Any], places: Places, spent: I64) -> None:
    """Give back the part of a worst case that committed rows did not use (docs/spec/privacy.md#expost).

    This is valid under a pure cap alone: along every path the sum stays below the cap. The number of steps must follow
    from what is released or from coins that no text decides, never from anything else in the input. The guarantee of
    the record stays its worst case; only the balance of its unit gets the difference back.
    """
    db.releases.require_refundable(ref)
    for batch, group in places.groups():
        pinned, rows, used = db.scopes.of_batch(batch), places.row[group], spent[group]
        worst = db.segments.read(batch, [PURE])[PURE][rows]
        if (used < 0).any() or (used > worst).any():
            raise LedgerError(
                f"{counted(int((used > worst).sum()), 'record')} used more than was reserved; nothing was committed"
            )
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
    """Record what post-processing made of released texts: spend 0, and the first result is the one that is published.

    Call it inside a transaction. Specification: docs/spec/privacy.md#rewrite-again.
    """
    db.releases.require_usable(ref)
    if not steps or any(step.get("training_provenance") not in PROVENANCES for step in steps):
        allowed = " or ".join(map(repr, PROVENANCES))
        raise LedgerError(f"post-processing costs nothing only where its training_provenance is {allowed}")
    db.store.lock(db.records.states_lock_name(ref))
    holdings = db.look_up(ref, records.ids, records.distinct_order)
    missing = int((~holdings.committed).sum())
    if missing:
        raise LedgerError(
            f"{counted(missing, 'record is', 'records are')} not committed, so nothing of them is rewritten",
            "commit them before",
        )
    done, first = db.records.postprocessed(holdings.places, chain)
    outcome = np.full(records.ids.size, CommitOutcome.COMMITTED, np.uint8)
    outcome[done] = np.where((first != digests).any(axis=1), CommitOutcome.DIVERGED, CommitOutcome.ALREADY)[done]
    if not done.all():
        places = holdings.places.take(~done)
        columns = places.columns() | {"digest": digests[~done]}
        facts = {"job": job, "release": ref.id, "nonce": ref.nonce, "spend": 0, "chain": chain}
        seq = db.segments.append(Event.POST, columns, **facts, steps=[dict(step) for step in steps])
        db.records.note_postprocessed(places, seq)
    return outcome


class Reserved(NamedTuple):
    seq: int
    release: int
    nonce: int
    attached: int
    states: U8

    @property
    def open(self) -> Mask:
        still_open: Mask = self.states == State.RESERVED
        return still_open


def expire(db: Database, job: str, reason: str | None) -> int:
    return sum(_end(db, job, batch, Event.EXPIRE, reason) for batch in _batches(db, job))


def abort(db: Database, job: str, reason: str | None) -> int:
    batches, pins, moved = _batches(db, job), db.releases.pins(), 0
    if any((batch.states == State.COMMITTED).any() for batch in batches):
        raise LedgerError("the job has committed records: its computation has started", "expire it: charges stay")
    if any(batch.attached for batch in batches):
        raise LedgerError("another job relies on the reservations of this one", "expire it: charges stay")
    if any(batch.open.any() and batch.seq < pins.get((batch.release, batch.nonce), 0) for batch in batches):
        msg = "a table was pinned over the reservations of this job, and draws from it may have been seen"
        raise LedgerError(msg, "expire it: charges stay; or run the same table again, which finishes it at no cost")
    for batch in batches:
        if db.journal.facts(batch.seq).get(AGAIN):
            _end(db, job, batch, Event.EXPIRE, reason)  # aborted, it would hide the texts before it
        elif _end(db, job, batch, Event.ABORT, reason):
            moved += int(batch.open.sum())
    return moved


def _batches(db: Database, job: str) -> list[Reserved]:
    rows = db.store.rows("select seq, release, nonce, attached, state from batch where job=? order by seq", (job,))
    return [Reserved(row[0], row[1], row[2], row[3], np.frombuffer(row[4], np.uint8)) for row in rows]


def _end(db: Database, job: str, batch: Reserved, kind: Event, reason: str | None) -> int:
    state, column = _ENDS[kind]
    rows = np.flatnonzero(batch.open)
    if len(rows):
        places = Places(np.full(len(rows), batch.seq, np.int64), rows)
        facts = {} if reason is None else {"reason": reason}
        db.segments.append(kind, places.columns(), job=job, release=batch.release, nonce=batch.nonce, **facts)
        db.records.move(places, state)
        db.store.execute(
            f"update tally set {column} = {column} + ? where release=? and nonce=?",  # noqa: S608
            (len(rows), batch.release, batch.nonce),
        )
    return len(rows)
