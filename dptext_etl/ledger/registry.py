"""Pin the names of releases, and record what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from dptext_etl import _kernel
from dptext_etl.errors import LedgerError
from dptext_etl.guarantee import Guarantee, Spend
from dptext_etl.ledger import views
from dptext_etl.ledger.plan import Database
from dptext_etl.ledger.releases import public_facts
from dptext_etl.ledger.types import Event, ReleaseRef, require_plain
from dptext_etl.mechanism import worst_spend
from dptext_etl.policy import ColumnPolicy, Policy


class Registry:
    """The releases of a ledger: names, publications, revocations. Every method is one transaction."""

    def __init__(self, db: Database) -> None:
        self._db = db

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

    def pinned_table(self, ref: ReleaseRef) -> str | None:
        """Return the digest that is pinned of the records and texts of a release, or None."""
        with self._db.store.snapshot():
            return self._db.releases.pinned_table(ref)

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
        self, refs: Sequence[ReleaseRef], place: str, version: str, manifest: str, rows: int, *, sink: str | None = None
    ) -> None:
        """Record a version from which rows were taken away, and retire what its place in the sink held before.

        Charges stay, as HMACs; a revoked or frozen release may be retired, too. The same call again changes nothing.
        """
        where = None if sink is None else self._db.id_key.sink(sink)
        with self._db.store.transaction():
            self._db.releases.retire(list(refs), place, version, manifest, rows, where)

    def published_at(self, manifest: str) -> str | None:
        """Return when a manifest was first recorded as published, in ISO format; None if it was not."""
        with self._db.store.snapshot():
            entries = self._db.journal.entries(Event.PUBLISH, Event.RETIRE)
            return next((entry.facts["ts"] for entry in entries if entry.facts["manifest"] == manifest), None)

    def published(self, ref: ReleaseRef, sink: str | None = None) -> dict[str, str]:
        """Return the SHA-256 of the manifest of every recorded publication of a release, by version.

        What was retired since, in a sink if it is given, is left out.
        """
        where = None if sink is None else self._db.id_key.sink(sink)
        with self._db.store.snapshot():
            return views.published(self._db, ref, where)

    def retired(self, ref: ReleaseRef, sink: str | None = None) -> set[str]:
        """Return the SHA-256 of every manifest of a release that was retired, in a sink if it is given.

        A person was taken out of these. Without a sink, a manifest counts that was retired wherever it was published.
        """
        where = None if sink is None else self._db.id_key.sink(sink)
        with self._db.store.snapshot():
            return views.retired(self._db, ref, where)

    def revoke(self, ref: ReleaseRef, reason: str) -> None:
        """Revoke a release name in all columns of its dataset. Nothing more happens under it; its charges stay."""
        self.revoke_name(ref.dataset, ref.release, reason)

    def revoke_name(self, dataset: str, release: str, reason: str) -> None:
        """Revoke a release name, as `revoke` does, by what it is called."""
        require_plain(reason, "revocation")
        with self._db.store.transaction():
            query = "select 1 from release where dataset=? and release=?"
            if self._db.store.row(query, (dataset, release)) is None:
                msg = f"release {release!r} of {dataset} is not registered in this ledger"
                raise LedgerError(msg, "`dptext ledger show` lists the releases")
            self._db.releases.revoke(dataset, release, reason)
