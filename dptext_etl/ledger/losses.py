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

from dptext_etl.errors import LedgerError
from dptext_etl.guarantee import PURE, Micro, exact, micro, millionths, steps
from dptext_etl.ledger.plan import Database
from dptext_etl.ledger.types import GROUP, Anchor, Event, require_plain

_LARGEST_LOSS = 10**12


class Losses:
    """Frozen datasets, and losses of charges. Every method is one transaction."""

    def __init__(self, db: Database) -> None:
        self._db = db

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
        db = self._db
        with db.store.transaction():
            for release in in_use:
                db.releases.revoke(dataset, release, reason)
            datasets, joined = ({dataset}, set[str]()) if alone else self._sharing(dataset, groups)
            frozen = self._frozen()
            for name in sorted(datasets):
                before = frozen.get(name, set())
                if name in frozen and joined <= before and (missing is None or str(missing) in self._missed(name)):
                    continue
                facts: dict[str, object] = {"groups": sorted(joined | before)} if joined | before else {}
                facts |= {} if missing is None else {"missing": str(missing)}
                seq = db.journal.append(Event.FREEZE, dataset=name, reason=reason, **facts)
                db.store.execute("insert or ignore into frozen values(?,?)", (name, seq))

    def thaw(
        self, dataset: str, lost: Mapping[str, float], *, reason: str | None = None
    ) -> dict[str, dict[str, Micro]]:
        """Let a frozen dataset and all that froze with it go on.

        Their releases are revoked, and their caps are lowered by what may have been lost. The journal keeps the reason.

        Specification: docs/spec/privacy.md#lost-ledger.
        """
        if reason is not None:
            require_plain(reason, "thaw")
        db, lost = self._db, checked_losses(lost)
        with db.store.transaction():
            db.store.require_steward()
            frozen = self._frozen()
            if dataset not in frozen:
                raise LedgerError(f"the dataset {dataset} is not frozen")
            datasets, groups = {dataset}, frozen[dataset]
            while more := {name for name, theirs in frozen.items() if theirs & groups} - datasets:
                datasets |= more
                groups = groups.union(*(frozen[name] for name in more))
            lowered = lower(db, datasets, lost, reason)
            facts: dict[str, object] = {"lost": in_micro(lost)} | ({"groups": sorted(groups)} if groups else {})
            facts |= {} if reason is None else {"reason": reason}
            for name in sorted(datasets):
                for (release,) in db.store.rows("select distinct release from release where dataset=?", (name,)):
                    db.releases.revoke(name, release, "the ledger was lost or restored")
                db.journal.append(Event.THAW, dataset=name, **facts)
                db.store.execute("delete from frozen where dataset=?", (name,))
            return lowered

    def frozen(self) -> list[str]:
        """List the frozen datasets."""
        with self._db.store.snapshot():
            return sorted(self._frozen())

    def sharing(self, dataset: str, groups: Iterable[str] = ()) -> tuple[set[str], set[str]]:
        """Return the datasets and groups that share a scope with a dataset, directly or by way of others."""
        with self._db.store.snapshot():
            return self._sharing(dataset, groups)

    def count(self, dataset: str, since: int = 0) -> int:
        """Count how often charges of a dataset were found to be missing; keep it next to an anchor, for `settled`."""
        with self._db.store.snapshot():
            return len(self._missed(dataset, since))

    def settled(self, dataset: str, missing: Anchor, losses: int | None = None) -> bool:
        """Return whether the loss of an anchor was settled: the dataset was frozen for it and thawed since."""
        with self._db.store.snapshot():
            if dataset in self._frozen():
                return False
            missed = self._missed(dataset)
            return str(missing) in missed or (losses is not None and len(missed) > losses)

    def _frozen(self) -> dict[str, set[str]]:
        """Return the frozen datasets, each with the groups that froze with it."""
        return {dataset: set(facts.get("groups", ())) for dataset, facts in self._db.standing.frozen().items()}

    def _sharing(self, dataset: str, groups: Iterable[str]) -> tuple[set[str], set[str]]:
        members = self._db.store.rows(
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

    def _missed(self, dataset: str, since: int = 0) -> list[str]:
        events = [entry.facts for entry in self._db.journal.entries(Event.FREEZE) if entry.seq > since]
        return [facts["missing"] for facts in events if facts["dataset"] == dataset and "missing" in facts]


def lower(
    db: Database, datasets: set[str], lost: Mapping[str, float], reason: str | None
) -> dict[str, dict[str, Micro]]:
    """Lower every cap of some datasets, each once, and return the caps that hold now, in millionths, by scope."""
    rows = db.store.rows("select scope, dataset from member order by scope, dataset")
    first = {scope: name for scope, name in reversed(rows) if name in datasets}
    lowered = {}
    for number, name in sorted(first.items()):
        pinned = db.scopes.by_id(number)
        missing = set(pinned.components) - set(lost)
        if missing:
            listed = " and ".join(sorted(missing))
            raise LedgerError(f"a cap of {name} counts {listed}: state how much of it may be missing in a balance")
        if pinned.measure is not None:
            taken = [ceil(exact(lost[part]) * steps(part)) for part in pinned.components]
            limits = [max(0, limit - less) for limit, less in zip(pinned.limits, taken, strict=True)]
            lowered[db.scopes.lower(pinned, limits, name, reason)] = {
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
