"""Pin release names, record publications, retire and revoke.

A name holds one configuration per column and one type of id, and a revoked name never comes back
(docs/spec/privacy.md#one-text-per-release, docs/spec/stream.md#record-id).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NoReturn

from dptext_etl._kernel import Secret
from dptext_etl.accounting import least
from dptext_etl.artifacts import canon
from dptext_etl.errors import KeyReferenceError, LedgerError, counted
from dptext_etl.guarantee import ADDITIVE, Guarantee, GuaranteeClass, Spend
from dptext_etl.ledger.contents import NEW_NAME, Contents, Release
from dptext_etl.ledger.storage.hashed_ids import IdKey
from dptext_etl.ledger.storage.journal import Journal
from dptext_etl.ledger.storage.store import Store
from dptext_etl.ledger.types import Event, ReleaseRef, require_plain
from dptext_etl.mechanism import worst_spend
from dptext_etl.policy import ColumnPolicy, Policy

RESTORE = "restore the key from your backup; a new key needs a new release name"
_PINNED_FACTS = ("mechanism", "configuration", "artifact_hashes", "unit")
_CLASSES = list(GuaranteeClass)  # from the strongest to the weakest
_KEY_LABEL = b"dptext/key/v1\0"
_DIGEST = re.compile(r"[0-9a-f]{64}")


def _number(amount: float) -> float | str:
    return "inf" if amount == float("inf") else int(amount) if amount == int(amount) else amount


def weakened(pinned: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return in words how a claim is weaker than the pinned one; empty if it promises as much or more.

    Accounting rules and sentences may change, and bounds become tighter; a promise may never become weaker.
    """
    less = [name for name in _PINNED_FACTS if pinned.get(name) != now.get(name)]
    if bool(pinned.get("expost")) != bool(now.get("expost")):
        less.append("what commits are charged")
    if _CLASSES.index(GuaranteeClass(now["class"])) > _CLASSES.index(GuaranteeClass(pinned["class"])):
        less.append(f"the class: {now['class']} for {pinned['class']}")
    names = ("disclosures", "assumptions")
    less += [f"more {name}: {', '.join(more)}" for name in names if (more := sorted({*now[name]} - {*pinned[name]}))]
    for name in (*ADDITIVE, "diameter"):
        before, after = (facts["worst_case"].get(name, "inf") for facts in (pinned, now))
        if (math.inf if after == "inf" else after) > (math.inf if before == "inf" else before):
            less.append(f"a larger {name}")
    return less


def commitment(secret: Secret, dataset: str, column: str, release: str) -> str:
    """Return the commitment of a release to its noise key, 64 hex digits (docs/spec/stream.md#key-commitment)."""
    return secret.derive("seal", _KEY_LABEL + canon([dataset, column, release])).hex()


class Releases:
    """The releases of a ledger: names, publications, revocations.

    Every method that writes is one transaction, or a part of the caller's if there is one.
    """

    def __init__(self, store: Store, journal: Journal, contents: Contents, id_key: IdKey) -> None:
        self._store, self._journal, self._contents, self._id_key = store, journal, contents, id_key

    def register(
        self,
        policy: ColumnPolicy,
        id_type: str,
        *,
        guarantee: Guarantee | None = None,
        worst_case: Spend | None = None,
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
        key: Secret,
        configuration: Mapping[str, Any] | None = None,
        artifact_hashes: Mapping[str, str] | None = None,
        nonce: int = 0,
        refundable: bool = False,
    ) -> ReleaseRef:
        """Pin a release name to a configuration, or find it pinned to the same. All that is stated is public.

        Of the noise key, only a commitment is stored, and another key is refused from then on.
        """
        bound = least(worst_case)
        facts: dict[str, Any] = {  # constants of the configuration, nothing of any text
            "class": guarantee.guarantee_class.value,
            "disclosures": sorted(item.value for item in guarantee.disclosures),
            "assumptions": sorted(guarantee.assumptions),
            "neighbors": guarantee.neighbors,
            "unit": guarantee.unit,
            "worst_case": worst_case.as_dict(),
            "least": {"epsilon": _number(bound.epsilon), "delta": _number(bound.delta), "rule": bound.rule},
            "mechanism": mechanism,
        }
        facts |= {"configuration": dict(configuration or {}), "artifact_hashes": dict(artifact_hashes or {})}
        facts |= {"expost": True} if refundable else {}
        facts = json.loads(canon(facts))
        where = f"release {release!r} of {dataset}.{column}"

        def pin() -> ReleaseRef:
            contents = self._contents.latest()
            contents.refuse_frozen(dataset)
            contents.refuse_revoked(dataset, release)
            pinned_type = next((item.id_type for item in contents.releases_of(dataset) if item.column == column), None)
            if pinned_type not in {None, id_type}:
                msg = f"the record ids of {dataset}.{column} are pinned to type {pinned_type}, got {id_type}"
                raise LedgerError(msg, "cast the id column: another type would make every record a new one")
            pinned = self._pinned(dataset, column, release)
            if pinned is None:
                names = {"dataset": dataset, "column": column, "release": release, "cfg": cfg, "id_type": id_type}
                more = {"facts": facts, "commitment": commitment(key, dataset, column, release)}
                number = len(contents.releases) + 1
                self._journal.append(Event.RELEASE, release_id=number, publishable=publishable, **names, **more)
                return ReleaseRef(number, dataset, column, release, cfg, nonce)
            if pinned.cfg != cfg:
                raise LedgerError(f"{where} is pinned to another configuration ({pinned.cfg[:12]}…)", NEW_NAME)
            if pinned.publishable != publishable:
                raise LedgerError(f"{where} is pinned as {'' if pinned.publishable else 'not '}publishable", NEW_NAME)
            if less := weakened(pinned.facts, facts):
                msg = f"{where} was pinned with a stronger claim; today's has {'; '.join(less)}"
                raise LedgerError(msg, NEW_NAME)
            self.require_key(pinned.ref(nonce), key)
            return pinned.ref(nonce)

        return self._store.write(0, pin)

    def find(self, policy: ColumnPolicy) -> ReleaseRef | None:
        """Return the release that a column policy names, also a revoked one, or None. Registers nothing."""
        with self._store.snapshot():
            pinned = self._pinned(policy.dataset, policy.column or "", policy.release)
        return None if pinned is None or pinned.cfg != policy.mechanism.cfg() else pinned.ref(policy.nonce)

    def find_all(self, policy: Policy) -> dict[str, ReleaseRef]:
        """Return the releases that a policy names, by text column; names without a release are excluded."""
        refs = {item.column or "": self.find(item) for item in policy.charged_columns()}
        return {name: ref for name, ref in refs.items() if ref is not None}

    def _pinned(self, dataset: str, column: str, release: str) -> Release | None:
        pinned = self._contents.latest().releases_of(dataset)
        return next((item for item in pinned if (item.column, item.release) == (column, release)), None)

    def require_key(self, ref: ReleaseRef, key: Secret) -> None:
        """Refuse another noise key than a release is committed to."""
        with self._store.snapshot():
            pinned = self._contents.latest().releases.get(ref.id)
        expected = commitment(key, ref.dataset, ref.column, ref.release)
        if pinned is not None and pinned.commitment != expected:
            raise KeyReferenceError(f"{ref} was made under another noise key", RESTORE)

    def disclosures(self, ref: ReleaseRef) -> frozenset[str]:
        """Return the disclosures of the pinned claim of a release."""
        return frozenset(self._contents.latest().releases[ref.id].facts["disclosures"])

    def of_dataset(self, dataset: str) -> list[ReleaseRef]:
        """List the releases of a dataset that hold any record, the oldest first."""
        contents = self._contents.latest()
        pairs = ((contents.releases[number], nonce) for number, nonce in sorted(contents.of_release))
        return [item.ref(nonce) for item, nonce in pairs if item.dataset == dataset]

    def pin_table(self, ref: ReleaseRef, digest: str, sums: str = "") -> None:
        """Pin the records and texts that a release is drawn from as a whole, before the first draw, by keyed digests.

        `digest` is of all of them, `sums` of the exact sums that noise is added to; "" where texts are drawn.
        """
        with self._store.transaction():
            self._contents.latest().require_usable(ref)
            pin = self._contents.latest().pins.get((ref.id, ref.nonce))
            if pin is None:
                more = {"sums": sums} if sums else {}
                self._journal.append(Event.PIN, release=ref.id, nonce=ref.nonce, digest=digest, **more)
            elif pin[1] != digest:
                refuse_other_table(ref)
            elif pin[2] != sums:
                msg = f"{ref} is pinned to other sums of these records: a model gives other vectors here than at first"
                hint = f"this attempt drew nothing; bring back the staged vectors of the first attempt, or {NEW_NAME}"
                raise LedgerError(msg, hint)

    def pinned_table(self, ref: ReleaseRef) -> str | None:
        """Return the digest that is pinned of the records and texts of a release, or None."""
        with self._store.snapshot():
            pin = self._contents.latest().pins.get((ref.id, ref.nonce))
        return None if pin is None else pin[1]

    def revoke(self, ref: ReleaseRef, reason: str) -> None:
        """Revoke a release name in all columns of its dataset. Nothing more happens under it; its charges stay."""
        self.revoke_name(ref.dataset, ref.release, reason)

    def revoke_name(self, dataset: str, release: str, reason: str) -> None:
        """Revoke a release by its name, as `revoke` does."""
        require_plain(reason, "revocation")
        with self._store.transaction():
            if release not in {item.release for item in self._contents.latest().releases_of(dataset)}:
                msg = f"release {release!r} of {dataset} is not registered in this ledger"
                raise LedgerError(msg, "`dptext ledger show` lists the releases")
            self.burn(dataset, release, reason)

    def burn(self, dataset: str, release: str, reason: str) -> None:
        """Note a name as revoked, also one that this ledger never saw; the reason is plain."""
        with self._store.transaction():
            if (dataset, release) not in self._contents.latest().revoked:
                self._journal.append(Event.BURN, dataset=dataset, release=release, reason=reason)

    def record_publication(
        self,
        refs: ReleaseRef | Sequence[ReleaseRef],
        version: str,
        manifest: str,
        rows: int,
        *,
        sink: str,
    ) -> None:
        """Record a publication in a sink. The same publication again changes nothing.

        Every published row must be committed.
        """
        listed = [refs] if isinstance(refs, ReleaseRef) else list(refs)
        where = self._id_key.sink(sink)
        with self._store.transaction():
            _require_publication(listed, manifest)
            new = [ref for ref in listed if not self._is_recorded(ref, version, manifest, rows)]
            # two sinks may hold equal manifests
            new = new if where in self._contents.latest().sinks.get(manifest, {where}) else listed
            for ref in new:
                self._contents.latest().require_usable(ref)
                contents = self._contents.latest()
                pinned = contents.releases[ref.id]
                if not pinned.publishable or pinned.facts["class"] == GuaranteeClass.NONE:
                    hint = "faithful mechanisms are for benchmarks on public data"
                    raise LedgerError(f"{ref} is not publishable", hint)
                committed = contents.count((ref.id, ref.nonce))["committed"]
                # a central release publishes public texts that follow a statistic: their number is free
                if rows < 0 or (
                    rows > committed and not (committed and pinned.facts["class"] == GuaranteeClass.CENTRAL_ZCDP)
                ):
                    msg = f"{ref} has {committed:,} committed rows, got a publication of {rows:,}"
                    raise LedgerError(msg, "commit before publishing")
            if new:
                facts = {"version": version, "manifest": manifest, "rows": rows, "sink": where}
                self._journal.append(Event.PUBLISH, releases=[[ref.id, ref.nonce] for ref in new], **facts)

    def retire(
        self, refs: Sequence[ReleaseRef], place: str, version: str, manifest: str, rows: int, *, sink: str
    ) -> None:
        """Record a version from which rows were removed, and retire the versions before it in its place of the sink.

        Charges stay, as HMACs; a revoked or frozen release may be retired, too. The same call again changes nothing.
        """
        where = self._id_key.sink(sink)
        with self._store.transaction():
            _require_publication(refs, manifest)
            is_recorded = all(self._is_recorded(ref, version, manifest, rows) for ref in refs)
            contents = self._contents.latest()
            if is_recorded and where in contents.sinks.get(manifest, {where}):
                return
            before: dict[tuple[int, int], dict[str, int]] = {}
            for key, versions in contents.publications.items():
                for name, item in versions.items() if contents.releases[key[0]].dataset == refs[0].dataset else ():
                    if item.manifest != manifest and name.startswith(place) and "/" not in name[len(place) :]:
                        before.setdefault(key, {})[item.manifest] = item.rows
            retired: set[str] = set()
            for ref in refs:
                replaced = before.pop((ref.id, ref.nonce), {})
                if rows > max(replaced.values(), default=-1):
                    most = counted(max(replaced.values(), default=0), "row")
                    msg = f"{ref} has published at most {most} there, got a version of {rows:,}"
                    raise LedgerError(msg, "replace a retired version only by some of its rows")
                retired |= replaced.keys()
            facts: dict[str, Any] = {"version": version, "manifest": manifest, "rows": rows, "retired": sorted(retired)}
            if before:
                facts["others"] = [[*names, sorted(digests)] for names, digests in sorted(before.items())]
            releases = [[ref.id, ref.nonce] for ref in refs]
            self._journal.append(Event.RETIRE, releases=releases, sink=where, **facts)

    def _is_recorded(self, ref: ReleaseRef, version: str, manifest: str, rows: int) -> bool:
        item = self._contents.latest().publications.get((ref.id, ref.nonce), {}).get(version)
        if item is not None and (item.manifest, item.rows) != (manifest, rows):
            msg = f"{ref} has published version {version!r} with another manifest"
            raise LedgerError(msg, "a version is published once")
        return item is not None

    def published_at(self, manifest: str) -> str | None:
        """Return when a manifest was first recorded as published, in ISO format; None if it was not."""
        with self._store.snapshot():
            published = self._contents.latest().published
            return next((facts["ts"] for facts in published if facts["manifest"] == manifest), None)

    def published(self, ref: ReleaseRef, sink: str | None = None) -> dict[str, str]:
        """Return the SHA-256 of the manifest of every recorded publication of a release, by version.

        Versions that were retired since, in a sink if it is given, are excluded.
        """
        with self._store.snapshot():
            gone = self.retired(ref, sink)
            versions = self._contents.latest().publications.get((ref.id, ref.nonce), {})
            return {version: item.manifest for version, item in versions.items() if item.manifest not in gone}

    def retired(self, ref: ReleaseRef, sink: str | None = None) -> set[str]:
        """Return the SHA-256 of every manifest of a release that was retired, in a sink if it is given.

        A person was removed from these. Without a sink, a manifest counts that was retired wherever it was published.
        """
        where, retired_in = None if sink is None else self._id_key.sink(sink), dict[str, set[str]]()
        with self._store.snapshot():
            contents = self._contents.latest()
            for facts in contents.published:
                others = (digests for *names, digests in facts.get("others", ()) if names == [ref.id, ref.nonce])
                for digest in chain(
                    facts.get("retired", ()) if [ref.id, ref.nonce] in facts["releases"] else (), *others
                ):
                    retired_in.setdefault(digest, set()).add(facts["sink"])
        if where is None:
            return {digest for digest, sinks in retired_in.items() if contents.sinks[digest] <= sinks}
        # an old version stays retired where it never was recorded
        return {digest for digest, sinks in retired_in.items() if where in sinks or where not in contents.sinks[digest]}


def _require_publication(refs: Sequence[ReleaseRef], manifest: str) -> None:
    if not refs or not _DIGEST.fullmatch(manifest):
        msg = "a publication needs at least one release and the SHA-256 of its manifest, 64 hex digits"
        raise LedgerError(msg, "pass the releases, and the digest of the manifest file")


def refuse_other_table(ref: ReleaseRef) -> NoReturn:
    """Refuse records or texts that are not those to which a release is pinned as a whole."""
    msg = f"{ref} is pinned to other records or texts: it holds one complete table"
    raise LedgerError(msg, f"this attempt drew nothing; publish this table under another name: {NEW_NAME}")
