"""Pin releases and caps, and record publications, revocations and frozen datasets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dptext_etl.errors import LedgerError, bare
from dptext_etl.guarantee import Guarantee, Micro, Spend
from dptext_etl.ledger.audit.reader import Reader
from dptext_etl.ledger.operations.attribution import accept_units
from dptext_etl.ledger.operations.batch import Ready
from dptext_etl.ledger.operations.erasure import forget, readmit
from dptext_etl.ledger.operations.foretelling import Foretold, foretell
from dptext_etl.ledger.operations.freezing import Loss, refuse_frozen_group
from dptext_etl.ledger.operations.publish import publish, retire
from dptext_etl.ledger.operations.releases import refuse_frozen, stated
from dptext_etl.ledger.operations.scopes import Pinned, limits
from dptext_etl.ledger.operations.settle import rebuild, require_finite
from dptext_etl.ledger.storage.store import open_store
from dptext_etl.ledger.terms import Anchor, ReleaseRef, Scope
from dptext_etl.mechanism import worst_spend
from dptext_etl.policy import Cap, ColumnPolicy, Policy

_REASON = re.compile(r"[\w .:,()/+-]{1,200}", re.ASCII)


class Keeper(Reader):
    """Pin names and caps, and record what becomes of releases. Every method is one transaction."""

    @staticmethod
    def migrate(url: str | Path, *, timeout: float = 60.0) -> int:
        """Bring a ledger of an older schema to the schema of this version, in one transaction."""
        store = open_store(str(url), create=False, timeout=timeout, migrate=True)
        try:
            return store.version
        finally:
            store.close()

    def fold_log(self) -> None:
        """Do now, in any thread, what closing this ledger would wait for; what fails here is left to that."""
        with suppress(LedgerError):
            self._book.store.fold_log()

    def register(
        self,
        policy: ColumnPolicy,
        id_type: str,
        *,
        guarantee: Guarantee | None = None,
        worst_case: Spend | None = None,
        pin: bool = True,
    ) -> ReleaseRef:
        """Pin the release of a column policy (see `pin_release`)."""
        if policy.column is None:
            raise LedgerError("the policy names no column", "give ColumnPolicy(column=…)")
        mechanism = policy.mechanism
        return self.pin_release(
            dataset=policy.dataset,
            column=policy.column,
            release=policy.release,
            cfg=mechanism.cfg(),
            id_type=id_type,
            mechanism=mechanism.name,
            guarantee=guarantee or mechanism.guarantee,
            worst_case=worst_case or worst_spend(mechanism),
            publishable=mechanism.mode == "strict",
            configuration=mechanism.configuration(),
            artifact_hashes={name: artifact.sha256 for name, artifact in mechanism.artifacts().items()},
            nonce=policy.nonce,
            refundable=mechanism.refundable,
            pin=pin,
        )

    def pin_release(
        self,
        *,
        dataset: str,
        column: str,
        release: str,
        cfg: str,
        id_type: str,
        mechanism: str,
        guarantee: Guarantee,
        worst_case: Spend,
        publishable: bool,
        configuration: Mapping[str, Any] | None = None,
        artifact_hashes: Mapping[str, str] | None = None,
        nonce: int = 0,
        refundable: bool = False,
        pin: bool = True,
    ) -> ReleaseRef:
        """Pin a release name to a configuration, or find it pinned to the same. All that is stated is public.

        Without `pin` it is refused all the same where it would be, and nothing is written.
        """
        facts = stated(guarantee, worst_case)
        facts |= {"configuration": dict(configuration or {}), "artifact_hashes": dict(artifact_hashes or {})}
        if refundable:
            facts |= {"expost": True}
        names = {"dataset": dataset, "column": column, "release": release, "cfg": cfg}
        names |= {"id_type": id_type, "mechanism": mechanism}
        register = partial(self._book.releases.register, names, facts, publishable=publishable, nonce=nonce, pin=pin)
        if pin:
            return self._book.store.write(0, register)
        with self._book.store.snapshot():
            return register()

    def pin_table(self, ref: ReleaseRef, digest: str) -> None:
        """Pin the records and texts that a release is drawn from as a whole, before the first draw.

        Args:
            ref: The release.
            digest: A keyed digest of all of them, 64 hex digits.

        Raises:
            LedgerError: Other records or texts are pinned, or the release is revoked.
        """
        with self._book.store.transaction():
            self._book.releases.pin_table(ref, digest)

    def pinned_table(self, ref: ReleaseRef) -> str | None:
        """Return the digest that is pinned of the records and texts of a release, or None."""
        with self._book.store.snapshot():
            return self._book.releases.pinned_table(ref)

    def find(self, policy: ColumnPolicy) -> ReleaseRef | None:
        """Return the release that a column policy names, also a revoked one, or None. Registers nothing."""
        names = (policy.dataset, policy.column or "", policy.release, policy.mechanism.cfg())
        return self._found(names, policy.nonce)

    def find_all(self, policy: Policy) -> dict[str, ReleaseRef]:
        """Return the releases that a policy names, by text column, as `find` does; those of no name are left out."""
        if policy.synthetic is None:
            found = {item.column or "": self.find(item) for item in policy.column_policies()}
        else:
            names = (policy.dataset, policy.synthetic.column, policy.release, policy.statistic.cfg())
            found = {policy.synthetic.column: self._found(names)}
        return {name: ref for name, ref in found.items() if ref is not None}

    def _found(self, names: tuple[str, str, str, str], nonce: int = 0) -> ReleaseRef | None:
        with self._book.store.snapshot():
            found = self._book.store.row(
                "select id from release where dataset=? and col=? and release=? and cfg=?", names
            )
        return None if found is None else ReleaseRef(int(found[0]), *names, nonce)

    def set_cap(self, scope: Scope, cap: Cap, *, raising: bool = False) -> None:
        """Pin the cap of a scope, or change it; a lower one needs no leave here, because it is asked for by name."""
        with self._book.store.transaction():
            self._capped(scope, cap, raising=raising, lowering=True)

    def agree_on_cap(self, scope: Scope, cap: Cap, *, lowering: bool = False) -> None:
        """Pin the cap of a policy before anything is charged, or refuse one that differs from the pinned cap."""

        def agree() -> None:
            refuse_frozen(self._book.store, scope.dataset)
            self._capped(scope, cap, raising=False, lowering=lowering)

        self._book.store.write(0, agree)

    def require_cap(self, scope: Scope, cap: Cap | None, *, lowering: bool = False) -> None:
        """Refuse what `agree_on_cap` would refuse, or charges without a cap where there is one; nothing is written."""
        with self._book.store.snapshot():
            refuse_frozen(self._book.store, scope.dataset)
            refuse_frozen_group(self._book.store, scope.group)
            self._book.scopes.require(scope, cap, lowering=lowering)
            pinned = self._book.scopes.find(scope)
            if cap is not None and pinned is not None and pinned.measure is None:
                require_finite(self._book, pinned._replace(measure=cap.measure, limits=limits(cap)))

    @bare
    def foretell(self, scope: Scope, ready: Ready, *, again: bool = False) -> Foretold:
        """Say what `reserve` would answer to a batch if there was no cap; nothing is written.

        Args:
            scope: Where the spends would add up.
            ready: What `make_ready` made of the batch; a release that is not pinned yet has the number `terms.NEW`.
            again: As `reserve` takes it.

        Raises:
            LedgerError: A release is revoked, or a record was charged to another unit before.
        """
        with self._book.store.snapshot():
            self._book.forget_dead_runs()
            return foretell(self._book, scope, ready.batch, ready.columns, again=again)

    def record_publication(
        self, refs: ReleaseRef | Sequence[ReleaseRef], version: str, manifest: str, rows: int
    ) -> None:
        """Record a publication. The same publication again changes nothing."""
        listed = [refs] if isinstance(refs, ReleaseRef) else list(refs)
        with self._book.store.transaction():
            publish(self._book, listed, version, manifest, rows)

    def retire(self, refs: Sequence[ReleaseRef], place: str, version: str, manifest: str, rows: int) -> None:
        """Record a version from which rows were taken away, and retire what was published at its place before.

        Charges stay, as HMACs; a revoked or frozen release may be retired, too. The same call again changes nothing.
        """
        with self._book.store.transaction():
            retire(self._book, list(refs), place, version, manifest, rows)

    def forget(self, dataset: str, records: pa.Array, subjects: pa.Array) -> int:
        """Note records as forgotten in all releases of a dataset: nothing of them is released until `readmit`.

        Specification: docs/spec/privacy.md#forgotten.
        """
        hashed = self._book.id_key.records(records, np.zeros(len(records), np.bool_)).hashed
        units = self._book.id_key.subjects(subjects, np.zeros(len(subjects), np.bool_))
        with self._book.store.transaction():
            return forget(self._book, dataset, hashed, units)

    def readmit(self, dataset: str, records: pa.Array, reason: str) -> int:
        """Let forgotten records of a dataset be released again, and return how many there are."""
        require_plain(reason, "readmission")
        hashed = self._book.id_key.records(records, np.zeros(len(records), np.bool_)).hashed
        with self._book.store.transaction():
            refuse_frozen(self._book.store, dataset)
            return readmit(self._book, dataset, hashed, reason)

    def revoke(self, ref: ReleaseRef, reason: str) -> None:
        """Revoke a release name in all columns of its dataset. Nothing more happens under it; its charges stay."""
        self.revoke_name(ref.dataset, ref.release, reason)

    def revoke_name(self, dataset: str, release: str, reason: str) -> None:
        """Revoke a release name, as `revoke` does, by what it is called."""
        require_plain(reason, "revocation")
        with self._book.store.transaction():
            self._book.releases.require_known(dataset, release)
            self._book.releases.revoke_name(dataset, release, reason)

    def freeze(
        self,
        dataset: str,
        reason: str,
        *,
        in_use: Sequence[str] = (),
        missing: Anchor | None = None,
        groups: Sequence[str] = (),
        alone: bool = False,
    ) -> None:
        """Freeze a dataset: until it is thawed, nothing in it is registered, charged, committed or published.

        Where charges may be forgotten, they may be forgotten in every scope that the dataset shares. So its groups
        freeze with it, for all periods, and all datasets in them.
        """
        require_plain(reason, "freeze")
        if alone and (in_use or missing is not None or groups):
            raise LedgerError("a dataset freezes alone only where nothing was lost", "leave `alone` out")
        loss = None if alone else Loss(in_use, missing, groups)
        with self._book.store.transaction():
            self._book.freezes.freeze(dataset, reason, loss)

    def thaw(self, dataset: str, lost: Mapping[str, float]) -> dict[str, dict[str, Micro]]:
        """Let a frozen dataset and all that froze with it go on.

        Their releases are revoked, and their caps are lowered by what may have been lost.

        Specification: docs/spec/privacy.md#lost-ledger.
        """
        with self._book.store.transaction():
            return self._book.freezes.thaw(dataset, lost)

    def accept_units(self, dataset: str, lost: Mapping[str, float], reason: str) -> dict[str, dict[str, Micro]]:
        """Let the records that a dataset holds arrive under other units, and its columns of ids be named anew.

        The caps of the dataset are lowered by what a unit may have been charged under another name.

        Specification: docs/spec/privacy.md#same-unit.
        """
        require_plain(reason, "change of units")
        with self._book.store.transaction():
            return accept_units(self._book, dataset, lost, reason)

    def _capped(self, scope: Scope, cap: Cap | None, *, raising: bool, lowering: bool) -> Pinned:
        scopes = self._book.scopes
        uncounted = [] if cap is None else scopes.uncounted(scope)
        pinned = scopes.ensure(scope)
        if cap is None:
            scopes.require_capped(scope, pinned)
        scopes.refuse_all_time(scope)
        if cap is None:
            return pinned
        if uncounted and not raising:
            refuse_frozen(self._book.store, scope.dataset)
            refuse_frozen_group(self._book.store, scope.group)
        capped = scopes.set_cap(scope, pinned, cap, uncounted, raising=raising, lowering=lowering)
        if pinned.measure is None:
            rebuild(self._book, capped)
        return capped


def require_plain(reason: str, what: str) -> None:
    """Refuse a reason that could hold a text."""
    if not _REASON.fullmatch(reason):
        allowed = "at most 200 letters, digits, blanks and . : , ( ) / + -"
        raise LedgerError(f"the reason of a {what} must be short and plain: {allowed}")
