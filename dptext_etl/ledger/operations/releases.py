"""Pin release names: a name holds one configuration per column and one type of id, and a revoked name never comes back.

Specification: docs/spec/privacy.md#one-text-per-release, docs/spec/stream.md#record-id.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dptext_etl.accounting import least
from dptext_etl.artifacts import canon
from dptext_etl.errors import FrozenLedgerError, LedgerError
from dptext_etl.guarantee import Guarantee, GuaranteeClass, Spend
from dptext_etl.ledger.operations.claims import weakened
from dptext_etl.ledger.storage.journal import Journal
from dptext_etl.ledger.storage.store import Store
from dptext_etl.ledger.terms import NEW, Event, ReleaseRef

NAMES = ("dataset", "column", "release", "cfg", "id_type", "mechanism")
_NEW_NAME = "take a new release name; its spend is charged in full"


def stated(guarantee: Guarantee, worst: Spend) -> dict[str, Any]:
    """Return the public facts of a claim: constants of the configuration, nothing of any text."""
    bound = least(worst)
    return {
        "class": guarantee.guarantee_class.value,
        "disclosures": sorted(item.value for item in guarantee.disclosures),
        "assumptions": sorted(guarantee.assumptions),
        "neighbours": guarantee.neighbours,
        "unit": guarantee.unit,
        "worst_case": worst.as_dict(),
        "least": {"epsilon": _written(bound.epsilon), "delta": _written(bound.delta), "rule": bound.rule},
    }


def _written(amount: float) -> float | str:
    return "inf" if amount == float("inf") else int(amount) if amount == int(amount) else amount


class Releases:
    """The releases of one ledger."""

    def __init__(self, store: Store, journal: Journal) -> None:
        self._store = store
        self._journal = journal

    def register(
        self,
        names: Mapping[str, str],
        facts: Mapping[str, Any],
        *,
        publishable: bool,
        nonce: int = 0,
        pin: bool = True,
    ) -> ReleaseRef:
        """Pin a release name, or find it pinned to the same configuration and to no stronger claim.

        Without `pin` nothing is written: a name that the ledger does not hold gets the number `NEW`.
        """
        dataset, column, release = names["dataset"], names["column"], names["release"]
        where = f"release {release!r} of {dataset}.{column}"
        refuse_frozen(self._store, dataset)
        self._refuse_revoked(dataset, release)
        pinned = self._store.row("select distinct id_type from release where dataset=? and col=?", (dataset, column))
        if pinned is not None and pinned[0] != names["id_type"]:
            msg = f"the record ids of {dataset}.{column} are pinned to type {pinned[0]}, got {names['id_type']}"
            raise LedgerError(msg, "cast the id column: another type would make every record a new one")
        written = json.loads(canon(dict(facts) | {"mechanism": names["mechanism"]}))
        found = self._store.row(
            "select id, cfg, facts, publishable from release where dataset=? and col=? and release=?",
            (dataset, column, release),
        )
        if found is None:
            number = self._pin(names, written, publishable=publishable) if pin else NEW
        elif found[1] != names["cfg"]:
            raise LedgerError(f"{where} is pinned to another configuration ({found[1][:12]}…)", _NEW_NAME)
        elif bool(found[3]) != publishable:
            raise LedgerError(f"{where} is pinned as {'' if found[3] else 'not '}publishable", _NEW_NAME)
        elif less := weakened(json.loads(found[2]), written):
            raise LedgerError(f"{where} was pinned with a stronger claim; today's has {'; '.join(less)}", _NEW_NAME)
        else:
            number = int(found[0])
        return ReleaseRef(number, dataset, column, release, names["cfg"], nonce)

    def _pin(self, names: Mapping[str, str], facts: Mapping[str, Any], *, publishable: bool) -> int:
        number = self._store.rows("select coalesce(max(id), 0) + 1 from release")[0][0]
        said = {**{name: names[name] for name in NAMES if name != "mechanism"}, "facts": facts}
        self._journal.append(Event.RELEASE, release_id=number, publishable=publishable, **said)
        self._store.execute(
            "insert into release values(?,?,?,?,?,?,?,?,null)",
            (number, *(names[name] for name in NAMES[:5]), int(publishable), canon(facts).decode()),
        )
        return int(number)

    def require_usable(self, ref: ReleaseRef) -> None:
        """Refuse a release that is revoked, or that this ledger does not know."""
        found = self._store.row("select dataset, col, release, cfg from release where id=?", (ref.id,))
        if found != (ref.dataset, ref.column, ref.release, ref.cfg):
            raise LedgerError(f"{ref} is not registered in this ledger", "call Ledger.register first")
        refuse_frozen(self._store, ref.dataset)
        self._refuse_revoked(ref.dataset, ref.release)

    def require_publishable(self, ref: ReleaseRef) -> None:
        """Refuse to publish a release that is revoked, has no theorem, or was declared a benchmark."""
        self.require_usable(ref)
        found = self._store.rows("select publishable, facts from release where id=?", (ref.id,))[0]
        if not found[0] or json.loads(found[1])["class"] == GuaranteeClass.NONE:
            raise LedgerError(f"{ref} is not publishable", "faithful mechanisms are for benchmarks on public data")

    def is_central(self, ref: ReleaseRef) -> bool:
        """Return whether a release publishes public texts that follow a statistic, whose number says nothing of it."""
        found = self._store.rows("select facts from release where id=?", (ref.id,))[0]
        return bool(json.loads(found[0])["class"] == GuaranteeClass.CENTRAL_ZCDP)

    def require_refundable(self, ref: ReleaseRef) -> None:
        """Refuse to charge what was used where the release is not refundable."""
        found = self._store.rows("select facts from release where id=?", (ref.id,))[0]
        if not json.loads(found[0]).get("expost", False):
            hint = "leave `spent` out; the worst case stays charged, because the number of steps may tell of a text"
            raise LedgerError(f"{ref} is not refundable: it was pinned without refundable=True", hint)

    def record_bound(self, ref: ReleaseRef) -> int | None:
        """Return the public bound on records that the delta of a release was stated for, or None."""
        found = self._store.rows("select facts from release where id=?", (ref.id,))[0]
        bound = json.loads(found[0]).get("configuration", {}).get("n_rec")
        return bound if isinstance(bound, int) else None

    def pin_table(self, ref: ReleaseRef, digest: str) -> None:
        """Pin the records and texts of a release by a keyed digest, or refuse others than the pinned ones."""
        self.require_usable(ref)
        pinned = self.pinned_table(ref)
        if pinned is None:
            self._journal.append(Event.PIN, release=ref.id, nonce=ref.nonce, digest=digest)
        elif pinned != digest:
            msg = f"{ref} is pinned to other records or texts: it holds one table, whole"
            raise LedgerError(msg, f"this attempt drew nothing; publish this table under another name: {_NEW_NAME}")

    def pinned_table(self, ref: ReleaseRef) -> str | None:
        """Return the digest that is pinned of the records and texts of a release, or None."""
        seq = self.pins().get((ref.id, ref.nonce))
        return None if seq is None else str(self._journal.facts(seq)["digest"])

    def pins(self) -> dict[tuple[int, int], int]:
        """Return the event that pinned a table, by release and nonce: what was reserved later is not in it."""
        found = ((entry.seq, entry.facts) for entry in self._journal.entries(Event.PIN))
        return {(facts["release"], facts["nonce"]): seq for seq, facts in found}

    def require_known(self, dataset: str, release: str) -> None:
        """Refuse a release name that this ledger does not know: it would be a slip of the pen."""
        if self._store.row("select 1 from release where dataset=? and release=?", (dataset, release)) is None:
            msg = f"release {release!r} of {dataset} is not registered in this ledger"
            raise LedgerError(msg, "`dptext ledger show` lists the releases")

    def revoke_all(self, dataset: str, reason: str) -> None:
        """Revoke all release names of a dataset."""
        for (release,) in self._store.rows("select distinct release from release where dataset=?", (dataset,)):
            self.revoke_name(dataset, release, reason)

    def revoke_name(self, dataset: str, release: str, reason: str) -> None:
        """Revoke a release name, whether or not this ledger knows it."""
        if self._revoked(dataset, release):
            return
        seq = self._journal.append(Event.BURN, dataset=dataset, release=release, reason=reason)
        self._store.execute("insert into burnt values(?,?,?)", (dataset, release, seq))
        self._store.execute("update release set burnt=? where dataset=? and release=?", (seq, dataset, release))

    def _revoked(self, dataset: str, release: str) -> bool:
        return self._store.row("select 1 from burnt where dataset=? and release=?", (dataset, release)) is not None

    def _refuse_revoked(self, dataset: str, release: str) -> None:
        if self._revoked(dataset, release):
            msg = f"release {release!r} of {dataset} is revoked: nothing further happens under this name"
            raise LedgerError(msg, f"if a gate fired, mend the defect; then {_NEW_NAME}")


def refuse_frozen(store: Store, dataset: str) -> None:
    """Refuse a frozen dataset (see `ledger.operations.freezing`)."""
    found = store.row("select body from event join frozen on frozen.seq = event.seq where dataset=?", (dataset,))
    if found is not None:
        reason = json.loads(found[0])["reason"]
        hint = "`dptext ledger thaw` revokes its release names and charges what may have been lost"
        raise FrozenLedgerError(f"the dataset {dataset} is frozen: {reason}", hint)
