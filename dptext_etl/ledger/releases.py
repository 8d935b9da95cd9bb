"""Pin release names, record publications, retire and revoke.

A name holds one configuration per column and one type of id, and a revoked name never comes back
(docs/spec/privacy.md#one-text-per-release, docs/spec/stream.md#record-id).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NoReturn

from dptext_etl._kernel import Secret
from dptext_etl.accounting import least
from dptext_etl.artifacts import canon
from dptext_etl.errors import KeyReferenceError, LedgerError, counted
from dptext_etl.guarantee import ADDITIVE, Guarantee, GuaranteeClass, Spend
from dptext_etl.ledger.batch import IdKey
from dptext_etl.ledger.caps import Standing
from dptext_etl.ledger.storage.journal import Journal
from dptext_etl.ledger.storage.store import Store
from dptext_etl.ledger.types import NEW, Event, ReleaseRef, require_plain
from dptext_etl.mechanism import worst_spend
from dptext_etl.policy import ColumnPolicy, Policy

COMMITMENTS = "key/"  # the prefix of names under which `meta` holds what releases commit to their noise keys
RESTORE = "restore the key from your backup; a new key needs a new release name"
PINNED_NAMES = ("dataset", "column", "release", "cfg", "id_type")
SINK = "sink"  # names in a PUBLISH or RETIRE event the keyed hash of the sink
_PINNED_FACTS = ("mechanism", "configuration", "artifact_hashes", "unit")
_CLASSES = list(GuaranteeClass)  # from the strongest to the weakest
_NEW_NAME = "use a new `release` name, which is charged in full"
_COMMITTED_NAMES = ("dataset", "column", "release")
_KEY_LABEL = b"dptext/key/v1\0"
_DIGEST = re.compile(r"[0-9a-f]{64}")


def public_facts(guarantee: Guarantee, worst: Spend) -> dict[str, Any]:
    """Return the public facts of a claim: constants of the configuration, nothing of any text."""
    bound = least(worst)
    return {
        "class": guarantee.guarantee_class.value,
        "disclosures": sorted(item.value for item in guarantee.disclosures),
        "assumptions": sorted(guarantee.assumptions),
        "neighbours": guarantee.neighbors,
        "unit": guarantee.unit,
        "worst_case": worst.as_dict(),
        "least": {"epsilon": _number(bound.epsilon), "delta": _number(bound.delta), "rule": bound.rule},
    }


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
    for name in ("disclosures", "assumptions"):
        more = sorted(set(now[name]) - set(pinned[name]))
        if more:
            less.append(f"more {name}: {', '.join(more)}")
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

    def __init__(self, store: Store, journal: Journal, standing: Standing, id_key: IdKey) -> None:
        self._standing, self._store, self._journal, self._id_key = standing, store, journal, id_key

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
        key: Secret | None = None,
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
        pinned = partial(self._register, names, facts, publishable=publishable, nonce=nonce)
        register = partial(pinned, key=key, proven=proven, pin=pin)
        if pin:
            return self._store.write(0, register)
        with self._store.snapshot():
            return register()

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
        with self._store.snapshot():
            row = self._store.row(query, names)
        return None if row is None else ReleaseRef(int(row[0]), *names, nonce)

    def _register(
        self,
        names: Mapping[str, str],
        facts: Mapping[str, Any],
        *,
        publishable: bool,
        nonce: int,
        key: Secret | None,
        proven: bool,
        pin: bool,
    ) -> ReleaseRef:
        """Pin a release name, or find it pinned to the same configuration, key, and to no stronger claim.

        Without `pin` nothing is written: a name that the ledger does not hold gets the number `NEW`.
        """
        dataset, column, release = names["dataset"], names["column"], names["release"]
        where = f"release {release!r} of {dataset}.{column}"
        self._standing.refuse_frozen(dataset)
        self._refuse_revoked(dataset, release)
        pinned = self._store.row("select distinct id_type from release where dataset=? and col=?", (dataset, column))
        if pinned is not None and pinned[0] != names["id_type"]:
            msg = f"the record ids of {dataset}.{column} are pinned to type {pinned[0]}, got {names['id_type']}"
            raise LedgerError(msg, "cast the id column: another type would make every record a new one")
        facts = json.loads(canon(dict(facts)))
        row = self._store.row(
            "select id, cfg, facts, publishable from release where dataset=? and col=? and release=?",
            (dataset, column, release),
        )
        if row is None:
            number = self._pin(names, facts, key, publishable=publishable) if pin else NEW
        elif row[1] != names["cfg"]:
            raise LedgerError(f"{where} is pinned to another configuration ({row[1][:12]}…)", _NEW_NAME)
        elif bool(row[3]) != publishable:
            raise LedgerError(f"{where} is pinned as {'' if row[3] else 'not '}publishable", _NEW_NAME)
        elif less := weakened(json.loads(row[2]), facts):
            raise LedgerError(f"{where} was pinned with a stronger claim; today's has {'; '.join(less)}", _NEW_NAME)
        else:
            number = int(row[0])
        ref = ReleaseRef(number, dataset, column, release, names["cfg"], nonce)
        if key is not None and row is not None:
            self.require_key(ref, key)
            if pin and self._commitment(ref) is None and (proven or not self.lacks_key(ref)):
                committed = commitment(key, dataset, column, release)
                self._journal.append(Event.KEY, release=number, commitment=committed)
                self._store.set_meta(f"{COMMITMENTS}{number}", committed)
        return ref

    def _pin(self, names: Mapping[str, str], facts: Mapping[str, Any], key: Secret | None, *, publishable: bool) -> int:
        number = self._store.rows("select coalesce(max(id), 0) + 1 from release")[0][0]
        committed = {} if key is None else {"commitment": commitment(key, *(names[name] for name in _COMMITTED_NAMES))}
        stated = {"publishable": publishable, **names, "facts": facts, **committed}
        self._journal.append(Event.RELEASE, release_id=number, **stated)
        self._store.execute(
            "insert into release values(?,?,?,?,?,?,?,?,null)",
            (number, *(names[name] for name in PINNED_NAMES), int(publishable), canon(facts).decode()),
        )
        for value in committed.values():
            self._store.set_meta(f"{COMMITMENTS}{number}", value)
        return int(number)

    def require_key(self, ref: ReleaseRef, key: Secret) -> None:
        """Refuse another noise key than a release is committed to.

        Raises:
            KeyReferenceError: The release was made under another key.
        """
        with self._store.snapshot():
            pinned = self._commitment(ref)
        if pinned is not None and pinned != commitment(key, ref.dataset, ref.column, ref.release):
            raise KeyReferenceError(f"{ref} was made under another noise key", RESTORE)

    def lacks_key(self, ref: ReleaseRef) -> bool:
        """Return whether a release holds records and is not committed to a noise key, as in earlier versions."""
        query = "select 1 from tally where release=? and records > canaries and records > aborted"
        with self._store.snapshot():
            return self._commitment(ref) is None and self._store.row(query, (ref.id,)) is not None

    def _commitment(self, ref: ReleaseRef) -> str | None:
        return self._store.meta(f"{COMMITMENTS}{ref.id}")

    def require_usable(self, ref: ReleaseRef) -> None:
        """Refuse a release that is revoked, or that this ledger does not know."""
        row = self._store.row("select dataset, col, release, cfg from release where id=?", (ref.id,))
        if row != (ref.dataset, ref.column, ref.release, ref.cfg):
            raise LedgerError(f"{ref} is not registered in this ledger", "call ledger.releases.register first")
        self._standing.refuse_frozen(ref.dataset)
        self._refuse_revoked(ref.dataset, ref.release)

    def require_refundable(self, ref: ReleaseRef) -> None:
        if not self._facts(ref).get("expost", False):
            hint = "leave `spent` out; the worst case stays charged, because the number of steps may tell of a text"
            raise LedgerError(f"{ref} is not refundable: it was pinned without refundable=True", hint)

    def record_bound(self, ref: ReleaseRef) -> int | None:
        """Return the public bound on records that the delta of a release was stated for, or None."""
        bound = self._facts(ref).get("configuration", {}).get("n_rec")
        return bound if isinstance(bound, int) else None

    def disclosures(self, ref: ReleaseRef) -> frozenset[str]:
        """Return what the pinned claim of a release says that it discloses."""
        return frozenset(self._facts(ref)["disclosures"])

    def _facts(self, ref: ReleaseRef) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(self._store.rows("select facts from release where id=?", (ref.id,))[0][0])
        return facts

    def of_dataset(self, dataset: str) -> list[ReleaseRef]:
        """List the releases of a dataset that hold any record, the oldest first."""
        rows = self._store.rows(
            "select release.id, dataset, col, release.release, cfg, tally.nonce from release"
            " join tally on tally.release = release.id where dataset=? order by release.id, tally.nonce",
            (dataset,),
        )
        return [ReleaseRef(*row) for row in rows]

    def pin_table(self, ref: ReleaseRef, digest: str) -> None:
        """Pin the records and texts that a release is drawn from as a whole, before the first draw.

        Args:
            ref: The release.
            digest: A keyed digest of all of them, 64 hex digits.

        Raises:
            LedgerError: Other records or texts are pinned, or the release is revoked.
        """
        with self._store.transaction():
            self.require_usable(ref)
            pinned = self.pinned_table(ref)
            if pinned is None:
                self._journal.append(Event.PIN, release=ref.id, nonce=ref.nonce, digest=digest)
            elif pinned != digest:
                refuse_other_table(ref)

    def pinned_table(self, ref: ReleaseRef) -> str | None:
        """Return the digest that is pinned of the records and texts of a release, or None."""
        with self._store.snapshot():
            seq = self.pins().get((ref.id, ref.nonce))
            return None if seq is None else str(self._journal.facts(seq)["digest"])

    def pins(self) -> dict[tuple[int, int], int]:
        """Return the event that pinned a table, by release and nonce: later reservations are not in it."""
        events = ((entry.seq, entry.facts) for entry in self._journal.entries(Event.PIN))
        return {(facts["release"], facts["nonce"]): seq for seq, facts in events}

    def revoke(self, ref: ReleaseRef, reason: str) -> None:
        """Revoke a release name in all columns of its dataset. Nothing more happens under it; its charges stay."""
        self.revoke_name(ref.dataset, ref.release, reason)

    def revoke_name(self, dataset: str, release: str, reason: str) -> None:
        """Revoke a release by its name, as `revoke` does."""
        require_plain(reason, "revocation")
        with self._store.transaction():
            query = "select 1 from release where dataset=? and release=?"
            if self._store.row(query, (dataset, release)) is None:
                msg = f"release {release!r} of {dataset} is not registered in this ledger"
                raise LedgerError(msg, "`dptext ledger show` lists the releases")
            self.burn(dataset, release, reason)

    def burn(self, dataset: str, release: str, reason: str) -> None:
        """Note a name as revoked, also one that this ledger never saw; the reason is plain."""
        with self._store.transaction():
            if not self._is_revoked(dataset, release):
                seq = self._journal.append(Event.BURN, dataset=dataset, release=release, reason=reason)
                self._store.execute("insert into burnt values(?,?,?)", (dataset, release, seq))
                self._store.execute("update release set burnt=? where dataset=? and release=?", (seq, dataset, release))

    def _is_revoked(self, dataset: str, release: str) -> bool:
        return self._store.row("select 1 from burnt where dataset=? and release=?", (dataset, release)) is not None

    def _refuse_revoked(self, dataset: str, release: str) -> None:
        if self._is_revoked(dataset, release):
            msg = f"release {release!r} of {dataset} is revoked: nothing further happens under this name"
            raise LedgerError(msg, f"if a gate fired, fix the cause; then {_NEW_NAME}")

    def sinks(self) -> dict[str, set[str]]:
        """Return the keyed hashes of the sinks that are known of manifests; older events name none."""
        sinks: dict[str, set[str]] = {}
        for facts in (entry.facts for entry in self._journal.entries(Event.PUBLISH, Event.RETIRE)):
            if SINK in facts:
                sinks.setdefault(facts["manifest"], set()).add(facts[SINK])
        return sinks

    def _is_elsewhere(self, manifest: str, sink: str | None) -> bool:
        """Return whether a manifest is known, and not of this sink: two sinks may hold equal ones."""
        return sink is not None and sink not in self.sinks().get(manifest, {sink})

    def record_publication(
        self,
        refs: ReleaseRef | Sequence[ReleaseRef],
        version: str,
        manifest: str,
        rows: int,
        *,
        sink: str | None = None,
    ) -> None:
        """Record a publication, in a sink if it is given. The same publication again changes nothing.

        Every published row must be committed.
        """
        listed = [refs] if isinstance(refs, ReleaseRef) else list(refs)
        where = self._hashed(sink)
        with self._store.transaction():
            _require_publication(listed, manifest)
            new = [ref for ref in listed if not self._is_recorded(ref, version, manifest, rows)]
            new = listed if self._is_elsewhere(manifest, where) else new
            for ref in new:
                self.require_usable(ref)
                facts = self._facts(ref)
                publishable = self._store.rows("select publishable from release where id=?", (ref.id,))[0][0]
                if not publishable or facts["class"] == GuaranteeClass.NONE:
                    hint = "faithful mechanisms are for benchmarks on public data"
                    raise LedgerError(f"{ref} is not publishable", hint)
                row = self._store.row("select committed from tally where release=? and nonce=?", (ref.id, ref.nonce))
                committed = row[0] if row else 0
                # a central release publishes public texts that follow a statistic: their number is free
                if rows < 0 or (rows > committed and not (committed and facts["class"] == GuaranteeClass.CENTRAL_ZCDP)):
                    msg = f"{ref} has {committed:,} committed rows, got a publication of {rows:,}"
                    raise LedgerError(msg, "commit before publishing")
            if new:
                self._record(Event.PUBLISH, new, where, version=version, manifest=manifest, rows=rows)

    def retire(
        self, refs: Sequence[ReleaseRef], place: str, version: str, manifest: str, rows: int, *, sink: str | None = None
    ) -> None:
        """Record a version from which rows were removed, and retire the versions before it in its place of the sink.

        Charges stay, as HMACs; a revoked or frozen release may be retired, too. The same call again changes nothing.
        """
        where = self._hashed(sink)
        with self._store.transaction():
            _require_publication(refs, manifest)
            is_recorded = all(self._is_recorded(ref, version, manifest, rows) for ref in refs)
            if is_recorded and not self._is_elsewhere(manifest, where):
                return
            before: dict[tuple[int, int], dict[str, int]] = {}
            for number, nonce, name, digest, count in self._store.rows(
                "select release.id, nonce, version, manifest, rows from publication"
                " join release on release.id = publication.release where dataset=?",
                (refs[0].dataset,),
            ):
                if digest != manifest and name.startswith(place) and "/" not in name[len(place) :]:
                    before.setdefault((number, nonce), {})[digest] = count
            retired: set[str] = set()
            for ref in refs:
                mine = before.pop((ref.id, ref.nonce), {})
                if rows > max(mine.values(), default=-1):
                    most = counted(max(mine.values(), default=0), "row")
                    msg = f"{ref} has published at most {most} there, got a version of {rows:,}"
                    raise LedgerError(msg, "replace a retired version only by some of its rows")
                retired |= mine.keys()
            facts: dict[str, Any] = {"version": version, "manifest": manifest, "rows": rows, "retired": sorted(retired)}
            if before:
                facts["others"] = [[*names, sorted(digests)] for names, digests in sorted(before.items())]
            self._record(Event.RETIRE, refs, where, **facts)

    def _record(self, kind: Event, refs: Sequence[ReleaseRef], sink: str | None, **facts: Any) -> None:
        facts |= {} if sink is None else {SINK: sink}
        self._journal.append(kind, releases=[[ref.id, ref.nonce] for ref in refs], **facts)
        for ref in refs:
            values = (ref.id, ref.nonce, facts["version"], facts["manifest"], facts["rows"])
            self._store.execute("insert or ignore into publication values(?,?,?,?,?)", values)

    def _is_recorded(self, ref: ReleaseRef, version: str, manifest: str, rows: int) -> bool:
        row = self._store.row(
            "select manifest, rows from publication where release=? and nonce=? and version=?",
            (ref.id, ref.nonce, version),
        )
        if row is not None and row != (manifest, rows):
            msg = f"{ref} has published version {version!r} with another manifest"
            raise LedgerError(msg, "a version is published once")
        return row is not None

    def published_at(self, manifest: str) -> str | None:
        """Return when a manifest was first recorded as published, in ISO format; None if it was not."""
        with self._store.snapshot():
            entries = self._journal.entries(Event.PUBLISH, Event.RETIRE)
            return next((entry.facts["ts"] for entry in entries if entry.facts["manifest"] == manifest), None)

    def published(self, ref: ReleaseRef, sink: str | None = None) -> dict[str, str]:
        """Return the SHA-256 of the manifest of every recorded publication of a release, by version.

        Versions that were retired since, in a sink if it is given, are left out.
        """
        with self._store.snapshot():
            gone = self.retired(ref, sink)
            query = "select version, manifest from publication where release=? and nonce=?"
            rows = self._store.rows(query, (ref.id, ref.nonce))
        return {version: digest for version, digest in rows if digest not in gone}

    def retired(self, ref: ReleaseRef, sink: str | None = None) -> set[str]:
        """Return the SHA-256 of every manifest of a release that was retired, in a sink if it is given.

        A person was removed from these. Without a sink, a manifest counts that was retired wherever it was published.
        """
        where = self._hashed(sink)
        with self._store.snapshot():
            places: dict[str, set[str | None]] = {}  # the sinks in which a manifest was retired; None means all sinks
            for facts in (entry.facts for entry in self._journal.entries(Event.RETIRE)):
                others = (digests for *names, digests in facts.get("others", ()) if names == [ref.id, ref.nonce])
                for digest in chain(facts["retired"] if [ref.id, ref.nonce] in facts["releases"] else (), *others):
                    places.setdefault(digest, set()).add(facts.get(SINK))
            sinks_of = self.sinks() if places else {}
        return {digest for digest, sinks in places.items() if _is_retired(sinks, sinks_of.get(digest, set()), where)}

    def _hashed(self, sink: str | None) -> str | None:
        return None if sink is None else self._id_key.sink(sink)


def _is_retired(retired_in: set[str | None], published_in: set[str], sink: str | None) -> bool:
    """Say whether a manifest is retired in a sink, or without one in each where it was published."""
    if None in retired_in:
        return True
    if sink is None:
        return published_in <= retired_in
    # an old version that is put where it never was stays retired; where it was published is not known of older events
    return sink in retired_in or bool(published_in and sink not in published_in)


def _require_publication(refs: Sequence[ReleaseRef], manifest: str) -> None:
    if not refs or not _DIGEST.fullmatch(manifest):
        msg = "a publication needs at least one release and the SHA-256 of its manifest, 64 hex digits"
        raise LedgerError(msg, "pass the releases, and the digest of the manifest file")


def refuse_other_table(ref: ReleaseRef) -> NoReturn:
    """Refuse records or texts that are not those to which a release is pinned as a whole."""
    msg = f"{ref} is pinned to other records or texts: it holds one complete table"
    raise LedgerError(msg, f"this attempt drew nothing; publish this table under another name: {_NEW_NAME}")
