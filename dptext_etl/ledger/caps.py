"""Keep scopes, their caps, and the amounts that units have used (docs/spec/privacy.md#caps).

A cap is a filter on one measure, declared before the charges that it judges.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from dptext_etl.accounting import MEASURES
from dptext_etl.column import INFINITE
from dptext_etl.errors import LedgerError
from dptext_etl.guarantee import PURE, steps
from dptext_etl.ledger.contents import Contents, Pinned
from dptext_etl.ledger.storage.hashed_ids import (
    HashedIds,
    Index,
    UnitSums,
    Values,
    WantedIds,
    add_at,
    concatenated,
    fold,
)
from dptext_etl.ledger.storage.journal import Journal
from dptext_etl.ledger.storage.store import Store
from dptext_etl.ledger.types import ALL, NEW, U8, CapChange, Change, Event, Mask, Scope, State
from dptext_etl.policy import Cap

LARGEST = 1 << 54
"""A limit in its steps stays below this (epsilon 1.8e10, delta 18): sums of admitted charges fit 64 bits."""
_NO_CAP = 10**16  # limits from here on are refused: an epsilon or rho of 10^10
_SET_CAP = "`dptext ledger set-cap`, or Ledger.set_cap(scope, cap, raising=True)"


def limits(cap: Cap) -> tuple[int, ...]:
    """Convert a cap to the steps of its components (`guarantee.steps`), rounded down, one number per component."""
    amounts = {"pure": (cap.epsilon,), "zcdp": (cap.rho,), "approx": (cap.epsilon, cap.delta)}[cap.measure]
    pairs = zip(MEASURES[cap.measure], amounts, strict=True)
    # Of the decimal that the policy states, not of the float next to it; and down, so that a cap stays a bound.
    whole = tuple(math.floor(Fraction(repr(float(amount or 0))) * steps(name)) for name, amount in pairs)
    if max(whole) >= _NO_CAP:
        raise LedgerError("a cap of 10^10 and more protects no one", "leave the cap out to say that there is none")
    return whole


class Scopes:
    def __init__(self, store: Store, journal: Journal, contents: Contents, states: Callable[[int], U8]) -> None:
        self._store, self._journal, self._contents, self._states = store, journal, contents, states

    def find(self, scope: Scope) -> Pinned:
        """Return a scope; one that was never used has the number `NEW`."""
        pinned = self._contents.latest().find(scope.name, scope.period)
        if pinned is None:
            return Pinned(NEW, scope.unit, None, (), scope.name, scope.period)
        if pinned.unit != scope.unit:
            msg = f"the scope {scope} counts per {pinned.unit}, got unit {scope.unit!r}"
            raise LedgerError(msg, "a scope keeps its unit: another one would start every balance at zero")
        return pinned

    def charge(
        self,
        scope: Scope,
        cap: Cap | None,
        *,
        raising: bool = False,
        lowering: bool = False,
        reason: str | None = None,
    ) -> Pinned:
        """Return a scope that is to be charged; pin or change its cap if need be.

        A higher cap is refused without `raising`, a lower one without `lowering`. Other writers rely on which scopes
        there are, and on their datasets: the first charge of one is exclusive.

        Specification: docs/spec/privacy.md#periods.
        """
        pinned, contents = self.find(scope), self._contents.latest()
        self._refuse_other_scopes(contents, scope, pinned, cap)
        wanted, uncounted = pinned, list[str]()
        if cap is not None:
            wanted, uncounted = pinned._replace(measure=cap.measure, limits=limits(cap)), self.uncounted(scope)
            if not raising:
                self._refuse_first(contents, scope, pinned, uncounted)
            if pinned.measure is None:
                self._refuse_uncountable(wanted)
            elif pinned.measure != cap.measure:
                self._refuse_conversion(scope, pinned, wanted, raising=raising)
            else:
                _refuse_change(scope, pinned, wanted, raising=raising, lowering=lowering)
            if pinned.id != NEW and pinned != wanted:
                self._store.require_steward()
        if scope.dataset not in contents.members.get(pinned.id, ()):
            self._store.require_exclusive()
        numbered = wanted._replace(id=len(contents.scopes) + 1 if pinned.id == NEW else pinned.id)
        if uncounted or wanted != pinned:
            self.pin(pinned, numbered, scope.dataset, reason)
        return numbered

    def _refuse_other_scopes(self, contents: Contents, scope: Scope, pinned: Pinned, cap: Cap | None) -> None:
        """Refuse charges that another scope of the dataset would not count."""
        if (other := contents.other_group(scope)) is not None:
            msg = f"the spends of {scope.dataset} in period {scope.period} add up in {other.name}, got {scope.name}"
            raise LedgerError(msg, "a dataset stays in its group for a period: another would start balances at zero")
        capped = contents.capped(scope.dataset) if cap is None and pinned.measure is None else None
        if capped is not None:
            msg = f"the dataset {scope.dataset} has a cap ({capped.name}, period {capped.period}); this policy has none"
            raise LedgerError(msg, "keep [cap] in the policy")
        if (named := contents.named_period(scope)) is not None:
            msg = f"{scope.dataset} has a cap in period {named.period}, so nothing is charged in period {ALL} any more"
            raise LedgerError(msg, f'name the period in the policy: [cap] period = "{named.period}"')

    def uncounted(self, scope: Scope) -> list[str]:
        """Return the charged scopes of a dataset, or of a group that has no cap yet, except this one, in words."""
        pinned, contents = self.find(scope), self._contents.latest()
        name: str | None = scope.name
        if pinned.measure is not None:
            if scope.dataset in contents.members[pinned.id]:
                return []
            name = None  # the group's own periods were declared when its cap was set
        return sorted(
            f"{item.name}, period {item.period}"
            for number, item in contents.scopes.items()
            if number in contents.of_scope
            and (scope.dataset in contents.members[number] or item.name == name)
            and (item.name, item.period) != (scope.name, scope.period)
        )

    def pin(self, before: Pinned, pinned: Pinned, dataset: str, reason: str | None) -> None:
        facts: dict[str, Any] = {"name": pinned.name, "period": pinned.period, "dataset": dataset}
        facts |= {"scope": pinned.id, "unit": pinned.unit, "measure": pinned.measure, "limits": list(pinned.limits)}
        facts |= {"change": _change(before, pinned), "before": dict(zip(before.components, before.limits, strict=True))}
        facts |= {} if reason is None else {"reason": reason}
        self._journal.append(Event.CAP_SET, **facts)

    def _refuse_first(self, contents: Contents, scope: Scope, pinned: Pinned, uncounted: list[str]) -> None:
        """Refuse a first cap that would not count charges, of which some may be forgotten with a lost ledger."""
        if uncounted:
            contents.refuse_frozen(scope.dataset, scope.group)
        for facts in contents.thaws if pinned.measure is None else ():
            if facts["dataset"] == scope.dataset or scope.group in facts.get("groups", ()):
                thawed = f"the dataset {facts['dataset']} was thawed"
                msg = f"{thawed}, and this ledger knows no cap of {scope} that it lowered"
                hint = f"lower the cap by the amount that may have been lost, and set it on purpose: {_SET_CAP}"
                raise LedgerError(msg, hint)
        if uncounted:
            msg = f"a first cap of {scope} would not count charges in {' and '.join(uncounted)}"
            hint = "name that period (and group) in the policy; or start everyone at zero on purpose: "
            raise LedgerError(msg, hint + _SET_CAP)

    def _refuse_conversion(self, scope: Scope, pinned: Pinned, wanted: Pinned, *, raising: bool) -> None:
        """Refuse another measure, or `approx` for `pure` at other epsilons (docs/spec/privacy.md#conversion)."""
        if (pinned.measure, wanted.measure) != ("pure", "approx"):
            msg = f"the scope {scope} is capped on {pinned.measure}, got {wanted.measure}"
            raise LedgerError(msg, "the measure is declared before the first charge; a new period may have another")
        group = "" if scope.group is None else f" --group {scope.group}"
        command = f"`dptext ledger set-cap {scope.dataset} --delta {wanted.limits[1] / steps('delta'):g} --period"
        command += f" {scope.period}{group} --unit {scope.unit} --reason WORDS`"
        if not raising:
            hint = f"{command} converts the cap; it keeps its epsilon"
            raise LedgerError(f"the scope {scope} is capped on pure, got approx", hint)
        if pinned.limits[0] != wanted.limits[0]:
            msg = f"a cap that is converted keeps its epsilon, which is {pinned.limits[0] / steps(PURE):g}"
            raise LedgerError(msg, f"convert it first: {command}; then change it")
        self._refuse_uncountable(wanted)

    def _refuse_uncountable(self, pinned: Pinned) -> None:
        """Refuse a first cap over charges of the scope that its measure cannot count."""
        for seq in self._contents.latest().of_scope.get(pinned.id, ()):
            columns = self._journal.read(seq, ["canary", *pinned.components])
            rows = (columns["canary"] == 0) & (self._states(seq) != State.ABORTED)
            largest = max(int(columns[name][rows].max(initial=0)) for name in pinned.components)
            if largest >= LARGEST:
                size = "infinite" if largest == INFINITE else "too large"
                msg = f"the scope holds charges that are {size} on {pinned.measure}, made before it had a cap"
                raise LedgerError(msg, "declare the cap in a new period")


def _change(before: Pinned, after: Pinned) -> Change:
    """Say in one word how a cap changes; it is higher if it is so in any component."""
    if before.measure != after.measure:
        return "first" if before.measure is None else "measure"
    higher = any(new > old for old, new in zip(before.limits, after.limits, strict=True))
    return "higher" if higher else "same" if before == after else "lower"


def _refuse_change(scope: Scope, pinned: Pinned, wanted: Pinned, *, raising: bool, lowering: bool) -> None:
    before, after = (
        " and ".join(f"{amount / steps(name):g}" for name, amount in zip(item.components, item.limits, strict=True))
        for item in (pinned, wanted)
    )
    pairs = list(zip(pinned.limits, wanted.limits, strict=True))
    if any(new > old for old, new in pairs) and not raising:
        msg = f"the cap of {scope} is pinned at {before}; the policy asks for more: {after}"
        raise LedgerError(msg, "raise it on purpose: `dptext ledger set-cap`, or Ledger.set_cap(…, raising=True)")
    if any(new < old for old, new in pairs) and not lowering:
        msg = f"the cap of {scope} is pinned at {before}; the policy asks for less: {after}"
        hint = "a lowered cap stays low, and leaves out rows that no longer fit; if it is meant, run with "
        raise LedgerError(msg, hint + "--accept-lower-cap, or use `dptext ledger set-cap`")


def admit(  # noqa: PLR0917
    limits: tuple[int, ...], units: Index, order: Index, amounts: Values, asking: Mask, used: Values
) -> Mask:
    """Judge the records of a batch in row order: one fits if its amount and its unit's amounts stay in the cap.

    `units` are the places of the units of the records in `used`, which has the shape (components, units), and `order`
    brings records of one unit together.
    """
    bound = np.array(limits, np.int64)[:, None]
    fits: Mask = asking & (amounts <= bound).all(axis=0)
    rows = order[fits[order]]
    if not len(rows):
        return fits
    starts = np.flatnonzero(np.append(True, units[rows[1:]] != units[rows[:-1]]))
    used = used[:, units[rows[starts]]]
    ends = np.append(starts[1:], len(rows))
    if max(limits) * len(rows) >= 1 << 62:  # sums could overflow
        tight: Mask = np.ones(len(starts), np.bool_)
    else:
        tight = np.any(used + np.add.reduceat(amounts[:, rows], starts, axis=1) > bound, axis=0)
    # Only a unit with several records that do not all fit needs a loop, which judges these in their order.
    single = ends - starts == 1
    fits[rows[starts[single & (used + amounts[:, rows[starts]] > bound).any(axis=0)]]] = False
    for unit in np.flatnonzero(tight & ~single):
        spent = used[:, unit].tolist()  # whole numbers of any size
        of_unit = rows[starts[unit] : ends[unit]]
        for row, wanted in zip(of_unit.tolist(), amounts[:, of_unit].T.tolist(), strict=True):
            after = [have + more for have, more in zip(spent, wanted, strict=True)]
            if any(total > limit for total, limit in zip(after, limits, strict=True)):
                fits[row] = False
            else:
                spent = after
    return fits


class EarlierCharges:
    """The amounts, by unit, of batches that were judged before another one, and that the ledger does not hold."""

    def __init__(self) -> None:
        self._sums = UnitSums(concatenated(()), np.zeros((0, 0), np.int64))

    def added_to(self, units: HashedIds, used: Values) -> tuple[Index, Values]:
        """Number the units of the records of a batch, shape (records,), and add their amounts here to the used ones.

        `used` are amounts per record, shape (components, records); the result has one column per unit.
        """
        wanted = WantedIds(units)
        total = np.zeros((len(used), len(wanted)), np.int64)
        total[:, wanted.places_as_passed] = used
        rows, places = wanted.find(self._sums.ids)
        if len(rows):
            add_at(total, places, self._sums.values[:, rows])
        return wanted.places_as_passed, total

    def add(self, units: HashedIds, amounts: Values) -> None:
        """Add the amounts of a batch that its cap admits, shape (components, records)."""
        rows = np.flatnonzero(amounts.any(axis=0))
        values = amounts[:, rows] if not self._sums.ids.size else np.hstack([self._sums.values, amounts[:, rows]])
        self._sums = fold(concatenated([self._sums.ids, units.take(rows)]), values)


def cap_change(scope: Scope, pinned: Pinned, cap: Cap | None) -> CapChange | None:
    if pinned.measure is None or cap is None:
        return None
    policy_cap = pinned._replace(measure=cap.measure, limits=limits(cap))
    if pinned == policy_cap:
        return None
    before_and_after = [
        {name: limit / steps(name) for name, limit in zip(item.components, item.limits, strict=True)}
        for item in (pinned, policy_cap)
    ]
    return CapChange(str(scope), _change(pinned, policy_cap), *before_and_after)
