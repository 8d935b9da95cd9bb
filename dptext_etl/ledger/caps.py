"""Keep scopes, their caps, and the amounts that units have used (docs/spec/privacy.md#caps).

A cap is a filter on one measure, declared before the charges that it judges.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from dptext_etl.accounting import MEASURES
from dptext_etl.column import INFINITE
from dptext_etl.errors import FrozenLedgerError, LedgerError
from dptext_etl.guarantee import PURE, steps
from dptext_etl.ledger.storage.hashed_ids import SATURATED, Index, Values
from dptext_etl.ledger.storage.journal import Head, Journal
from dptext_etl.ledger.storage.segments import UNITS, Records, Segments, limits_of, read_limits, write_limits
from dptext_etl.ledger.storage.store import Store
from dptext_etl.ledger.types import ACCEPTED_UNITS, FORGOTTEN, NEW, CapChange, Change, Event, Mask, Scope, State, Unit
from dptext_etl.policy import Cap

_KINDS = (Event.FREEZE, Event.THAW, Event.BURN, Event.CAP_SET, Event.UNITS, Event.FORGET, Event.READMIT)
_EVENTS = (
    f"select seq, kind, body from event where seq>? and seq<=? and kind in ({','.join('?' * len(_KINDS))})"  # noqa: S608
    " order by seq"
)
_CAPS = "select id, measure, limits from scope where measure is not null"
Rows = dict[Any, Any]


class Standing:
    """Keep which datasets are frozen by the journal, and refuse tables that differ from it.

    A pipeline's role of PostgreSQL appends to the journal, and can change none of these tables. Someone who can change
    the tables cannot change the journal unnoticed. So a run refuses a ledger in which the two differ
    (docs/spec/privacy.md#standing).
    """

    def __init__(self, store: Store, journal: Journal) -> None:
        self._store, self._journal = store, journal
        self._restart()

    def _restart(self) -> None:
        self._head = Head(0, b"")
        self._frozen: Rows = {}
        self._revoked: Rows = {}
        self._caps: Rows = {}
        self._meta: Rows = {}

    def frozen(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the frozen datasets, each with the facts of its last FREEZE event. Call it in a transaction."""
        head = self._journal.last()
        if head == self._head:
            return self._frozen
        if not self._journal.has_head(self._head):
            self._restart()
        problem = self._catch_up(head)
        if problem is not None:
            self._restart()
            hint = "`dptext ledger verify` names the rows; find out who changed them, and treat the ledger as lost"
            raise LedgerError(f"{problem}: nothing is charged or published", hint)
        self._head = head
        return self._frozen

    def refuse_frozen(self, dataset: str, group: str | None = None) -> None:
        """Refuse a dataset that is frozen, or a group that froze with one: some of its charges may be forgotten."""
        frozen = self.frozen()
        if dataset in frozen:
            hint = "`dptext ledger thaw` revokes its release names and charges possibly lost amounts"
            raise FrozenLedgerError(f"the dataset {dataset} is frozen: {frozen[dataset]['reason']}", hint)
        for name, facts in sorted(frozen.items()):
            if group is not None and group in facts.get("groups", ()):
                msg = f"the group {group} is frozen with the dataset {name}: {facts['reason']}"
                raise FrozenLedgerError(msg, f"`dptext ledger thaw {name}` settles it for all datasets of the group")

    def _catch_up(self, head: Head) -> str | None:
        rows = self._store.rows
        new = rows(_EVENTS, (self._head.seq, head.seq, *_KINDS))
        if self._head.seq and not new:
            return None  # the tables were compared when this process began
        try:
            for seq, kind, body in new:
                self._take(seq, kind, json.loads(body))
        except (KeyError, TypeError, ValueError):
            return "an event of the journal cannot be read"
        stored: dict[str, tuple[object, object]] = {
            "frozen datasets": (self._frozen.keys(), {name for (name,) in rows("select dataset from frozen")}),
            "revoked names": (
                self._revoked,
                {row[:2]: row[2] for row in rows("select dataset, release, seq from burnt")},
            ),
            "caps": (self._caps, {row[0]: (row[1], read_limits(*row[1:])) for row in rows(_CAPS)}),
            "forgotten people": (self._meta, self._store.metas(FORGOTTEN) | self._store.metas(ACCEPTED_UNITS)),
        }
        differ = [what for what, (derived, rows_of_table) in stored.items() if derived != rows_of_table]
        return f"the {' and '.join(differ)} of the ledger differ from its journal" if differ else None

    def _take(self, seq: int, kind: str, facts: dict[str, Any]) -> None:
        dataset = facts["dataset"]
        if kind == Event.FREEZE:
            self._frozen[dataset] = facts
        elif kind == Event.THAW:
            self._frozen.pop(dataset, None)
        elif kind == Event.BURN:
            self._revoked.setdefault((dataset, facts["release"]), seq)
        elif kind == Event.CAP_SET:
            self._caps[facts["scope"]] = facts["measure"], tuple(limits_of(facts))
        elif kind == Event.UNITS:
            self._meta[f"{ACCEPTED_UNITS}{dataset}"] = str(seq)
        else:
            name = f"{FORGOTTEN}{dataset}"
            self._meta[name] = f"{self._meta.get(name, '')} {seq}".lstrip()


ALL = "all"  # the period of all time
LARGEST = 1 << 54
"""A limit in its steps stays below this (epsilon 1.8e10, delta 18): sums of admitted charges fit 64 bits."""
_SET_CAP = "`dptext ledger set-cap`, or Ledger.set_cap(scope, cap, raising=True)"


class Pinned(NamedTuple):
    """A scope as the ledger holds it. Measure and limits are empty while no cap is set."""

    id: int
    unit: Unit
    measure: str | None
    limits: tuple[int, ...]

    @property
    def components(self) -> tuple[str, ...]:
        """The components that the cap adds up; none without a cap."""
        return () if self.measure is None else MEASURES[self.measure]


def limits(cap: Cap) -> tuple[int, ...]:
    """Convert a cap to the steps of its components (`guarantee.steps`), rounded down, one number per component."""
    amounts = {"pure": (cap.epsilon,), "zcdp": (cap.rho,), "approx": (cap.epsilon, cap.delta)}[cap.measure]
    pairs = zip(MEASURES[cap.measure], amounts, strict=True)
    whole = tuple(math.floor(Fraction(repr(float(amount or 0))) * steps(name)) for name, amount in pairs)
    if max(whole) >= LARGEST:
        raise LedgerError("a cap of 10^10 and more protects no one", "leave the cap out to say that there is none")
    return whole


class Scopes:
    def __init__(
        self, store: Store, journal: Journal, segments: Segments, records: Records, standing: Standing
    ) -> None:
        self._store, self._journal, self._segments, self._records = store, journal, segments, records
        self._standing = standing

    def find(self, scope: Scope) -> Pinned:
        """Return a scope; one that was never used has the number `NEW`."""
        row = self._store.row(
            "select id, unit, measure, limits from scope where name=? and period=?", (scope.name, scope.period)
        )
        if row is None:
            return Pinned(NEW, scope.unit, None, ())
        pinned = Pinned(row[0], row[1], row[2], read_limits(row[2], row[3]))
        if pinned.unit != scope.unit:
            msg = f"the scope {scope} counts per {pinned.unit}, got unit {scope.unit!r}"
            raise LedgerError(msg, "a scope keeps its unit: another one would start every balance at zero")
        return pinned

    def by_id(self, number: int) -> Pinned:
        row = self._store.rows("select id, unit, measure, limits from scope where id=?", (number,))[0]
        return Pinned(row[0], row[1], row[2], read_limits(row[2], row[3]))

    def of_batch(self, batch: int) -> Pinned:
        return self.by_id(self._store.rows("select scope from batch where seq=?", (batch,))[0][0])

    def lock_name(self, pinned: Pinned) -> str:
        """Return the name of the lock for changes of a scope's balances."""
        return f"scope/{pinned.id}"

    def charge(self, scope: Scope, cap: Cap | None, reason: str | None = None, **allowed: bool) -> Pinned:
        """Return a scope that is to be charged; make it and pin or change its cap if need be (see `check`)."""
        pinned, wanted = self.check(scope, cap, **allowed)
        number = self._ensure(scope, pinned, wanted)
        if wanted is None:
            return pinned._replace(id=number)
        capped = wanted._replace(id=number)
        self._pin(pinned, capped, scope.name, scope.period, scope.dataset, reason=reason)
        return capped

    def check(
        self, scope: Scope, cap: Cap | None, *, raising: bool = False, lowering: bool = False
    ) -> tuple[Pinned, Pinned | None]:
        """Refuse a scope and a cap that cannot be charged: a higher one without `raising`, a lower without `lowering`.

        It returns the scope, and what `charge` pins, or None; nothing is written.

        Specification: docs/spec/privacy.md#periods.
        """
        pinned = self.find(scope)
        self._refuse_other_group(scope)
        if cap is None and pinned.measure is None:
            self._refuse_without_cap(scope)
        self._refuse_all_time(scope)
        if cap is None:
            return pinned, None
        wanted, uncounted = pinned._replace(measure=cap.measure, limits=limits(cap)), self._uncounted(scope, pinned)
        if uncounted and not raising:
            self._standing.refuse_frozen(scope.dataset, scope.group)
        if pinned.measure is None and not raising:
            self._refuse_after_a_loss(scope)
        if uncounted and not raising:
            msg = f"a first cap of {scope} would not count charges in {' and '.join(uncounted)}"
            hint = "name that period (and group) in the policy; or start everyone at zero on purpose: "
            raise LedgerError(msg, hint + _SET_CAP)
        if pinned.measure is None:
            self._refuse_uncountable(wanted)
        elif pinned.measure != cap.measure:
            self._refuse_conversion(scope, pinned, wanted, raising=raising)
        else:
            _refuse_change(scope, pinned, wanted, raising=raising, lowering=lowering)
        if pinned.id != NEW and pinned != wanted:
            self._store.require_steward()
        return pinned, wanted if uncounted or pinned != wanted else None

    def _ensure(self, scope: Scope, pinned: Pinned, wanted: Pinned | None) -> int:
        """Make a scope if need be, and its dataset a member, and return its number."""
        if pinned.id == NEW:
            self._store.require_exclusive()
            number = self._store.rows("select coalesce(max(id), 0) + 1 from scope")[0][0]
            cap = (None, None) if wanted is None else (wanted.measure, write_limits(wanted.measure, wanted.limits))
            values = (number, scope.name, scope.period, scope.unit, *cap)
            self._store.execute("insert into scope values(?,?,?,?,?,?)", values)
            pinned = pinned._replace(id=number)
        if self._store.row("select 1 from member where scope=? and dataset=?", (pinned.id, scope.dataset)) is None:
            self._store.require_exclusive()
            self._store.execute("insert into member values(?,?)", (pinned.id, scope.dataset))
        return pinned.id

    def _refuse_other_group(self, scope: Scope) -> None:
        row = self._store.row(
            "select scope.name from scope join member on member.scope = scope.id"
            " where member.dataset=? and scope.period=? and scope.name<>? limit 1",
            (scope.dataset, scope.period, scope.name),
        )
        if row is not None:
            msg = f"the spends of {scope.dataset} in period {scope.period} add up in {row[0]}, got {scope.name}"
            raise LedgerError(msg, "a dataset stays in its group for a period: another would start balances at zero")

    def _refuse_without_cap(self, scope: Scope) -> None:
        """Refuse a charge without a cap where the dataset has one: leaving the cap out must not lift it."""
        row = self._store.row(
            "select scope.name, scope.period from scope join member on member.scope = scope.id"
            " where member.dataset=? and scope.measure is not null limit 1",
            (scope.dataset,),
        )
        if row is not None:
            msg = f"the dataset {scope.dataset} has a cap ({row[0]}, period {row[1]}); this policy has none"
            raise LedgerError(msg, "keep [cap] in the policy")

    def _refuse_all_time(self, scope: Scope) -> None:
        """Refuse the period "all" where named periods have caps: a cap of all time would not count their charges."""
        row = scope.period == ALL and self._store.row(
            "select scope.period from scope join member on member.scope = scope.id where scope.period<>? and"
            " measure is not null and (member.dataset=? or scope.name=?) order by scope.id desc limit 1",
            (ALL, scope.dataset, scope.name),
        )
        if row:
            msg = f"{scope.dataset} has a cap in period {row[0]}, so nothing is charged in period {ALL} any more"
            raise LedgerError(msg, f'name the period in the policy: [cap] period = "{row[0]}"')

    def _refuse_after_a_loss(self, scope: Scope) -> None:
        """Refuse a first cap where a loss was settled: thawing could not lower it, and charges are forgotten."""
        for facts in (entry.facts for entry in self._journal.entries(Event.THAW)):
            if facts["dataset"] == scope.dataset or scope.group in facts.get("groups", ()):
                thawed = f"the dataset {facts['dataset']} was thawed"
                msg = f"{thawed}, and this ledger knows no cap of {scope} that it lowered"
                raise LedgerError(
                    msg, f"lower the cap by the amount that may have been lost, and set it on purpose: {_SET_CAP}"
                )

    def uncounted(self, scope: Scope) -> list[str]:
        return self._uncounted(scope, self.find(scope))

    def _uncounted(self, scope: Scope, pinned: Pinned) -> list[str]:
        name = scope.name
        if pinned.measure is not None:
            if self._store.row("select 1 from member where scope=? and dataset=?", (pinned.id, scope.dataset)):
                return []
            name = ""  # the group's own periods were declared when its cap was set
        rows = self._store.rows(
            "select distinct scope.name, scope.period from scope join member on member.scope = scope.id"
            " where not (scope.name=? and scope.period=?) and (member.dataset=? or scope.name=?)"
            " and exists (select 1 from batch where batch.scope = scope.id)",
            (scope.name, scope.period, scope.dataset, name),
        )
        return sorted(f"{name}, period {period}" for name, period in rows)

    def lower(self, pinned: Pinned, limits: list[int], dataset: str, reason: str | None) -> str:
        """Lower the limits of a capped scope, and return the scope in words."""
        name, period = self._store.rows("select name, period from scope where id=?", (pinned.id,))[0]
        self._pin(pinned, pinned._replace(limits=tuple(limits)), name, period, dataset, reason=reason)
        return f"{name}, period {period}"

    def _pin(self, before: Pinned, pinned: Pinned, *where: str, **more: str | None) -> None:
        """Write a cap; a new scope has it in its row already."""
        facts: dict[str, Any] = dict(zip(("name", "period", "dataset"), where, strict=True))
        facts |= {"scope": pinned.id, "unit": pinned.unit, "measure": pinned.measure, "limits": list(pinned.limits)}
        facts |= {"change": _change(before, pinned), "before": dict(zip(before.components, before.limits, strict=True))}
        facts |= {name: value for name, value in more.items() if value is not None}
        self._journal.append(Event.CAP_SET, **facts, **({"units": UNITS} if "delta" in pinned.components else {}))
        if before.id != NEW and before != pinned:
            values = (pinned.measure, write_limits(pinned.measure, pinned.limits), pinned.id)
            self._store.execute("update scope set measure=?, limits=? where id=?", values)

    def per_subject(self, dataset: str) -> bool:
        """Return whether a dataset was ever charged per subject."""
        query = "select 1 from scope join member on member.scope = scope.id where dataset=? and unit='subject' limit 1"
        return self._store.row(query, (dataset,)) is not None

    def _refuse_conversion(self, scope: Scope, pinned: Pinned, wanted: Pinned, *, raising: bool) -> None:
        """Refuse another measure, unless an `approx` cap of the same epsilon replaces a `pure` one.

        Specification: docs/spec/privacy.md#conversion.
        """
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
        for (seq,) in self._store.rows("select seq from batch where scope=? order by seq", (pinned.id,)):
            columns = self._segments.read(seq, ["canary", *pinned.components])
            rows = (columns["canary"] == 0) & (self._records.states(seq) != State.ABORTED)
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
    used = np.where(used < 0, SATURATED, np.minimum(used, SATURATED))  # a sum that is negative has wrapped
    ends = np.append(starts[1:], len(rows))
    if max(limits) * len(rows) >= 1 << 62:  # sums could overflow
        tight: Mask = np.ones(len(starts), np.bool_)
    else:
        tight = np.any(used + np.add.reduceat(amounts[:, rows], starts, axis=1) > bound, axis=0)
    single = ends - starts == 1
    fits[rows[starts[single & (used + amounts[:, rows[starts]] > bound).any(axis=0)]]] = False
    for unit in np.flatnonzero(tight & ~single):
        _admit_one_by_one(fits, rows[starts[unit] : ends[unit]], amounts, used[:, unit], limits)
    return fits


def _admit_one_by_one(fits: Mask, rows: Index, amounts: Values, used: Values, limits: tuple[int, ...]) -> None:
    """Judge the records of one unit with whole numbers of any size."""
    spent = used.tolist()
    for row, wanted in zip(rows.tolist(), amounts[:, rows].T.tolist(), strict=True):
        after = [have + more for have, more in zip(spent, wanted, strict=True)]
        if any(total > limit for total, limit in zip(after, limits, strict=True)):
            fits[row] = False
        else:
            spent = after


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
