"""Freeze datasets whose ledger was lost or restored, and thaw them when the loss is settled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil

from dptext_etl.errors import LedgerError
from dptext_etl.guarantee import ADDITIVE, PURE, Micro, exact, micro, millionths, steps
from dptext_etl.ledger.holdings import Database
from dptext_etl.ledger.types import GROUP, Anchor, Event, require_plain

_LARGEST_LOSS = 10**12


class Losses:
    """Freeze datasets after their ledger was lost or restored, and thaw them when the loss is settled.

    An old copy of a ledger lacks later charges. Its balances may be too low, and its release names may be in use. The
    missing charges may be in every scope that the dataset shares with others. So freezing covers all members of its
    groups, and the groups themselves: also for datasets and periods that the copy never had. Thawing settles all of
    them at once: it revokes all their release names, and lowers each of their caps by the amount that may be missing.
    That is the same as charging the amount to everyone. Every method is one transaction.

    Specification: docs/spec/privacy.md#lost-ledger.
    """

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
            raise LedgerError("`alone` is only for a dataset without a loss", "leave `alone` out")
        db = self._db
        with db.store.transaction():
            # Texts of these releases may be out while their charges are missing, so the names are not used again.
            for release in in_use:
                db.releases.burn(dataset, release, reason)
            datasets, joined = ({dataset}, set[str]()) if alone else self.sharing(dataset, groups)
            frozen = self._frozen()
            for name in sorted(datasets):
                before = frozen.get(name, set())
                if name in frozen and joined <= before and (missing is None or str(missing) in self._missed(name)):
                    continue
                facts: dict[str, object] = {"groups": sorted(joined | before)} if joined | before else {}
                facts |= {} if missing is None else {"missing": str(missing)}
                db.journal.append(Event.FREEZE, dataset=name, reason=reason, **facts)

    def thaw(
        self, dataset: str, lost: Mapping[str, float], *, reason: str | None = None
    ) -> dict[str, dict[str, Micro]]:
        """Let a frozen dataset and all that froze with it continue.

        Their releases are revoked, and their caps are lowered by the possible loss. The journal keeps the reason.

        Specification: docs/spec/privacy.md#lost-ledger.
        """
        require_plain(reason, "thaw")
        db, lost = self._db, checked_losses(lost)
        with db.store.transaction():
            db.store.require_steward()
            frozen = self._frozen()
            if dataset not in frozen:
                msg = f"the dataset {dataset} is not frozen"
                raise LedgerError(msg, "`dptext ledger history` lists freezes and thaws")
            datasets, groups = {dataset}, frozen[dataset]
            while more := {name for name, shared in frozen.items() if shared & groups} - datasets:
                datasets |= more
                groups = groups.union(*(frozen[name] for name in more))
            lowered = lower(db, datasets, lost, reason)
            facts: dict[str, object] = {"lost": in_micro(lost)} | ({"groups": sorted(groups)} if groups else {})
            facts |= {} if reason is None else {"reason": reason}
            for name in sorted(datasets):
                for release in {item.release: None for item in db.contents.latest().releases_of(name)}:
                    db.releases.burn(name, release, "the ledger was lost or restored")
                db.journal.append(Event.THAW, dataset=name, **facts)
            return lowered

    def frozen(self) -> list[str]:
        """List the frozen datasets."""
        with self._db.store.snapshot():
            return sorted(self._frozen())

    def sharing(self, dataset: str, groups: Iterable[str] = ()) -> tuple[set[str], set[str]]:
        """Return the datasets and groups that share a scope with a dataset, directly or by way of others."""
        with self._db.store.snapshot():
            contents = self._db.contents.latest()
            named = [(contents.scopes[number].name, datasets) for number, datasets in contents.members.items()]
            pairs = [(name, scope.removeprefix(GROUP)) for scope, of in named if scope.startswith(GROUP) for name in of]
            datasets, joined = {dataset}, set(groups)
            while True:
                wider = {group for name, group in pairs if name in datasets} | joined
                more = {name for name, group in pairs if group in wider} | datasets
                if (wider, more) == (joined, datasets):
                    return datasets, joined
                joined, datasets = wider, more

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
        frozen = self._db.contents.latest().frozen
        return {dataset: set(facts.get("groups", ())) for dataset, facts in frozen.items()}

    def _missed(self, dataset: str, since: int = 0) -> list[str]:
        freezes = (facts for seq, facts in self._db.contents.latest().freezes if seq > since)
        return [facts["missing"] for facts in freezes if facts["dataset"] == dataset and "missing" in facts]


def lower(
    db: Database, datasets: set[str], lost: Mapping[str, float], reason: str | None
) -> dict[str, dict[str, Micro]]:
    """Lower every cap of some datasets, each once, and return the caps that hold now, in millionths, by scope."""
    contents = db.contents.latest()
    first = {number: min(of & datasets) for number, of in contents.members.items() if of & datasets}
    lowered = {}
    for number, name in sorted(first.items()):
        pinned = contents.scopes[number]
        if missing := set(pinned.components) - set(lost):
            listed = " and ".join(sorted(missing))
            msg = f"a cap of {name} counts {listed}: state how much of it may be missing in a balance"
            raise LedgerError(msg, "add the component to the losses, 0 if none of it is missing")
        if pinned.measure is not None:
            # Up: the cap falls by the stated loss or more.
            taken = [ceil(exact(lost[part]) * steps(part)) for part in pinned.components]
            limits = [max(0, limit - less) for limit, less in zip(pinned.limits, taken, strict=True)]
            db.scopes.pin(pinned, pinned._replace(limits=tuple(limits)), name, reason)
            lowered[f"{pinned.name}, period {pinned.period}"] = {
                part: millionths(part, limit) for part, limit in zip(pinned.components, limits, strict=True)
            }
    return lowered


def checked_losses(lost: Mapping[str, float]) -> dict[str, float]:
    if not {*lost} <= {*ADDITIVE}:
        raise LedgerError("a loss is of a component that no cap has", f"the components are {', '.join(ADDITIVE)}")
    for amount in lost.values():
        if isinstance(amount, bool) or not isinstance(amount, (int, float)) or not 0 <= amount <= _LARGEST_LOSS:
            raise LedgerError(f"a loss is a number from 0 to {_LARGEST_LOSS:,}", f"for example {{'{PURE}': 40.0}}")
    return {name: float(amount) for name, amount in lost.items()}


def in_micro(lost: Mapping[str, float]) -> dict[str, int]:
    return {name: int(micro(amount)) for name, amount in lost.items()}
