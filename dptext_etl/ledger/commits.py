"""Compare the results of a batch with its reservation, commit them, or end reservations.

The first result is the release; a later one that differs is recorded and discarded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dptext_etl.errors import LedgerError, counted
from dptext_etl.guarantee import PURE
from dptext_etl.ledger.charges import scope_lock, states_lock
from dptext_etl.ledger.contents import PROVENANCES, Batch
from dptext_etl.ledger.holdings import Database, Holdings, Places
from dptext_etl.ledger.people import are_forgotten
from dptext_etl.ledger.storage.hashed_ids import Bytes, HashedIds, Index, RecordIds
from dptext_etl.ledger.storage.segments import Blob, seal
from dptext_etl.ledger.types import I64, U8, CommitOutcome, Event, ReleaseRef, State

REFUNDED_MEASURE = "pure"


class Results(NamedTuple):
    """The results of a batch in a release, shape (records,) or (records, 32)."""

    ref: ReleaseRef
    records: RecordIds  # hashed record ids
    identities: HashedIds  # identities of the texts
    digests: Bytes  # digests of the staged texts
    positions: I64  # draw counts
    spent: I64 | None  # the pure epsilon that was used, in millionths; None charges the reserved worst case


class PreparedCommit(NamedTuple):
    """Results that were compared with the state of the release: they are ready to be committed."""

    results: Results
    holdings: Holdings  # state of the records in the release
    outcome: U8  # a `CommitOutcome` per record, shape (records,)
    sealed: dict[Event, tuple[dict[str, Any], dict[str, Blob]]]  # facts and blobs of their events, by kind


def examine(db: Database, results: Results) -> PreparedCommit:
    """Compare results with the reserved and committed records, and encode them. Call it inside a snapshot."""
    db.releases.require_usable(results.ref)
    holdings = db.look_up(results.ref, results.records.ids, results.records.distinct)
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
    outcome = np.full(committed.size, CommitOutcome.COMMITTED, np.uint8)
    # A record has one released text: another result is recorded, and is never published.
    if committed.any():
        first, _ = db.records.digests_and_positions(holdings.places.take(committed))
        differs = (first != results.digests[committed]).any(axis=1)
        outcome[committed] = np.where(differs, CommitOutcome.DIVERGED, CommitOutcome.ALREADY)
    sealed = {}
    for event, kind in ((Event.COMMIT, CommitOutcome.COMMITTED), (Event.DIVERGED, CommitOutcome.DIVERGED)):
        rows = np.flatnonzero(outcome == kind)
        if len(rows):
            columns = holdings.places.take(rows).columns()
            columns |= {"positions": results.positions[rows], "digest": results.digests[rows]}
            sealed[event] = seal(event, columns)
    return PreparedCommit(results, holdings, outcome, sealed)


def commit(db: Database, job: str, ready: PreparedCommit) -> U8:
    """Commit a batch, if no other writer moved its records meanwhile. Call it inside a transaction."""
    ref, records, spent = ready.results.ref, ready.results.records.ids, ready.results.spent
    db.releases.require_usable(ref)
    rows = int(are_forgotten(db, ref.dataset, records).sum())
    if rows:
        msg = f"{rows:,} of {records.size:,} records were forgotten since they were reserved; none of them is released"
        raise LedgerError(msg, "run again: forgotten records are excluded then")
    # Giving back changes balances, so the scopes come first, as in `reserve`; other commits leave them to reservations.
    if spent is not None:
        batches = np.unique(ready.holdings.places.batch).tolist()
        db.store.lock(*(scope_lock(db.scopes.of_batch(batch)) for batch in batches))
    db.store.lock(states_lock(ref))
    # `examine` read the states without this lock; where another writer changed them since, it reads all once more.
    if (db.records.states_of(ready.holdings.places) != ready.holdings.state).any():
        ready = examine(db, ready.results)
    names: dict[str, Any] = {"job": job, "release": ref.id, "nonce": ref.nonce}
    if Event.COMMIT in ready.sealed:
        new = np.flatnonzero(ready.outcome == CommitOutcome.COMMITTED)
        expired = int((ready.holdings.state[new] == State.EXPIRED).sum())
        facts = names | ({"expired": expired} if expired else {})
        db.journal.append_sealed(Event.COMMIT, *ready.sealed[Event.COMMIT], **facts)
        if spent is not None:
            _refund(db, ref, names, ready.holdings.places.take(new), spent[new])
    if Event.DIVERGED in ready.sealed:
        db.journal.append_sealed(Event.DIVERGED, *ready.sealed[Event.DIVERGED], **names)
    return ready.outcome


def _refund(db: Database, ref: ReleaseRef, names: dict[str, Any], places: Places, spent: I64) -> None:
    """Give back the part of a worst case that committed rows did not use (docs/spec/privacy.md#expost).

    This is valid only under a pure cap: along every path the sum stays below the cap. The number of steps must follow
    from the released text or from coins that no text decides, never from anything else in the input. The guarantee of
    the record stays its worst case; only the balance of its unit gets the difference back.
    """
    if not db.contents.latest().releases[ref.id].facts.get("expost", False):
        hint = "leave `spent` out; the worst case stays charged, because the number of steps may tell of a text"
        raise LedgerError(f"{ref} is not refundable: it was pinned without refundable=True", hint)
    for batch, group in places.groups():
        pinned, rows, used = db.scopes.of_batch(batch), places.row[group], spent[group]
        worst = db.journal.read(batch, [PURE])[PURE][rows]
        if (used < 0).any() or (used > worst).any():
            msg = f"{counted(int((used > worst).sum()), 'record')} used more than was reserved; nothing was committed"
            raise LedgerError(msg, "reserve the worst case of the mechanism")
        if pinned.measure == REFUNDED_MEASURE:
            settled = {"batch": np.full(len(rows), batch, np.int64), "row": rows, PURE: used}
            db.journal.append_rows(Event.SETTLE, settled, **names)


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
    db.store.lock(states_lock(ref))
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
        db.journal.append_rows(Event.POST, columns, **facts, steps=[dict(step) for step in steps])
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
        db.journal.append_rows(kind, places.columns(), job=batch.job, release=release, nonce=nonce, **facts)
    return len(rows)
