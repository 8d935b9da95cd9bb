"""Keep scopes and their caps. A cap is a filter on one measure, declared before the charges that it judges.

Specification: docs/spec/privacy.md#caps.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any, NamedTuple, cast

from dptext_etl.accounting import MEASURES
from dptext_etl.errors import LedgerError
from dptext_etl.guarantee import MICRO
from dptext_etl.ledger.storage.journal import Journal
from dptext_etl.ledger.storage.store import Store
from dptext_etl.ledger.terms import Event, Scope, Unit
from dptext_etl.policy import Cap

LARGEST = 1 << 54
"""A limit in millionths stays below this (epsilon 1.8e10), so that sums of admitted charges fit 64 bits."""


class Pinned(NamedTuple):
    """A scope as the ledger holds it. Measure and limits are empty while no cap is set."""

    id: int
    unit: Unit
    measure: str | None
    limits: tuple[int, ...]


def limits(cap: Cap) -> tuple[int, ...]:
    """Convert a cap to millionths, rounded down, one number per component of its measure.

    Raises:
        LedgerError: The cap is too large.
    """
    amounts = {"pure": (cap.epsilon,), "zcdp": (cap.rho,), "approx": (cap.epsilon, cap.delta)}[cap.measure]
    whole = tuple(math.floor(Fraction(repr(float(amount or 0))) * MICRO) for amount in amounts)
    if max(whole) >= LARGEST:
        raise LedgerError("a cap of 10^10 and more protects nobody", "leave the cap out to say that there is none")
    return whole


class Scopes:
    """The scopes of one ledger.

    Args:
        store: The store of the ledger.
        journal: Its journal.
    """

    def __init__(self, store: Store, journal: Journal) -> None:
        self._store = store
        self._journal = journal

    def find(self, scope: Scope) -> Pinned | None:
        """Return a scope, or None if nobody has used it.

        Raises:
            LedgerError: The ledger holds the scope with another unit.
        """
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

    def by_id(self, number: int) -> Pinned:
        """Return the scope with this number."""
        return _pinned(self._store.rows("select id, unit, measure, limits from scope where id=?", (number,))[0])

    def ensure(self, scope: Scope) -> Pinned:
        """Return a scope with its dataset as a member; make the scope if need be.

        Raises:
            LedgerError: The ledger holds the scope with another unit, or the dataset belongs to another group in this
                period.
        """
        pinned = self.find(scope)
        self._refuse_second(scope)
        if pinned is None:
            number = self._store.rows("select coalesce(max(id), 0) + 1 from scope")[0][0]
            self._store.execute(
                "insert into scope values(?,?,?,?,null,null)", (number, scope.name, scope.period, scope.unit)
            )
            pinned = Pinned(number, scope.unit, None, ())
        self._store.execute("insert or ignore into member values(?,?)", (pinned.id, scope.dataset))
        return pinned

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
        """Refuse a charge without a cap where the dataset has one: leaving the cap out must not lift it.

        Raises:
            LedgerError: The dataset has a cap in another scope.
        """
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

    def set_cap(self, scope: Scope, pinned: Pinned, cap: Cap, *, raising: bool) -> Pinned:
        """Pin a cap, or change it: to a lower one at any time, to a higher one only with `raising`.

        Args:
            scope: The scope.
            pinned: The scope as the ledger holds it.
            cap: The new cap.
            raising: Allow a higher cap, and a first cap in a dataset that was thawed.

        Raises:
            LedgerError: The measure differs from the pinned one, or `raising` would be needed.
        """
        asked = limits(cap)
        if pinned.measure is None and not raising:
            self._refuse_after_a_loss(scope)
        if pinned.measure is not None and pinned.measure != cap.measure:
            msg = f"the scope {scope} is capped on {pinned.measure}, got {cap.measure}"
            raise LedgerError(msg, "the measure is declared before the first charge; a new period may have another")
        if (pinned.measure, pinned.limits) == (cap.measure, asked):
            return pinned
        if any(new > old for new, old in zip(asked, pinned.limits, strict=False)) and not raising:
            shown = " and ".join(f"{amount / MICRO:g}" for amount in pinned.limits)
            msg = f"the cap of {scope} is pinned at {shown}; the policy asks for more"
            raise LedgerError(msg, "raise it on purpose: Ledger.set_cap(scope, cap, raising=True)")
        self._pin(pinned._replace(measure=cap.measure, limits=asked), scope.name, scope.period, scope.dataset)
        return pinned._replace(measure=cap.measure, limits=asked)

    def _refuse_after_a_loss(self, scope: Scope) -> None:
        """Refuse a first cap where a loss was settled: thawing could not lower it, and charges are forgotten."""
        for entry in self._journal.entries(Event.THAW):
            facts = entry.facts
            if facts["dataset"] == scope.dataset or scope.group in facts.get("groups", ()):
                thawed = f"the dataset {facts['dataset']} was thawed"
                msg = f"{thawed}, and this ledger knows no cap of {scope} that it lowered"
                hint = "lower the cap by what may have been lost, and set it on purpose: "
                raise LedgerError(msg, hint + "Ledger.set_cap(scope, cap, raising=True)")

    def lower(self, pinned: Pinned, limits: list[int], dataset: str) -> str:
        """Lower the limits of a capped scope, and return the scope in words.

        Args:
            pinned: The scope as the ledger holds it.
            limits: The new limits, per component, in millionths.
            dataset: The dataset that is thawed.
        """
        name, period = self._store.rows("select name, period from scope where id=?", (pinned.id,))[0]
        self._pin(pinned._replace(limits=tuple(limits)), name, period, dataset)
        return f"{name}, period {period}"

    def _pin(self, pinned: Pinned, name: str, period: str, dataset: str) -> None:
        said = {"scope": pinned.id, "name": name, "dataset": dataset, "period": period, "unit": pinned.unit}
        cap = {"measure": pinned.measure, "limits": list(pinned.limits)}
        self._journal.append(Event.CAP_SET, **said, **cap)
        written = json.dumps(list(pinned.limits))
        self._store.execute("update scope set measure=?, limits=? where id=?", (pinned.measure, written, pinned.id))


def _pinned(row: tuple[Any, ...]) -> Pinned:
    return Pinned(row[0], cast("Unit", row[1]), row[2], tuple(json.loads(row[3] or "[]")))


def components(pinned: Pinned) -> tuple[str, ...]:
    """Return the components that the cap of a scope adds up; none without a cap."""
    return () if pinned.measure is None else MEASURES[pinned.measure]
