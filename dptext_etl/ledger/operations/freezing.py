"""Freeze a dataset after its ledger was lost or restored, and thaw it when the loss is settled.

An old copy of a ledger has forgotten charges. Its balances may be too low, and its release names may be in use. So
thawing revokes all release names, and lowers each cap of the dataset by what may have been forgotten. That is the same
as charging the amount to everybody.

Specification: docs/spec/privacy.md#lost-ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dptext_etl.errors import LedgerError
from dptext_etl.guarantee import micro
from dptext_etl.ledger.operations.releases import Releases
from dptext_etl.ledger.operations.scopes import Scopes, components
from dptext_etl.ledger.storage.journal import Journal
from dptext_etl.ledger.storage.store import Store
from dptext_etl.ledger.terms import Anchor, Event


class Freezes:
    """The frozen datasets of one ledger.

    Args:
        store: The store of the ledger.
        journal: Its journal.
        releases: Its releases.
        scopes: Its scopes.
    """

    def __init__(self, store: Store, journal: Journal, releases: Releases, scopes: Scopes) -> None:
        self._store = store
        self._journal = journal
        self._releases = releases
        self._scopes = scopes

    def freeze(self, dataset: str, reason: str, in_use: Sequence[str], missing: Anchor | None) -> None:
        """Freeze a dataset, unless it is frozen, and revoke release names that are in use elsewhere.

        Args:
            dataset: Its name.
            reason: Why, in plain words.
            in_use: Release names to revoke.
            missing: An anchor that the ledger should hold and does not.
        """
        for release in in_use:
            self._releases.revoke_name(dataset, release, reason)
        if self._store.row("select 1 from frozen where dataset=?", (dataset,)) is None:
            lost = {} if missing is None else {"missing": str(missing)}
            seq = self._journal.append(Event.FREEZE, dataset=dataset, reason=reason, **lost)
            self._store.execute("insert into frozen values(?,?)", (dataset, seq))

    def settled(self, dataset: str, missing: Anchor) -> bool:
        """Return whether the dataset was frozen for this anchor and thawed since."""
        if self._store.row("select 1 from frozen where dataset=?", (dataset,)) is not None:
            return False
        said = (entry.facts for entry in self._journal.entries(Event.FREEZE))
        return any((facts["dataset"], facts.get("missing")) == (dataset, str(missing)) for facts in said)

    def thaw(self, dataset: str, lost: Mapping[str, float]) -> dict[str, dict[str, int]]:
        """Revoke the releases of a dataset, lower its caps by what may have been lost, and let it go on.

        Args:
            dataset: A frozen dataset.
            lost: The most that a unit may have been charged since the copy was made, by component of the caps
                (eps_pure; or rho; or eps_approx and delta).

        Returns:
            The caps that hold now, in millionths, by scope.

        Raises:
            LedgerError: The dataset is not frozen, or a component of one of its caps is not stated.
        """
        if self._store.row("select 1 from frozen where dataset=?", (dataset,)) is None:
            raise LedgerError(f"the dataset {dataset} is not frozen")
        members = self._store.rows("select scope from member where dataset=? order by scope", (dataset,))
        lowered = {}
        for (number,) in members:
            pinned = self._scopes.by_id(number)
            missing = set(components(pinned)) - set(lost)
            if missing:
                asked = " and ".join(sorted(missing))
                raise LedgerError(f"a cap of {dataset} counts {asked}: state how much of it may have been lost")
            if pinned.measure is not None:
                taken = [int(micro(float(lost[name]))) for name in components(pinned)]
                limits = [max(0, limit - less) for limit, less in zip(pinned.limits, taken, strict=True)]
                lowered[self._scopes.lower(pinned, limits, dataset)] = dict(
                    zip(components(pinned), limits, strict=True)
                )
        self._releases.revoke_all(dataset, "the ledger was lost or restored")
        self._journal.append(Event.THAW, dataset=dataset, lost={name: int(micro(float(x))) for name, x in lost.items()})
        self._store.execute("delete from frozen where dataset=?", (dataset,))
        return lowered
