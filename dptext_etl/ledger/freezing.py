"""Freeze datasets after their ledger was lost or restored, and thaw them when the loss is settled.

An old copy of a ledger has forgotten charges. Its balances may be too low, and its release names may be in use. What
was forgotten may stand in every scope that the dataset shares with others. So freezing covers all members of its
groups, and the groups themselves: also for datasets and periods that the copy never saw. Thawing settles all of them at
once: it revokes all their release names, and lowers each of their caps by what may have been forgotten. That is the
same as charging the amount to everybody (docs/spec/privacy.md#lost-ledger).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import NamedTuple

from dptext_etl.errors import LedgerError
from dptext_etl.guarantee import PURE, Micro, exact, micro, millionths, steps
from dptext_etl.ledger.caps import Scopes
from dptext_etl.ledger.releases import Releases
from dptext_etl.ledger.standing import Standing
from dptext_etl.ledger.storage.journal import Journal
from dptext_etl.ledger.storage.store import Store
from dptext_etl.ledger.types import GROUP, Anchor, Event

_LARGEST_LOSS = 10**12


class Loss(NamedTuple):
    """What is known of charges that a ledger may have forgotten."""

    in_use: Sequence[str] = ()  # release names that are in use elsewhere
    missing: Anchor | None = None  # an anchor that the ledger should hold and does not
    groups: Sequence[str] = ()  # groups whose caps the dataset may have charged, next to those that this ledger knows


class Freezes:
    def __init__(self, store: Store, journal: Journal, releases: Releases, scopes: Scopes, standing: Standing) -> None:
        self._store = store
        self._journal = journal
        self._releases = releases
        self._scopes = scopes
        self._standing = standing

    def freeze(self, dataset: str, reason: str, loss: Loss | None) -> None:
        """Freeze a dataset, and where charges were lost, all that shares scopes with it; revoke names in use."""
        datasets, groups, missing = {dataset}, set[str](), None
        if loss is not None:
            for release in loss.in_use:
                self._releases.revoke(dataset, release, reason)
            datasets, groups = self.sharing(dataset, loss.groups)
            missing = None if loss.missing is None else str(loss.missing)
        frozen = self._frozen()
        for name in sorted(datasets):
            before = frozen.get(name, set())
            if name in frozen and groups <= before and (missing is None or missing in self.missed(name)):
                continue
            facts: dict[str, object] = {"groups": sorted(groups | before)} if groups | before else {}
            facts |= {} if missing is None else {"missing": missing}
            seq = self._journal.append(Event.FREEZE, dataset=name, reason=reason, **facts)
            self._store.execute("insert or ignore into frozen values(?,?)", (name, seq))

    def sharing(self, dataset: str, groups: Iterable[str]) -> tuple[set[str], set[str]]:
        """Return all datasets and groups that share scopes with a dataset, directly or by way of others."""
        members = self._store.rows(
            "select distinct member.dataset, scope.name from member join scope on scope.id = member.scope"
        )
        pairs = [(name, scope.removeprefix(GROUP)) for name, scope in members if scope.startswith(GROUP)]
        datasets, joined = {dataset}, set(groups)
        while True:
            wider = {group for name, group in pairs if name in datasets} | joined
            more = {name for name, group in pairs if group in wider} | datasets
            if (wider, more) == (joined, datasets):
                return datasets, joined
            joined, datasets = wider, more

    def _frozen(self) -> dict[str, set[str]]:
        """Return the frozen datasets, each with the groups that froze with it."""
        return {dataset: set(facts.get("groups", ())) for dataset, facts in self._standing.frozen().items()}

    def missed(self, dataset: str, since: int = 0) -> list[str]:
        events = [entry.facts for entry in self._journal.entries(Event.FREEZE) if entry.seq > since]
        return [facts["missing"] for facts in events if facts["dataset"] == dataset and "missing" in facts]

    def settled(self, dataset: str, missing: Anchor, losses: int | None) -> bool:
        """Return whether the loss of an anchor was settled: the dataset was frozen for it and thawed since."""
        if dataset in self._standing.frozen():
            return False
        missed = self.missed(dataset)
        return str(missing) in missed or (losses is not None and len(missed) > losses)

    def thaw(self, dataset: str, lost: Mapping[str, float], reason: str | None) -> dict[str, dict[str, Micro]]:
        """Settle a loss: for a dataset, and for all that froze with it."""
        self._store.require_steward()
        frozen = self._frozen()
        lost = checked_losses(lost)
        if dataset not in frozen:
            raise LedgerError(f"the dataset {dataset} is not frozen")
        datasets, groups = {dataset}, frozen[dataset]
        while more := {name for name, theirs in frozen.items() if theirs & groups} - datasets:
            datasets |= more
            groups = groups.union(*(frozen[name] for name in more))
        lowered = self.lower(datasets, lost, reason)
        facts: dict[str, object] = {"lost": in_micro(lost)} | ({"groups": sorted(groups)} if groups else {})
        facts |= {} if reason is None else {"reason": reason}
        for name in sorted(datasets):
            for (release,) in self._store.rows("select distinct release from release where dataset=?", (name,)):
                self._releases.revoke(name, release, "the ledger was lost or restored")
            self._journal.append(Event.THAW, dataset=name, **facts)
            self._store.execute("delete from frozen where dataset=?", (name,))
        return lowered

    def lower(self, datasets: set[str], lost: Mapping[str, float], reason: str | None) -> dict[str, dict[str, Micro]]:
        """Lower every cap of some datasets, each once, and return the caps that hold now, in millionths, by scope."""
        rows = self._store.rows("select scope, dataset from member order by scope, dataset")
        first = {scope: name for scope, name in reversed(rows) if name in datasets}
        lowered = {}
        for number, name in sorted(first.items()):
            pinned = self._scopes.by_id(number)
            missing = set(pinned.components) - set(lost)
            if missing:
                listed = " and ".join(sorted(missing))
                raise LedgerError(f"a cap of {name} counts {listed}: state how much of it may be missing in a balance")
            if pinned.measure is not None:
                taken = [ceil(exact(lost[part]) * steps(part)) for part in pinned.components]
                limits = [max(0, limit - less) for limit, less in zip(pinned.limits, taken, strict=True)]
                lowered[self._scopes.lower(pinned, limits, name, reason)] = {
                    part: millionths(part, limit) for part, limit in zip(pinned.components, limits, strict=True)
                }
        return lowered


def checked_losses(lost: Mapping[str, float]) -> dict[str, float]:
    for amount in lost.values():
        if isinstance(amount, bool) or not isinstance(amount, (int, float)) or not 0 <= amount <= _LARGEST_LOSS:
            raise LedgerError(f"a loss is a number from 0 to {_LARGEST_LOSS:,}", f"for example {{'{PURE}': 40.0}}")
    return {name: float(amount) for name, amount in lost.items()}


def in_micro(lost: Mapping[str, float]) -> dict[str, int]:
    return {name: int(micro(amount)) for name, amount in lost.items()}
