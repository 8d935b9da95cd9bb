"""Charge batches and commit their results (docs/spec/privacy.md#ledger)."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy.typing as npt
import pyarrow as pa

from dptext_etl import keys
from dptext_etl._kernel import Secret
from dptext_etl.errors import InputError, KeyReferenceError, LedgerError, bare
from dptext_etl.ledger import commits
from dptext_etl.ledger.caps import EarlierCharges, limits
from dptext_etl.ledger.charges import (
    Decision,
    PreparedBatch,
    Request,
    judge,
    prepare,
    reserve,
    whole_numbers,
)
from dptext_etl.ledger.commits import PreparedCommit, Results
from dptext_etl.ledger.holdings import KEPT, Database, LedgerPlan
from dptext_etl.ledger.reader import LedgerReader
from dptext_etl.ledger.storage.hashed_ids import (
    WantedIds,
    check_value,
    concatenated,
    ensure_key_file,
    hashed_ids,
    matrix,
    resolve_id_key,
)
from dptext_etl.ledger.storage.opening import open_store
from dptext_etl.ledger.storage.sqlite import MemoryStore
from dptext_etl.ledger.storage.store import Store
from dptext_etl.ledger.types import U8, Charge, IdForms, Mask, ReleaseRef, Scope, Unit, require_plain
from dptext_etl.policy import Cap


class Ledger(LedgerReader):
    """Charge, commit and read one open ledger.

    Every method is one transaction: its effect is on disk when it returns, or it has no effect. A release goes through
    these steps in order: reserve, compute, stage, commit, publish. Several processes may write at the same time.

    Example:
        >>> import pyarrow, tempfile
        >>> from dptext_etl import keys
        >>> from dptext_etl.guarantee import Guarantee, GuaranteeClass, Spend
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
        return prepare(self._db.id_key, unit, ids, subjects, charges, canary, sealed=sealed, own=own)

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
        return LedgerPlan(scope.dataset, WantedIds(concatenated(records)), WantedIds(concatenated(units).real()))

    def use(self, plan: LedgerPlan) -> None:
        """Answer calls that name only records of a plan from this plan.

        Args:
            plan: A plan of the same ledger.
        """
        self._db.plans.run = plan

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
        return reserve(self._db, job, scope, cap, batch, forms, again=again, refuse=on_cap == "refuse")

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
            request = Request.of(db, "", scope, pinned, ready, again=again)
            request.plan.catch_up(db)
            return judge(request, before)

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
        """
        records = self._db.id_key.records(ids, canary)
        size, _ = records.ids.size, records.distinct
        identities, staged = hashed_ids(matrix(idem_keys, "idem keys")), matrix(digests, "digests")
        if not size == identities.size == len(staged):
            raise InputError("a commit has one idem key and one digest per record", "pass arrays of the same length")
        drawn = whole_numbers(0 if positions is None else positions, size, "positions")
        used = None if spent is None else whole_numbers(spent, size, "spent epsilons")
        with self._db.store.snapshot():
            return commits.examine(self._db, Results(ref, records, identities, staged, drawn, used))

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
        work = partial(commits.commit, self._db, job, ready)
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
        """Record the staged results of post-processing. This spends nothing.

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
        work = partial(commits.record_postprocessing, db, job, ref, chain, steps, records, staged)
        return db.store.write(len(staged), work)

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
            return commits.expire(self._db, job, reason)

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
            raise LedgerError("a reservation is given back only if compute never started", "expire it: charges stay")
        with self._db.store.transaction():
            return commits.abort(self._db, job, reason)


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
