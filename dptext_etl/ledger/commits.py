"""Compare the results of a batch with its reservation, commit them, or end reservations.

The first result is the release; a later one that differs is recorded and discarded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl.errors import InputError, LedgerError, bare, counted
from dptext_etl.guarantee import PURE
from dptext_etl.ledger.charges import Charges, scope_lock, states_lock, whole_numbers
from dptext_etl.ledger.contents import PROVENANCES, Batch
from dptext_etl.ledger.holdings import Database, Holdings, Places
from dptext_etl.ledger.people import are_forgotten
from dptext_etl.ledger.storage.hashed_ids import Bytes, HashedIds, Index, RecordIds, hashed_ids, matrix
from dptext_etl.ledger.storage.segments import Blob, seal
from dptext_etl.ledger.types import I64, U8, CommitOutcome, Event, Mask, ReleaseRef, State, require_plain

REFUNDED_MEASURE = "pure"
_EXPIRE = "expire it: charges stay"


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


class Commits(Charges):
    """Commit the results of charged batches, or end their reservations."""

    @bare
    def examine(
        self,
        ref: ReleaseRef,
        ids: pa.Array,
        idem_keys: pa.Array,
        digests: pa.Array,
        *,
        positions: npt.ArrayLike | None = None,
        canary: Mask | None = None,
        spent: npt.ArrayLike | None = None,
    ) -> PreparedCommit:
        """Compare results with their reservation, and encode them for `commit`; nothing is written.

        Args:
            ref: The release.
            ids: Canonical record ids, each once.
            idem_keys: The identities that were reserved, fixed-size binary (32).
            digests: Digests of the texts, fixed-size binary (32). The texts need not be staged yet.
            positions: Draw counts, shape (records,), at most as many as were reserved; 0 if None.
            canary: Marks canary rows, as they were reserved.
            spent: The pure epsilon that each record used, in millionths, at most the reserved one. Under a pure cap
                the ledger then charges this instead of the worst case; the release must be refundable.

        Returns:
            The results with their comparison.

        Raises:
            LedgerError: A record was not reserved with this identity.
            InputError: There is not one identity and one digest per record.
        """
        records = self._db.id_key.records(ids, canary)
        size, _ = records.ids.size, records.distinct
        identities, staged = hashed_ids(matrix(idem_keys, "idem keys")), matrix(digests, "digests")
        if not size == identities.size == len(staged):
            raise InputError("a commit has one idem key and one digest per record", "pass arrays of the same length")
        drawn = whole_numbers(0 if positions is None else positions, size, "positions")
        used = None if spent is None else whole_numbers(spent, size, "spent epsilons")
        with self._db.store.snapshot():
            return _examine(self._db, Results(ref, records, identities, staged, drawn, used))

    @bare
    def commit(self, job: str, ready: PreparedCommit) -> U8:
        """Commit examined results that are durably staged; they become the release.

        Args:
            job: The name of the caller.
            ready: The result of `examine` in this ledger. The reserved charge stays unless it was given `spent`.

        Returns:
            A `CommitOutcome` per record. Never publish a row that DIVERGED: the first commit is the release.

        Raises:
            LedgerError: The release was revoked, or a record was forgotten; nothing is committed.
        """
        work = partial(_commit, self._db, job, ready)
        return self._db.store.write(ready.outcome.size, work)

    @bare
    def post(  # noqa: PLR0917
        self,
        job: str,
        ref: ReleaseRef,
        chain: str,
        steps: Sequence[Mapping[str, Any]],
        ids: pa.Array,
        digests: pa.Array,
        *,
        canary: Mask | None = None,
    ) -> U8:
        """Record the staged results of post-processing. This spends nothing, and the first result is the published one.

        Specification: docs/spec/privacy.md#rewrite-again.

        Args:
            job: The name of the caller.
            ref: The release; its records are committed.
            chain: The hash that names the post-processings in their order (`postprocessing.chain`).
            steps: Facts of each step: `name`, `cfg`, `model_hash`, `training_provenance`.
            ids: Canonical record ids, each once.
            digests: Digests of the staged results, fixed-size binary (32).
            canary: Marks canary rows, as they were reserved.

        Returns:
            A `CommitOutcome` per record. Never publish a row that DIVERGED: the first result under a chain is the one.

        Raises:
            LedgerError: A record is not committed, or a post-processing does not declare its training data.
            InputError: There is not one digest per record.
        """
        db, records, staged = self._db, self._db.id_key.records(ids, canary), matrix(digests, "digests")
        if len(records.distinct) != len(staged):
            raise InputError("post-processing has one digest per record")

        def record() -> U8:
            db.contents.latest().require_usable(ref)
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
            outcome[rewritten] = np.where((first != staged).any(axis=1), CommitOutcome.DIVERGED, CommitOutcome.ALREADY)[
                rewritten
            ]
            if not rewritten.all():
                places = holdings.places.take(~rewritten)
                columns = places.columns() | {"digest": staged[~rewritten]}
                facts = {"job": job, "release": ref.id, "nonce": ref.nonce, "spend": 0, "chain": chain}
                db.journal.append_rows(Event.POST, columns, **facts, steps=[dict(step) for step in steps])
            return outcome

        return db.store.write(len(staged), record)

    def expire(self, job: str, *, reason: str | None = None) -> int:
        """Turn the open reservations of a job into lasting charges, and return how many records that were.

        An expired record can still be committed with the same identity. It can never be given back.

        Args:
            job: The job.
            reason: Why, in a few plain words that the journal keeps; never a text.

        Raises:
            LedgerError: The reason is long or holds other signs.
        """
        require_plain(reason, "expiry")
        with self._db.store.transaction():
            return sum(_end(self._db, batch, Event.EXPIRE, reason) for batch in _batches(self._db, job))

    def abort(self, job: str, *, compute_never_started: bool, reason: str | None = None) -> int:
        """Give back the open reservations of a job, and return how many records that were.

        Args:
            job: The job.
            compute_never_started: The caller confirms that no text of the job was scored.
            reason: Why, in a few plain words that the journal keeps; never a text.

        Raises:
            LedgerError: The caller does not confirm it, the ledger holds a commit of the job, a table was pinned over
                its reservations (docs/spec/privacy.md#abort), or the reason is long or holds other signs.
        """
        require_plain(reason, "refund")
        if not compute_never_started:
            raise LedgerError("a reservation is given back only if compute never started", _EXPIRE)
        with self._db.store.transaction():
            db = self._db
            batches, pins, moved = _batches(db, job), db.contents.pins, 0
            if any((db.records.states(batch.seq) == State.COMMITTED).any() for batch in batches):
                raise LedgerError("the job has committed records: its computation has started", _EXPIRE)
            if any(batch.attached for batch in batches):
                raise LedgerError("another job relies on the reservations of this one", _EXPIRE)
            if any(batch.seq < pins.get(batch.key, (0,))[0] and len(_open_rows(db, batch)) for batch in batches):
                msg = "a table was pinned over the reservations of this job, and draws from it may have been seen"
                raise LedgerError(msg, f"{_EXPIRE}; or run the same table again, which finishes it at no cost")
            for batch in batches:
                if batch.again:
                    _end(db, batch, Event.EXPIRE, reason)  # aborted, it would hide the texts before it
                else:
                    moved += _end(db, batch, Event.ABORT, reason)
            return moved


def _examine(db: Database, results: Results) -> PreparedCommit:
    """Compare results with the reserved and committed records, and encode them. Call it inside a snapshot."""
    db.contents.latest().require_usable(results.ref)
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


def _commit(db: Database, job: str, ready: PreparedCommit) -> U8:
    """Commit a batch, if no other writer moved its records meanwhile. Call it inside a transaction."""
    ref, records, spent = ready.results.ref, ready.results.records.ids, ready.results.spent
    db.contents.latest().require_usable(ref)
    rows = int(are_forgotten(db, ref.dataset, records).sum())
    if rows:
        msg = f"{rows:,} of {records.size:,} records were forgotten since they were reserved; none of them is released"
        raise LedgerError(msg, "run again: forgotten records are excluded then")
    # Giving back changes balances, so the scopes come first, as in `reserve`; other commits leave them to reservations.
    if spent is not None:
        batches = np.unique(ready.holdings.places.batch).tolist()
        db.store.lock(*(scope_lock(db.scopes.of_batch(batch)) for batch in batches))
    db.store.lock(states_lock(ref))
    # `_examine` read the states without this lock; where another writer changed them since, it reads all once more.
    if (db.records.states_of(ready.holdings.places) != ready.holdings.state).any():
        ready = _examine(db, ready.results)
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
