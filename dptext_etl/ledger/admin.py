"""Pin releases and caps, and record publications, revocations and frozen datasets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.errors import LedgerError
from dptext_etl.guarantee import Guarantee, Micro, Spend
from dptext_etl.ledger import identities
from dptext_etl.ledger.commit import abort, expire
from dptext_etl.ledger.freezing import Loss
from dptext_etl.ledger.reader import LedgerReader
from dptext_etl.ledger.releases import public_facts, refuse_frozen
from dptext_etl.ledger.types import Anchor, ReleaseRef, Scope
from dptext_etl.mechanism import worst_spend
from dptext_etl.policy import Cap, ColumnPolicy, Policy

_REASON = re.compile(r"[\w .:,()/+-]{1,200}", re.ASCII)


class LedgerAdmin(LedgerReader):
    """Pin names and caps, and record what becomes of releases. Every method is one transaction."""

    def checkpoint(self) -> None:
        """Do now, in any thread, what closing this ledger would wait for; what fails here is left to that."""
        with suppress(LedgerError):
            self._db.store.checkpoint()

    def register(
        self,
        policy: ColumnPolicy,
        id_type: str,
        *,
        guarantee: Guarantee | None = None,
        worst_case: Spend | None = None,
        proven: bool = False,
        pin: bool = True,
    ) -> ReleaseRef:
        """Pin the release of a column policy, and its noise key (see `pin_release`)."""
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
            key=policy.secret,
            proven=proven,
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
        key: _kernel.Secret | None = None,
        proven: bool = False,
        pin: bool = True,
    ) -> ReleaseRef:
        """Pin a release name to a configuration, or find it pinned to the same. All that is stated is public.

        Of the noise key, only a commitment is stored, and another key is refused from then on. A release of an earlier
        version that holds records is committed only if `proven`: a record of it has the same identity under this key.

        Without `pin` it is refused all the same where it would be, and nothing is written.
        """
        facts = public_facts(guarantee, worst_case) | {"mechanism": mechanism}
        facts |= {"configuration": dict(configuration or {}), "artifact_hashes": dict(artifact_hashes or {})}
        facts |= {"expost": True} if refundable else {}
        names = {"dataset": dataset, "column": column, "release": release, "cfg": cfg, "id_type": id_type}
        pinned = partial(self._db.releases.register, names, facts, publishable=publishable, nonce=nonce)
        register = partial(pinned, key=key, proven=proven, pin=pin)
        if pin:
            return self._db.store.write(0, register)
        with self._db.store.snapshot():
            return register()

    def pin_table(self, ref: ReleaseRef, digest: str) -> None:
        """Pin the records and texts that a release is drawn from as a whole, before the first draw.

        Args:
            ref: The release.
            digest: A keyed digest of all of them, 64 hex digits.

        Raises:
            LedgerError: Other records or texts are pinned, or the release is revoked.
        """
        with self._db.store.transaction():
            self._db.releases.pin_table(ref, digest)

    def lacks_key(self, ref: ReleaseRef) -> bool:
        """Return whether a release holds records and is not committed to a noise key, as those of earlier versions."""
        with self._db.store.snapshot():
            return self._db.releases.lacks_key(ref)

    def require_key(self, ref: ReleaseRef, key: _kernel.Secret) -> None:
        """Refuse another noise key than a release is committed to.

        Raises:
            KeyReferenceError: The release was made under another key.
        """
        with self._db.store.snapshot():
            self._db.releases.require_key(ref, key)

    def pinned_table(self, ref: ReleaseRef) -> str | None:
        """Return the digest that is pinned of the records and texts of a release, or None."""
        with self._db.store.snapshot():
            return self._db.releases.pinned_table(ref)

    def find(self, policy: ColumnPolicy) -> ReleaseRef | None:
        """Return the release that a column policy names, also a revoked one, or None. Registers nothing."""
        names = (policy.dataset, policy.column or "", policy.release, policy.mechanism.cfg())
        return self._find(names, policy.nonce)

    def find_all(self, policy: Policy) -> dict[str, ReleaseRef]:
        """Return the releases that a policy names, by text column, as `find` does; those of no name are left out."""
        if policy.synthetic is None:
            refs = {item.column or "": self.find(item) for item in policy.column_policies()}
        else:
            names = (policy.dataset, policy.synthetic.column, policy.release, policy.statistic.cfg())
            refs = {policy.synthetic.column: self._find(names)}
        return {name: ref for name, ref in refs.items() if ref is not None}

    def _find(self, names: tuple[str, str, str, str], nonce: int = 0) -> ReleaseRef | None:
        query = "select id from release where dataset=? and col=? and release=? and cfg=?"
        with self._db.store.snapshot():
            row = self._db.store.row(query, names)
        return None if row is None else ReleaseRef(int(row[0]), *names, nonce)

    def set_cap(self, scope: Scope, cap: Cap, *, raising: bool = False) -> None:
        """Pin the cap of a scope, or change it; a lower one needs no leave here, because it is asked for by name."""
        with self._db.store.transaction():
            self._db.scopes.charge(scope, cap, raising=raising, lowering=True)

    def agree_on_cap(self, scope: Scope, cap: Cap, *, lowering: bool = False) -> None:
        """Pin the cap of a policy before anything is charged, or refuse one that differs from the pinned cap."""

        def agree() -> None:
            refuse_frozen(self._db.store, scope.dataset)
            self._db.scopes.charge(scope, cap, lowering=lowering)

        self._db.store.write(0, agree)

    def require_cap(self, scope: Scope, cap: Cap | None, *, lowering: bool = False) -> None:
        """Refuse what `agree_on_cap` would refuse, or charges without a cap where there is one; nothing is written."""
        with self._db.store.snapshot():
            refuse_frozen(self._db.store, scope.dataset, scope.group)
            self._db.scopes.check(scope, cap, lowering=lowering)

    def record_publication(
        self,
        refs: ReleaseRef | Sequence[ReleaseRef],
        version: str,
        manifest: str,
        rows: int,
        *,
        sink: str | None = None,
    ) -> None:
        """Record a publication, in a sink if it is given. The same publication again changes nothing."""
        listed = [refs] if isinstance(refs, ReleaseRef) else list(refs)
        where = None if sink is None else self._db.id_key.sink(sink)
        with self._db.store.transaction():
            self._db.releases.publish(listed, version, manifest, rows, where)

    def retire(
        self,
        refs: Sequence[ReleaseRef],
        place: str,
        version: str,
        manifest: str,
        rows: int,
        *,
        sink: str | None = None,
    ) -> None:
        """Record a version from which rows were taken away, and retire what its place in the sink held before.

        Charges stay, as HMACs; a revoked or frozen release may be retired, too. The same call again changes nothing.
        """
        where = None if sink is None else self._db.id_key.sink(sink)
        with self._db.store.transaction():
            self._db.releases.retire(list(refs), place, version, manifest, rows, where)

    def forget(self, dataset: str, records: pa.Array, subjects: pa.Array) -> int:
        """Note records and subjects as forgotten in a dataset: nothing of them is released until `readmit`.

        It returns how many records were not noted before: those given, and those that were charged to the subjects.

        Specification: docs/spec/privacy.md#forgotten.
        """
        hashed, units = self._db.id_key.records(records).hashes, self._db.id_key.subjects(subjects)
        with self._db.store.transaction():
            return identities.forget(self._db, dataset, hashed, units)

    def readmit(self, dataset: str, records: pa.Array, reason: str, subjects: pa.Array | None = None) -> int:
        """Let forgotten records and subjects of a dataset be released again, and return how many records there are."""
        require_plain(reason, "readmission")
        hashed = self._db.id_key.records(records).hashes
        units = self._db.id_key.subjects(pa.array([], pa.large_string()) if subjects is None else subjects)
        with self._db.store.transaction():
            refuse_frozen(self._db.store, dataset)
            return identities.readmit(self._db, dataset, hashed, units, reason)

    def revoke(self, ref: ReleaseRef, reason: str) -> None:
        """Revoke a release name in all columns of its dataset. Nothing more happens under it; its charges stay."""
        self.revoke_name(ref.dataset, ref.release, reason)

    def revoke_name(self, dataset: str, release: str, reason: str) -> None:
        """Revoke a release name, as `revoke` does, by what it is called."""
        require_plain(reason, "revocation")
        with self._db.store.transaction():
            known = "select 1 from release where dataset=? and release=?"
            if self._db.store.row(known, (dataset, release)) is None:
                msg = f"release {release!r} of {dataset} is not registered in this ledger"
                raise LedgerError(msg, "`dptext ledger show` lists the releases")
            self._db.releases.revoke(dataset, release, reason)

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
        with self._db.store.transaction():
            self._db.freezes.freeze(dataset, reason, loss)

    def thaw(self, dataset: str, lost: Mapping[str, float]) -> dict[str, dict[str, Micro]]:
        """Let a frozen dataset and all that froze with it go on.

        Their releases are revoked, and their caps are lowered by what may have been lost.

        Specification: docs/spec/privacy.md#lost-ledger.
        """
        with self._db.store.transaction():
            return self._db.freezes.thaw(dataset, lost)

    def accept_units(self, dataset: str, lost: Mapping[str, float], reason: str) -> dict[str, dict[str, Micro]]:
        """Let the records that a dataset holds arrive under other units, and its columns of ids be named anew.

        The caps of the dataset are lowered by what a unit may have been charged under another name.

        Specification: docs/spec/privacy.md#same-unit.
        """
        require_plain(reason, "change of units")
        with self._db.store.transaction():
            return identities.accept_units(self._db, dataset, lost, reason)

    def expire(self, job: str, *, reason: str | None = None) -> int:
        """Turn the open reservations of a job into lasting charges, and return how many records that were.

        An expired record can still be committed with the same identity. It can never be given back.

        Args:
            job: The job.
            reason: Why, in a few plain words that the journal keeps; never a text.

        Raises:
            LedgerError: The reason is long or holds other signs.
        """
        if reason is not None:
            require_plain(reason, "expiry")
        with self._db.store.transaction():
            return expire(self._db, job, reason)

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
        if reason is not None:
            require_plain(reason, "refund")
        if not compute_never_started:
            raise LedgerError("a reservation is given back only if compute never started", "expire it: charges stay")
        with self._db.store.transaction():
            return abort(self._db, job, reason)


def require_plain(reason: str, what: str) -> None:
    """Refuse a reason that could hold a text."""
    if not _REASON.fullmatch(reason):
        allowed = "at most 200 letters, digits, blanks and . : , ( ) / + -"
        raise LedgerError(f"the reason of a {what} must be short and plain: {allowed}")
