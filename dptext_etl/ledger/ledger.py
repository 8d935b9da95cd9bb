"""Charge batches, commit their results, or end reservations (docs/spec/privacy.md#ledger).

The first result of a record is the release; a later one that differs is recorded and discarded.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import keys
from dptext_etl._kernel import Secret
from dptext_etl.errors import InputError, KeyReferenceError, LedgerError, bare, counted
from dptext_etl.guarantee import PURE
from dptext_etl.ledger.charges import Charges, scope_lock, states_lock, whole_numbers
from dptext_etl.ledger.contents import PROVENANCES, Batch
from dptext_etl.ledger.holdings import REFUNDED, Database, Holdings, Places
from dptext_etl.ledger.people import are_forgotten
from dptext_etl.ledger.storage.hashed_ids import (
    Bytes,
    HashedIds,
    Index,
    RecordIds,
    check_value,
    ensure_key_file,
    hashed_ids,
    matrix,
    resolve_id_key,
)
from dptext_etl.ledger.storage.journal import Blob, seal
from dptext_etl.ledger.storage.store import (
    POSTGRES,
    MemoryStore,
    MissingLedgerError,
    SqliteStore,
    Store,
    resolve_url,
    sqlite_path,
)
from dptext_etl.ledger.types import I64, U8, CommitOutcome, Event, Mask, ReleaseRef, Scope, State, require_plain
from dptext_etl.policy import Cap

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


class Ledger(Charges):
    """Charge, commit and read one open ledger.

    Every method is one transaction: its effect is on disk when it returns, or it has no effect. A release goes through
    these steps in order: reserve, compute, stage, commit, publish. Several processes may write at the same time.

    Example:
        >>> import pyarrow, tempfile
        >>> from dptext_etl import keys
        >>> from dptext_etl.guarantee import Guarantee, GuaranteeClass, Spend
        >>> from dptext_etl.ledger import Charge, Scope
        >>> folder = tempfile.TemporaryDirectory()
        >>> ledger = Ledger.open(f"{folder.name}/ledger.db")
        >>> claim = Guarantee(GuaranteeClass.PURE_LDP, frozenset(), "any two texts", "record")
        >>> ref = ledger.releases.pin_release(dataset="reviews", column="review", release="1", cfg="ab" * 32,
        ...                      id_type="string", mechanism="custext", guarantee=claim,
        ...                      worst_case=Spend(eps_pure=2_000_000), publishable=True,
        ...                      key=keys.resolve(f"file:{folder.name}/ledger.db.id.key"))
        >>> ids, texts = pyarrow.array(["r1", "r2"]), pyarrow.array([b"1" * 32, b"2" * 32], pyarrow.binary(32))
        >>> charge = Charge(ref, texts, n_worst=[1, 1], spends={"eps_pure": [2_000_000, 2_000_000]})
        >>> batch = ledger.make_ready("subject", ids, pyarrow.array(["ann", "bob"]), [charge])
        >>> ledger.reserve("job-1", Scope("reviews"), None, batch).tolist()
        [0, 0]
        >>> ledger.commit("job-1", ledger.examine(ref, ids, texts, digests=texts)).tolist()
        [0, 0]
        >>> ledger.verify().ok
        True
        >>> ledger.close(); folder.cleanup()
    """

    @classmethod
    def open(
        cls,
        url: str | Path,
        id_key: str | None = None,
        *,
        create: bool = True,
        read_only: bool = False,
        timeout: float = 60.0,
    ) -> Self:
        """Open a ledger, or make a new one.

        Args:
            url: "sqlite:///PATH", a path, "postgresql://USER@HOST/DATABASE" (see `ledger.storage.postgres`), or
                "env:NAME", the variable that holds the URL.
            id_key: Reference to the id key; None uses "<path>.id.key", which is made with a new SQLite ledger.
            create: Make a new ledger if there is none.
            read_only: Never write.
            timeout: Seconds to wait for another writer.

        Returns:
            The open ledger; close it, or use it as a context manager.

        Raises:
            LedgerError: There is no ledger, its schema is newer, it is locked, or it has another id key.
            KeyReferenceError: The id key cannot be read.
        """
        if id_key is not None:
            keys.reference(id_key)
        store = open_store(str(url), create=create, read_only=read_only, timeout=timeout)
        try:
            if store.meta("ledger_id") is None and not read_only:
                _initialize(store, id_key)
            ledger = cls(Database(store, id_key))
            if id_key is not None:
                ledger.read_key()  # refuse a wrong key now, before a batch is prepared
        except BaseException:
            store.close()
            raise
        return ledger

    @classmethod
    def empty(cls, id_key: str | None = None) -> Self:
        """Make an empty ledger in memory, which is gone when it is closed: a plan without a ledger is judged by it.

        Args:
            id_key: Reference to the id key that a new ledger would have; None uses a key that is stored nowhere.

        Returns:
            The ledger.

        Raises:
            KeyReferenceError: The id key cannot be read.
        """
        store, secret = MemoryStore(), Secret() if id_key is None else resolve_id_key(id_key)
        _name(store, secret)
        ledger = cls(Database(store, id_key))
        ledger._db.id_key.secret = secret
        return ledger

    def read_key(self) -> None:
        """Read the id key, and compare it with the ledger's; then other threads may call `make_ready`.

        Raises:
            KeyReferenceError: The key is missing, malformed, readable by others, or printed in documents.
            LedgerError: The key belongs to another ledger.
        """
        _ = self._db.id_key.secret

    def checkpoint(self) -> None:
        """Checkpoint the store in any thread, so that closing is quick; closing reports what fails."""
        with suppress(LedgerError):
            self._db.store.checkpoint()

    def set_cap(self, scope: Scope, cap: Cap, *, raising: bool = False, reason: str | None = None) -> None:
        """Pin the cap of a scope, or change it; a lower cap needs no flag here, because the call names it.

        The journal keeps the reason.

        Args:
            scope: The scope whose cap changes.
            cap: The new cap.
            raising: Also allow a higher cap, a cap that starts everyone at zero, or an `approx` cap instead of a `pure`
                one of the same epsilon; refunds of commits then no longer count.
            reason: Short plain words that the journal keeps; never a text.

        Raises:
            LedgerError: The cap cannot be changed in this way, the reason is not plain, or this user is not a steward.
        """
        require_plain(reason, "cap")
        with self._db.store.transaction():
            self._db.store.require_steward()
            self._db.scopes.charge(scope, cap, raising=raising, lowering=True, reason=reason)

    def agree_on_cap(self, scope: Scope, cap: Cap | None, *, lowering: bool = False) -> None:
        """Pin the cap of a policy before anything is charged, or refuse one that differs from the pinned cap.

        In a `rehearsal`, nothing is pinned.

        Args:
            scope: The scope of the policy.
            cap: The cap of the policy; None if it has none, which is refused where a cap is pinned.
            lowering: Accept a cap below the pinned one.

        Raises:
            LedgerError: The cap differs from the pinned one, or the dataset is frozen.
        """

        def agree() -> None:
            self._db.contents.latest().refuse_frozen(scope.dataset, scope.group)
            self._db.scopes.charge(scope, cap, lowering=lowering)

        self._db.store.write(0, agree)

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
        return self._db.store.write(ready.outcome.size, partial(_commit, self._db, job, ready))

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
            if missing := int((~holdings.committed).sum()):
                msg = f"{counted(missing, 'record is', 'records are')} not committed, so nothing of them is rewritten"
                raise LedgerError(msg, "commit them before")
            rewritten, first = db.records.postprocessed(holdings.places, chain)
            outcome = np.full(records.ids.size, CommitOutcome.COMMITTED, np.uint8)
            differs = (first != staged).any(axis=1)[rewritten]
            outcome[rewritten] = np.where(differs, CommitOutcome.DIVERGED, CommitOutcome.ALREADY)
            if not rewritten.all():
                places = holdings.places.take(~rewritten)
                columns = places._asdict() | {"digest": staged[~rewritten]}
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
    same = holdings.present & holdings.idem_keys.equal(results.identities)
    if not same.all():
        missing, other = int((~holdings.present).sum()), int((holdings.present & ~same).sum())
        msg = f"{counted(missing, 'record was', 'records were')} never reserved in this release, "
        msg += f"{counted(other, 'was', 'were')} reserved with another text"
        raise LedgerError(f"{msg}; nothing was committed", "reserve the batch before you compute it")
    committed = holdings.state == State.COMMITTED
    # More draws than were reserved would lose more than was charged.
    if over := int((results.positions > db.records.reserved(holdings.places, "n_worst")).sum()):
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
            columns = holdings.places.take(rows)._asdict()
            columns |= {"positions": results.positions[rows], "digest": results.digests[rows]}
            sealed[event] = seal(event, columns)
    return PreparedCommit(results, holdings, outcome, sealed)


def _commit(db: Database, job: str, ready: PreparedCommit) -> U8:
    """Commit a batch, if no other writer moved its records meanwhile. Call it inside a transaction."""
    ref, records, spent = ready.results.ref, ready.results.records.ids, ready.results.spent
    db.contents.latest().require_usable(ref)
    if rows := int(are_forgotten(db, ref.dataset, records).sum()):
        msg = f"{rows:,} of {records.size:,} records were forgotten since they were reserved; none of them is released"
        raise LedgerError(msg, "run again: forgotten records are excluded then")
    # Giving back changes balances, so the scopes come first, as in `reserve`; other commits leave them to reservations.
    if spent is not None:
        batches, contents = np.unique(ready.holdings.places.batch).tolist(), db.contents.latest()
        db.store.lock(*(scope_lock(contents.scopes[contents.batches[batch].scope]) for batch in batches))
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
    contents = db.contents.latest()
    if not contents.releases[ref.id].facts.get("expost", False):
        hint = "leave `spent` out; the worst case stays charged, because the number of steps may tell of a text"
        raise LedgerError(f"{ref} is not refundable: it was pinned without refundable=True", hint)
    for batch, group in places.groups():
        pinned, rows, used = contents.scopes[contents.batches[batch].scope], places.row[group], spent[group]
        worst = db.journal.read(batch, [PURE])[PURE][rows]
        if (used < 0).any() or (used > worst).any():
            msg = f"{counted(int((used > worst).sum()), 'record')} used more than was reserved; nothing was committed"
            raise LedgerError(msg, "reserve the worst case of the mechanism")
        if pinned.components == REFUNDED:
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
        db.journal.append_rows(kind, places._asdict(), job=batch.job, release=release, nonce=nonce, **facts)
    return len(rows)


def _initialize(store: Store, id_key: str | None) -> None:
    """Give a new ledger its name and the check value of its id key."""
    if id_key is None:
        if store.key_file is None:
            msg = f"a new ledger at {store.name} needs its own id key"
            raise KeyReferenceError(msg, 'run `dptext key new PATH` and give id_key="file:PATH", the same everywhere')
        ensure_key_file(store.key_file)
    _name(store, resolve_id_key(id_key or f"file:{store.key_file}"))


def _name(store: Store, secret: Secret) -> None:
    with store.transaction():
        if store.meta("ledger_id") is None:  # no other process was faster
            name = secrets.token_hex(16)
            store.execute("insert into meta values('ledger_id',?)", (name,))
            store.execute("insert into meta values('id_check',?)", (check_value(secret, name),))


def open_store(url: str, *, create: bool = True, read_only: bool = False, timeout: float = 60.0) -> Store:
    url = resolve_url(url)
    if url.startswith(POSTGRES):
        from dptext_etl.ledger.storage.postgres import PostgresStore

        return PostgresStore(url, create=create, read_only=read_only, timeout=timeout)
    return SqliteStore(sqlite_path(url), create=create, read_only=read_only, timeout=timeout)


def ledger_exists(url: str) -> bool:
    """Return whether there is a ledger, or what opening it refuses; a full disk leaves empty files."""
    try:
        open_store(url, create=False, read_only=True).close()
    except MissingLedgerError:
        return False
    except LedgerError as error:
        if error.transient:  # an outage says nothing about the ledger
            raise
    return True


def require_writable(url: str) -> None:
    """Refuse a ledger that cannot be made or written to by this user; nothing is made."""
    if (url := resolve_url(url)).startswith(POSTGRES):
        from dptext_etl.ledger.storage import postgres

        postgres.require_writable(url)
        return
    path = sqlite_path(url)
    if not path.parent.is_dir() or path.is_dir():
        why = "it is a folder" if path.is_dir() else "there is no such folder"
        raise LedgerError(f"a ledger cannot be made at {path}: {why}", "the folder must exist and be writable")
    if not os.access(path.parent, os.W_OK | os.X_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise LedgerError(f"the ledger {path} cannot be written to", "file and folder must be writable")
