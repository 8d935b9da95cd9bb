"""Read a ledger: commits, balances, views, anchors, verification; and keep its register of releases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.errors import DPTextError, LedgerError
from dptext_etl.guarantee import Guarantee, Spend
from dptext_etl.id_forms import IdForm
from dptext_etl.ledger import people, views
from dptext_etl.ledger.caps import cap_change
from dptext_etl.ledger.people import Losses, People
from dptext_etl.ledger.plan import Database, Lookup
from dptext_etl.ledger.releases import public_facts
from dptext_etl.ledger.storage.hashed_ids import binaries
from dptext_etl.ledger.types import (
    I64,
    Anchor,
    CapChange,
    Committed,
    Event,
    IdForms,
    Mask,
    Postprocessed,
    ReleaseRef,
    Scope,
    VerifyReport,
    require_plain,
)
from dptext_etl.ledger.views import Remaining
from dptext_etl.mechanism import worst_spend
from dptext_etl.policy import Cap, ColumnPolicy, Policy

if TYPE_CHECKING:
    from dptext_etl.ledger.reports import Reports


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
        """Return whether a release holds records and is not committed to a noise key, as in earlier versions."""
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
        """Return the releases that a policy names, by text column; names without a release are left out."""
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
        """Record a version from which rows were removed, and retire the versions before it in its place of the sink.

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

        Versions that were retired since, in a sink if it is given, are left out.
        """
        where = None if sink is None else self._db.id_key.sink(sink)
        with self._db.store.snapshot():
            return views.published(self._db, ref, where)

    def retired(self, ref: ReleaseRef, sink: str | None = None) -> set[str]:
        """Return the SHA-256 of every manifest of a release that was retired, in a sink if it is given.

        A person was removed from these. Without a sink, a manifest counts that was retired wherever it was published.
        """
        where = None if sink is None else self._db.id_key.sink(sink)
        with self._db.store.snapshot():
            return views.retired(self._db, ref, where)

    def revoke(self, ref: ReleaseRef, reason: str) -> None:
        """Revoke a release name in all columns of its dataset. Nothing more happens under it; its charges stay."""
        self.revoke_name(ref.dataset, ref.release, reason)

    def revoke_name(self, dataset: str, release: str, reason: str) -> None:
        """Revoke a release by its name, as `revoke` does."""
        require_plain(reason, "revocation")
        with self._db.store.transaction():
            query = "select 1 from release where dataset=? and release=?"
            if self._db.store.row(query, (dataset, release)) is None:
                msg = f"release {release!r} of {dataset} is not registered in this ledger"
                raise LedgerError(msg, "`dptext ledger show` lists the releases")
            self._db.releases.revoke(dataset, release, reason)


class LedgerReader:
    """Read one open ledger. No method changes it, and each sees one consistent state."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.releases = Registry(db)
        self.people = People(db)
        self.losses = Losses(db)

    @cached_property
    def reports(self) -> Reports:
        """Export the ledger, and read it in other forms."""
        from dptext_etl.ledger.reports import Reports

        return Reports(self._db)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger({self._db.store.name!r})"

    @property
    def ledger_id(self) -> str:
        """The random name that the ledger got when it was made; it distinguishes two ledgers at the same place."""
        return self._db.ledger_id

    @property
    def place(self) -> str:
        """Where the ledger is, without user and password, the same from every folder."""
        return self._db.store.place

    def close(self) -> None:
        """Close the connection."""
        self._db.store.close()

    def committed(self, ref: ReleaseRef, ids: pa.Array, *, canary: Mask | None = None) -> Committed:
        """Look up the commits of some records; replays and gates need them.

        Args:
            ref: The release.
            ids: Canonical record ids, each once.
            canary: Marks canary rows, shape (records,).

        Returns:
            Which records are committed, shape (records,), and their digests, identities, and positions.

        Raises:
            InputError: Ids are null, repeated, or not canonical strings.
        """
        records = self._db.id_key.records(ids, canary).ids
        digests, idem_keys = (np.zeros((records.size, 32), np.uint8) for _ in range(2))
        positions = np.zeros(records.size, np.int64)
        with self._db.store.snapshot():
            holdings = self._db.look_up(ref, records)
            mask = holdings.committed
            places = holdings.places.take(mask)
            digests[mask], positions[mask] = self._db.records.digests_and_positions(places)
            idem_keys[mask] = self._db.records.reserved(places, "idem_key")
        return Committed(mask, binaries(digests, mask), binaries(idem_keys, mask), positions)

    def seal(self, message: bytes) -> str:
        """Return a keyed hash of a message under the id key, 64 hex digits (docs/spec/stream.md#seal-key).

        Args:
            message: The message.

        Raises:
            KeyReferenceError: The id key cannot be read.
        """
        return self._db.id_key.secret.derive("seal", message).hex()

    def settled_epsilons(self, ref: ReleaseRef, ids: pa.Array, *, canary: Mask | None = None) -> tuple[Mask, I64]:
        """Return which committed records were settled ex post, and the pure epsilon that they used, in millionths.

        Args:
            ref: The release.
            ids: Canonical record ids, each once.
            canary: Marks canary rows, shape (records,).

        Returns:
            A mask and amounts, each of shape (records,); the amounts of other records are 0.

        Raises:
            InputError: Ids are null, repeated, or not canonical strings.
        """
        records = self._db.id_key.records(ids, canary).ids
        used = np.zeros(records.size, np.int64)
        with self._db.store.snapshot():
            holdings = self._db.look_up(ref, records)
            mask = holdings.committed
            mask[mask], used[mask] = self._db.records.settled(holdings.places.take(mask))
        return mask, used

    def postprocessed(self, ref: ReleaseRef, chain: str, ids: pa.Array, *, canary: Mask | None = None) -> Postprocessed:
        """Look up the results of a chain of post-processings for some records.

        Args:
            ref: The release.
            chain: The hash that names the post-processings in their order.
            ids: Canonical record ids, each once.
            canary: Marks canary rows, shape (records,).

        Returns:
            Which records have a result, shape (records,), and the digests of these results.

        Raises:
            InputError: Ids are null, repeated, or not canonical strings.
        """
        records = self._db.id_key.records(ids, canary).ids
        digests = np.zeros((records.size, 32), np.uint8)
        with self._db.store.snapshot():
            holdings = self._db.look_up(ref, records)
            mask = holdings.committed
            rewritten, digests[mask] = self._db.records.postprocessed(holdings.places.take(mask), chain)
        mask[mask] = rewritten
        return Postprocessed(mask, binaries(digests, mask))

    def lookup(self, ref: ReleaseRef, chain: str | None = None) -> Lookup:
        """Look up the same as `committed` or `postprocessed`, in steps that several processes can share.

        Args:
            ref: The release.
            chain: The hash that names the post-processings; None looks up commits.

        Returns:
            The lookup, which other processes can use without this ledger's connection.
        """
        return Lookup(self._db, ref, chain)

    def known(self, ref: ReleaseRef, ids: pa.Array) -> Mask:
        """Return which records the release holds, shape (records,).

        Args:
            ref: The release.
            ids: Canonical record ids, each once.

        Raises:
            InputError: Ids are null, repeated, or not canonical strings.
        """
        records = self._db.id_key.records(ids).ids
        with self._db.store.snapshot():
            return self._db.look_up(ref, records).present

    def records(self, ref: ReleaseRef) -> int:
        """Return how many records a release holds, over all partitions, without canary rows.

        Args:
            ref: The release.
        """
        with self._db.store.snapshot():
            return self._db.records.count(ref)

    def remaining(self, scope: Scope, subjects: pa.Array | None = None) -> Remaining:
        """Return the remaining amounts in a scope: quantiles over all units, and amounts of given units.

        Args:
            scope: Where the spends add up.
            subjects: Canonical ids of units whose amounts are returned, too; None gives only the quantiles.

        Raises:
            LedgerError: The scope counts per another unit.
        """
        with self._db.store.snapshot():
            return views.remaining(self._db, scope, subjects)

    def further(
        self, scope: Scope, cap: Cap, costs: Mapping[str, views.Cost], most: int | None
    ) -> dict[str, Counter[int]]:
        """Count the units of a dataset by how many more releases fit into their remaining amounts.

        Such a release holds the records of the newest release of each column, or where the column has none, of the
        dataset's newest release. As in `reserve`, charges add up by component; nothing that a commit gives back counts.

        Args:
            scope: Where the spends add up.
            cap: The cap, on one measure.
            costs: The costs of records, by text column.
            most: Records of a person that a release holds, at most.

        Returns:
            Numbers of units by number of releases: "units", and where persons are the unit "rows", records without a
            person. Units that a release does not charge are left out.
        """
        with self._db.store.snapshot():
            return views.further(self._db, scope, cap, costs, most)

    def used(self, scope: Scope, units: pa.Array) -> dict[str, I64]:
        """Return the used amounts of units in a scope, by component of its cap; pure epsilon without a cap.

        Args:
            scope: Where the spends add up.
            units: Canonical ids of units.

        Returns:
            Amounts by component in its steps (`guarantee.steps`), shape (units,).

        Raises:
            LedgerError: The scope counts per another unit.
        """
        with self._db.store.snapshot():
            return views.used(self._db, scope, units)

    def pinned_forms(self, scope: Scope, columns: Sequence[str]) -> dict[str, IdForm]:
        """Return the pinned forms of the ids of a table, by role: "record" and "subject", as far as known.

        Args:
            scope: Where the spends add up.
            columns: Names of the text columns.
        """
        with self._db.store.snapshot():
            return people.pinned_forms(self._db, scope, columns)

    def require_forms(self, scope: Scope, columns: Sequence[str], forms: IdForms) -> None:
        """Refuse ids of another form than the pinned one; `reserve` does the same and pins.

        Args:
            scope: Where the spends add up.
            columns: Names of the text columns.
            forms: The forms of the ids before they became canonical strings.

        Raises:
            LedgerError: A form or the name of an id column differs from the pinned one.
        """
        with self._db.store.snapshot():
            people.require_forms(self._db, scope, columns, forms, pin=False)

    def cap_change(self, scope: Scope, cap: Cap | None) -> CapChange | None:
        """Return the change that a policy with this cap would make to the pinned cap, or None.

        Args:
            scope: The scope of the policy.
            cap: The cap of the policy; None if it has none.

        Raises:
            LedgerError: The scope counts per another unit.
        """
        with self._db.store.snapshot():
            return cap_change(scope, self._db.scopes.find(scope), cap)

    def anchor(self) -> Anchor:
        """Return the heads of the journal. Keep them where the keepers of the ledger cannot change them."""
        with self._db.store.snapshot():
            return self._db.journal.anchor()

    def backup(self, to: str | Path) -> Anchor:
        """Copy the ledger as it is at one moment, while others may write. The id key is not copied.

        Args:
            to: A path or a URL of a place without a ledger.

        Returns:
            The anchor of the copy.

        Raises:
            LedgerError: A ledger is there, or the copy is not intact.
        """
        from dptext_etl.ledger.reports import copy

        return copy(self._db.store, str(to))

    def holds(self, anchor: Anchor) -> bool:
        """Return whether the journal still holds an anchor. If not, it was cut or rewritten, or it is an old copy.

        Args:
            anchor: An anchor, as `anchor` returned it.
        """
        with self._db.store.snapshot():
            return anchor.ledger == self._db.ledger_id and self._db.journal.holds(anchor)

    def verify(self) -> VerifyReport:
        """Derive every table again from the journal and its sealed batches, and report each difference."""
        from dptext_etl.ledger.audit import verify

        with self._db.store.snapshot():
            try:
                return verify(self._db)
            except DPTextError as error:
                if error.transient:  # an outage says nothing about the stored data
                    raise
                problem = str(error)
            except (ValueError, TypeError, LookupError, ArithmeticError) as error:  # what json and NumPy raise
                problem = f"a stored value has a form that the ledger never writes ({type(error).__name__})"
        return VerifyReport([problem], {})
