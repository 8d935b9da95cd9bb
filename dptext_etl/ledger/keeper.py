"""Pin releases and caps, and record publications, revocations and frozen datasets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dptext_etl.errors import LedgerError
from dptext_etl.guarantee import Guarantee, Micro, Spend
from dptext_etl.ledger.audit.reader import Reader
from dptext_etl.ledger.operations.attribution import accept_units
from dptext_etl.ledger.operations.erasure import forget, readmit
from dptext_etl.ledger.operations.freezing import Loss, refuse_frozen_group
from dptext_etl.ledger.operations.publish import publish, retire
from dptext_etl.ledger.operations.releases import refuse_frozen, stated
from dptext_etl.ledger.operations.scopes import Pinned
from dptext_etl.ledger.operations.settle import rebuild
from dptext_etl.ledger.storage.store import open_store
from dptext_etl.ledger.terms import Anchor, ReleaseRef, Scope
from dptext_etl.policy import Cap, ColumnPolicy

_REASON = re.compile(r"[\w .:,()/+-]{1,200}", re.ASCII)


class Keeper(Reader):
    """Pin names and caps, and record what becomes of releases. Every method is one transaction."""

    @staticmethod
    def migrate(url: str | Path, *, timeout: float = 60.0) -> int:
        """Bring a ledger of an older schema to the schema of this version, in one transaction.

        Args:
            url: The ledger, as `open` takes it.
            timeout: Seconds to wait for another writer.

        Returns:
            The schema that the ledger had before.

        Raises:
            LedgerError: There is no ledger, its schema is newer, or it is locked.
        """
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
    ) -> ReleaseRef:
        """Pin the release of a column policy (see `pin_release`).

        Args:
            policy: The policy of the column; it must name the column.
            id_type: The kind of the record ids, as `keys.id_type` names it.
            guarantee: The claim, where it is weaker than that of the mechanism.
            worst_case: The cost of the longest text, where it is more than that of the mechanism.

        Raises:
            LedgerError: As `pin_release`, or the policy names no column.
        """
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
            worst_case=worst_case or mechanism.worst_case(),
            publishable=mechanism.publishable,
            configuration=mechanism.configuration(),
            artifact_hashes={name: artifact.sha256 for name, artifact in mechanism.artifacts().items()},
            nonce=policy.nonce,
            refundable=mechanism.refundable,
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
    ) -> ReleaseRef:
        """Pin a release name to a configuration, or find it pinned to the same. All that is stated is public.

        Args:
            dataset: Name of the dataset.
            column: Name of the text column.
            release: Name of the release.
            cfg: Configuration hash, 64 hex digits.
            id_type: The kind of the record ids, as `keys.id_type` names it.
            mechanism: Name of the mechanism.
            guarantee: The claim.
            worst_case: The cost of the longest text, in millionths.
            publishable: Whether the release may leave the boundary.
            configuration: What `cfg` hashes, as data.
            artifact_hashes: SHA-256 of every public input, by role.
            nonce: Counts deliberate extra releases of one record under the name.
            refundable: Whether a commit may charge what was used instead of the worst case. It may only where the
                number of steps follows from what is released, or from coins that no text decides
                (docs/spec/privacy.md#expost).

        Raises:
            LedgerError: The name is revoked or pinned to something else, or the column has ids of another type.
        """
        facts = stated(guarantee, worst_case)
        facts |= {"configuration": dict(configuration or {}), "artifact_hashes": dict(artifact_hashes or {})}
        if refundable:
            facts |= {"expost": True}
        names = {"dataset": dataset, "column": column, "release": release, "cfg": cfg}
        names |= {"id_type": id_type, "mechanism": mechanism}
        register = self._book.releases.register
        return self._book.store.write(0, lambda: register(names, facts, publishable=publishable, nonce=nonce))

    def find(self, policy: ColumnPolicy) -> ReleaseRef | None:
        """Return the release that a column policy names, also a revoked one, or None. Registers nothing."""
        names = (policy.dataset, policy.column or "", policy.release, policy.mechanism.cfg())
        with self._book.store.snapshot():
            found = self._book.store.row(
                "select id from release where dataset=? and col=? and release=? and cfg=?", names
            )
        return None if found is None else ReleaseRef(int(found[0]), *names, policy.nonce)

    def set_cap(self, scope: Scope, cap: Cap, *, raising: bool = False) -> None:
        """Pin the cap of a scope, or change it; a lower one needs no leave here, because it is asked for by name.

        Args:
            scope: Where spends add up.
            cap: The most that a unit may lose there.
            raising: Allow a cap that is higher than the pinned one, or that does not count charges of other periods
                and groups (`uncounted`).

        Raises:
            LedgerError: The cap is higher, or does not count earlier charges, and `raising` is False; its measure
                differs, or earlier charges are infinite on it.
        """
        with self._book.store.transaction():
            self._capped(scope, cap, raising=raising, lowering=True)

    def agree_on_cap(self, scope: Scope, cap: Cap, *, lowering: bool = False) -> None:
        """Pin the cap of a policy before anything is charged, or refuse one that differs from the pinned cap.

        Args:
            scope: Where the spends of the run add up.
            cap: The cap of its policy.
            lowering: Anyone who runs the policy accepts that the pinned cap is lowered.

        Raises:
            LedgerError: The dataset is frozen, the cap is higher, lower without `lowering`, or of another measure, or
                it is a first one that would not count earlier charges.
        """

        def agree() -> None:
            refuse_frozen(self._book.store, scope.dataset)
            self._capped(scope, cap, raising=False, lowering=lowering)

        self._book.store.write(0, agree)

    def record_publication(
        self, refs: ReleaseRef | Sequence[ReleaseRef], version: str, manifest: str, rows: int
    ) -> None:
        """Record a publication. The same publication again changes nothing.

        Args:
            refs: The releases that it publishes.
            version: The name of the version.
            manifest: SHA-256 of its manifest, 64 hex digits.
            rows: The number of published rows, at most the number of committed rows.

        Raises:
            LedgerError: A release is revoked or not publishable, there are fewer commits than rows, or the version is
                recorded with another manifest.
        """
        listed = [refs] if isinstance(refs, ReleaseRef) else list(refs)
        with self._book.store.transaction():
            publish(self._book, listed, version, manifest, rows)

    def retire(self, refs: Sequence[ReleaseRef], place: str, version: str, manifest: str, rows: int) -> None:
        """Record a version from which rows were taken away, and retire what was published at its place before.

        Charges stay, as HMACs; a revoked or frozen release may be retired, too. The same call again changes nothing.

        Args:
            refs: The releases that it publishes.
            place: What the names of the place's versions begin with: a partition and "/", or nothing.
            version: The name of the version.
            manifest: SHA-256 of its manifest, 64 hex digits.
            rows: The number of rows that stay, at most as many as were published.

        Raises:
            LedgerError: Nothing, or fewer rows, were published there.
        """
        with self._book.store.transaction():
            retire(self._book, list(refs), place, version, manifest, rows)

    def forget(self, dataset: str, records: pa.Array, subjects: pa.Array) -> int:
        """Note records as forgotten in all releases of a dataset: nothing of them is released until `readmit`.

        Args:
            dataset: Its name.
            records: Canonical record ids, strings, no nulls; the ledger need not know them.
            subjects: Canonical subject ids: all records that were ever charged to them are forgotten.

        Returns:
            The number of records that were not forgotten before.

        Specification: docs/spec/privacy.md#forgotten.
        """
        hashed = self._book.id_key.records(records, np.zeros(len(records), np.bool_)).hashed
        units = self._book.id_key.subjects(subjects, np.zeros(len(subjects), np.bool_))
        with self._book.store.transaction():
            return forget(self._book, dataset, hashed, units)

    def readmit(self, dataset: str, records: pa.Array, reason: str) -> int:
        """Let forgotten records of a dataset be released again, and return how many there are.

        Args:
            dataset: Its name.
            records: Canonical record ids, strings, no nulls.
            reason: Why, in a few plain words that the journal keeps; never a text.

        Raises:
            LedgerError: A record is not forgotten, the dataset is frozen, or the reason is long or holds other signs.
        """
        require_plain(reason, "readmission")
        hashed = self._book.id_key.records(records, np.zeros(len(records), np.bool_)).hashed
        with self._book.store.transaction():
            refuse_frozen(self._book.store, dataset)
            return readmit(self._book, dataset, hashed, reason)

    def revoke(self, ref: ReleaseRef, reason: str) -> None:
        """Revoke a release name in all columns of its dataset. Nothing more happens under it; its charges stay.

        Args:
            ref: Any release of that name.
            reason: The name of the gate that fired, or a few plain words; never a text.

        Raises:
            LedgerError: The release is unknown, or the reason is long or holds other signs.
        """
        self.revoke_name(ref.dataset, ref.release, reason)

    def revoke_name(self, dataset: str, release: str, reason: str) -> None:
        """Revoke a release name, as `revoke` does, by what it is called.

        Args:
            dataset: Name of the dataset.
            release: The release name.
            reason: The name of the gate that fired, or a few plain words; never a text.

        Raises:
            LedgerError: The release is unknown, or the reason is long or holds other signs.
        """
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

        Args:
            dataset: Its name; the ledger need not know it yet.
            reason: Why, in a few plain words; never a text.
            in_use: Release names that are in use and that this ledger may not know; they are revoked.
            missing: An anchor that the ledger should hold and does not.
            groups: Groups that the dataset was charged in and that this ledger may not know.
            alone: No charge is forgotten, so nothing else freezes: such as after a key leaked.

        Raises:
            LedgerError: The reason is long or holds other signs, or `alone` contradicts what is said of a loss.
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

        Args:
            dataset: A frozen dataset.
            lost: The most that a unit may have been charged since the copy that is in use now, in all these datasets
                together, by component of the caps:
                {"eps_pure": 40.0}, {"rho": …} or {"eps_approx": …, "delta": …}.

        Returns:
            The caps that hold now, in millionths, by scope. The policies must ask for no more.

        Raises:
            LedgerError: The dataset is not frozen, or a component is not stated.

        Specification: docs/spec/privacy.md#lost-ledger.
        """
        with self._book.store.transaction():
            return self._book.freezes.thaw(dataset, lost)

    def accept_units(self, dataset: str, lost: Mapping[str, float], reason: str) -> dict[str, dict[str, Micro]]:
        """Let the records that a dataset holds arrive under other units, and its columns of ids be named anew.

        The caps of the dataset are lowered by what a unit may have been charged under another name.

        Args:
            dataset: Its name.
            lost: The most that a unit was charged under another name, by component of the caps: {"eps_pure": 40.0},
                {"rho": …} or {"eps_approx": …, "delta": …}; 0 where units only got other names of columns.
            reason: Why, in a few plain words that the journal keeps; never a text.

        Returns:
            The caps that hold now, in millionths, by scope. The policies must ask for no more.

        Raises:
            LedgerError: The ledger holds no record of the dataset, the dataset is frozen, a component is not stated, or
                the reason is long or holds other signs.

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
    """Refuse a reason that could hold a text.

    Raises:
        LedgerError: It is long, or holds other signs than those of plain words.
    """
    if not _REASON.fullmatch(reason):
        allowed = "at most 200 letters, digits, blanks and . : , ( ) / + -"
        raise LedgerError(f"the reason of a {what} must be short and plain: {allowed}")
