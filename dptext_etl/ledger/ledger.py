"""Charge batches and commit their results (docs/spec/privacy.md#ledger)."""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path
from typing import Self

from dptext_etl import keys
from dptext_etl._kernel import Secret
from dptext_etl.errors import KeyReferenceError, LedgerError
from dptext_etl.ledger.commits import Commits
from dptext_etl.ledger.holdings import Database
from dptext_etl.ledger.storage.hashed_ids import (
    check_value,
    ensure_key_file,
    resolve_id_key,
)
from dptext_etl.ledger.storage.opening import open_store
from dptext_etl.ledger.storage.sqlite import MemoryStore
from dptext_etl.ledger.storage.store import Store
from dptext_etl.ledger.types import Scope, require_plain
from dptext_etl.policy import Cap


class Ledger(Commits):
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
