"""Keep scopes and their caps. A cap is a filter on one measure, declared before the charges that it judges.

Specification: docs/spec/privacy.md#caps.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple, cast

from dptext_etl.accounting import MEASURES
from dptext_etl.errors import LedgerError
from dptext_etl.guarantee import steps
from dptext_etl.ledger.storage.journal import Journal
from dptext_etl.ledger.storage.store import Store
from dptext_etl.ledger.storage.units import in_millionths, limits_stated, read_limits, write_limits
from dptext_etl.ledger.terms import NEW, Event, Scope, Unit
from dptext_etl.policy import Cap

ALL = "all"
"""The period of all time."""
LARGEST = 1 << 54
"""A limit in its steps stays below this (epsilon 1.8e10, delta 18): sums of admitted charges fit 64 bits."""


class Pinned(NamedTuple):
    """A scope as the ledger holds it. Measure and limits are empty while no cap is set."""

    id: int
    unit: Unit
    measure: str | None
    limits: tuple[int, ...]


def limits(cap: Cap) -> tuple[int, ...]:
    """Convert a cap to the steps of its components (`guarantee.steps`), rounded down, one number per component."""
    amounts = {"pure": (cap.epsilon,), "zcdp": (cap.rho,), "approx": (cap.epsilon, cap.delta)}[cap.measure]
    named = zip(MEASURES[cap.measure], amounts, strict=True)
    whole = tuple(math.floor(Fraction(repr(float(amount or 0))) * steps(name)) for name, amount in named)
    if max(whole) >= LARGEST:
        raise LedgerError("a cap of 10^10 and more protects no one", "leave the cap out to say that there is none")
    return whole


class Scopes:
    """The scopes of one ledger."""

    def __init__(self, store: Store, journal: Journal) -> None:
        self._store = store
        self._journal = journal

    def find(self, scope: Scope) -> Pinned | None:
        """Return a scope, or None if no one has used it."""
        found = self._store.row(
            "select id, unit, measure, limits from scope where name=? and period=?", (scope.name, scope.period)
        )
        if found is None:
            return None
        pinned = _pinned(found)
        if pinned.unit != scope.unit:
            msg = f"the scope {scope} counts per {pinned.unit}, got unit {scope.unit!r}"
            raise LedgerError(msg, "a scope keeps its unit: another one would start every balance at zero")
        return pinned

    def turn(self, pinned: Pinned) -> str:
        """Name what a writer holds that changes the balances of a scope (see `Store.turn`)."""
        return f"scope/{pinned.id}"

    def by_id(self, number: int) -> Pinned:
        """Return the scope with this number."""
        return _pinned(self._store.rows("select id, unit, measure, limits from scope where id=?", (number,))[0])

    def ensure(self, scope: Scope) -> Pinned:
        """Return a scope with its dataset as a member; make the scope if need be."""
        pinned = self.find(scope)
        self._refuse_second(scope)
        if pinned is None:
            self._store.require_alone()
            number = self._store.rows("select coalesce(max(id), 0) + 1 from scope")[0][0]
            self._store.execute(
                "insert into scope values(?,?,?,?,null,null)", (number, scope.name, scope.period, scope.unit)
            )
            pinned = Pinned(number, scope.unit, None, ())
        if self._store.row("select 1 from member where scope=? and dataset=?", (pinned.id, scope.dataset)) is None:
            self._store.require_alone()
            self._store.execute("insert into member values(?,?)", (pinned.id, scope.dataset))
        self._count_finely(pinned)
        return pinned

    def _count_finely(self, pinned: Pinned) -> None:
        """Write the limits of a scope in the steps of today before it is charged in them; they stay what they are."""
        found = self._store.rows("select limits from scope where id=?", (pinned.id,))[0]
        if in_millionths(pinned.measure, found[0]):
            self._store.require_alone()
            written = write_limits(pinned.measure, pinned.limits)
            self._store.execute("update scope set limits=? where id=?", (written, pinned.id))

    def _refuse_second(self, scope: Scope) -> None:
        """Keep a dataset in its group for a period: in another group every balance would start at zero."""
        found = self._store.row(
            "select scope.name from scope join member on member.scope = scope.id"
            " where member.dataset=? and scope.period=? and scope.name<>? limit 1",
            (scope.dataset, scope.period, scope.name),
        )
        if found is not None:
            msg = f"the spends of {scope.dataset} in period {scope.period} add up in {found[0]}, got {scope.name}"
            raise LedgerError(msg, "a dataset stays in its group for a period: another would start balances at zero")

    def require_capped(self, scope: Scope, pinned: Pinned) -> None:
        """Refuse a charge without a cap where the dataset has one: leaving the cap out must not lift it."""
        if pinned.measure is not None:
            return
        found = self._store.row(
            "select scope.name, scope.period from scope join member on member.scope = scope.id"
            " where member.dataset=? and scope.measure is not null limit 1",
            (scope.dataset,),
        )
        if found is not None:
            msg = f"the dataset {scope.dataset} has a cap ({found[0]}, period {found[1]}); this policy has none"
            raise LedgerError(msg, "keep [cap] in the policy")

    def refuse_all_time(self, scope: Scope) -> None:
        """Refuse the period "all" where named periods have caps: a cap of all time would not count their charges."""
        if scope.period != ALL:
            return
        found = self._store.row(
            "select scope.period from scope join member on member.scope = scope.id where scope.period<>? and"
            " measure is not null and (member.dataset=? or scope.name=?) order by scope.id desc limit 1",
            (ALL, scope.dataset, scope.name),
        )
        if found is not None:
            msg = f"{scope.dataset} has a cap in period {found[0]}, so nothing is charged in period {ALL} any more"
            raise LedgerError(msg, f'name the period in the policy: [cap] period = "{found[0]}"')

    def uncounted(self, scope: Scope) -> list[str]:
        """Return the scopes whose charges a first cap of this scope would not count, in words."""
        pinned, name = self.find(scope), scope.name
        if pinned is not None and pinned.measure is not None:
            member = self._store.row("select 1 from member where scope=? and dataset=?", (pinned.id, scope.dataset))
            if member is not None:
                return []
            name = ""  # the group's own periods were declared when its cap was set
        rows = self._store.rows(
            "select distinct scope.name, scope.period from scope join member on member.scope = scope.id"
            " where not (scope.name=? and scope.period=?) and (member.dataset=? or scope.name=?)"
            " and exists (select 1 from batch where batch.scope = scope.id)",
            (scope.name, scope.period, scope.dataset, name),
        )
        return sorted(f"{name}, period {period}" for name, period in rows)

    def set_cap(
        self,
        scope: Scope,
        pinned: Pinned,
        cap: Cap,
        uncounted: list[str],
        *,
        raising: bool,
        lowering: bool,
    ) -> Pinned:
        """Pin a cap, or change it: to a higher one only with `raising`, to a lower one only with `lowering`.

        Specification: docs/spec/privacy.md#periods.
        """
        self.require_cap(scope, pinned, cap, uncounted, raising=raising, lowering=lowering)
        if (pinned.measure, pinned.limits) == (cap.measure, limits(cap)) and not uncounted:
            return pinned
        capped = pinned._replace(measure=cap.measure, limits=limits(cap))
        self._pin(capped, scope.name, scope.period, scope.dataset)
        return capped

    def require_cap(
        self,
        scope: Scope,
        pinned: Pinned,
        cap: Cap,
        uncounted: list[str],
        *,
        raising: bool,
        lowering: bool,
    ) -> None:
        """Refuse a cap that `set_cap` would not pin."""
        asked = limits(cap)
        if pinned.measure is None and not raising:
            self._refuse_after_a_loss(scope)
        if uncounted and not raising:
            msg = f"a first cap of {scope} would not count what was charged in {' and '.join(uncounted)}"
            hint = "name that period (and group) in the policy; or start everybody at zero on purpose: "
            raise LedgerError(msg, hint + "`dptext ledger set-cap`, or Ledger.set_cap(scope, cap, raising=True)")
        if pinned.measure is not None and pinned.measure != cap.measure:
            msg = f"the scope {scope} is capped on {pinned.measure}, got {cap.measure}"
            raise LedgerError(msg, "the measure is declared before the first charge; a new period may have another")
        said = [_shown(cap.measure, amounts) for amounts in (pinned.limits, asked)]
        if _higher(asked, pinned.limits) and not raising:
            msg = f"the cap of {scope} is pinned at {said[0]}; the policy asks for more: {said[1]}"
            raise LedgerError(msg, "raise it on purpose: `dptext ledger set-cap`, or Ledger.set_cap(…, raising=True)")
        if _higher(pinned.limits, asked) and not lowering:
            msg = f"the cap of {scope} is pinned at {said[0]}; the policy asks for less: {said[1]}"
            hint = "a lowered cap stays low, and quarantines what no longer fits; if it is meant, run with "
            raise LedgerError(msg, hint + "--accept-lower-cap, or use `dptext ledger set-cap`")

    def require(self, scope: Scope, cap: Cap | None, *, lowering: bool) -> None:
        """Refuse a scope and a cap that could not be charged; nothing is written."""
        pinned = self.find(scope) or Pinned(NEW, scope.unit, None, ())
        self._refuse_second(scope)
        if cap is None:
            self.require_capped(scope, pinned)
        self.refuse_all_time(scope)
        if cap is not None:
            self.require_cap(scope, pinned, cap, self.uncounted(scope), raising=False, lowering=lowering)

    def _refuse_after_a_loss(self, scope: Scope) -> None:
        """Refuse a first cap where a loss was settled: thawing could not lower it, and charges are forgotten."""
        for entry in self._journal.entries(Event.THAW):
            facts = entry.facts
            if facts["dataset"] == scope.dataset or scope.group in facts.get("groups", ()):
                thawed = f"the dataset {facts['dataset']} was thawed"
                msg = f"{thawed}, and this ledger knows no cap of {scope} that it lowered"
                hint = "lower the cap by what may have been lost, and set it on purpose: `dptext ledger set-cap`, or "
                raise LedgerError(msg, hint + "Ledger.set_cap(scope, cap, raising=True)")

    def lower(self, pinned: Pinned, limits: list[int], dataset: str) -> str:
        """Lower the limits of a capped scope, and return the scope in words."""
        name, period = self._store.rows("select name, period from scope where id=?", (pinned.id,))[0]
        self._pin(pinned._replace(limits=tuple(limits)), name, period, dataset)
        return f"{name}, period {period}"

    def _pin(self, pinned: Pinned, name: str, period: str, dataset: str) -> None:
        said = {"scope": pinned.id, "name": name, "dataset": dataset, "period": period, "unit": pinned.unit}
        cap = {"measure": pinned.measure, "limits": list(pinned.limits), **limits_stated(pinned.measure)}
        self._journal.append(Event.CAP_SET, **said, **cap)
        written = write_limits(pinned.measure, pinned.limits)
        self._store.execute("update scope set measure=?, limits=? where id=?", (pinned.measure, written, pinned.id))


def _higher(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return any(more > less for more, less in zip(one, other, strict=False))


def _shown(measure: str, amounts: tuple[int, ...]) -> str:
    return " and ".join(f"{amount / steps(name):g}" for name, amount in zip(MEASURES[measure], amounts, strict=False))


def _pinned(row: tuple[Any, ...]) -> Pinned:
    return Pinned(row[0], cast("Unit", row[1]), row[2], read_limits(row[2], row[3]))


def components(pinned: Pinned) -> tuple[str, ...]:
    """Return the components that the cap of a scope adds up; none without a cap."""
    return () if pinned.measure is None else MEASURES[pinned.measure]
