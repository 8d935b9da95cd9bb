"""Add up the worst cases of a run per record and unit, compare them with caps, and state the epsilon of one person."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl.accounting import MEASURES, PureDraws, joint, least, range_bounded, spend
from dptext_etl.arrays import starts, to_arrow, to_numpy
from dptext_etl.checks.comparison import Buckets
from dptext_etl.checks.text_counts import gate_delta
from dptext_etl.column import INFINITE, spends
from dptext_etl.guarantee import ADDITIVE, MICRO, PURE, Spend
from dptext_etl.ledger import Ledger, Scope
from dptext_etl.ledger.caps import limits
from dptext_etl.ledger.storage.hashed_ids import sums
from dptext_etl.mechanism import Mechanism, worst_spend
from dptext_etl.policy import ColumnPolicy, Policy
from dptext_etl.runner.publish.manifest import guarantee_of, with_gate

Amounts = npt.NDArray[np.int64]
Counts = npt.NDArray[np.uint32]

DELTA = 1e-6
"""The delta of the statement about one person, unless the caller gives another."""
FACTORS = (0.5, *(factor * 2**power for power in range(8) for factor in (1.0, 1.4)))
"""Caps, as multiples of that of the policy, for which kept rows are counted."""
_INFINITE = INFINITE // 8
"""The amount that counts as infinite in sums: far above any cap, and small enough that sums cannot overflow."""


def components_of(policy: Policy) -> tuple[str, ...]:
    """Return the components of a spend that count for a policy: those of its cap, or else one epsilon."""
    whole = PURE if policy.synthetic is None else "eps_approx"
    return MEASURES[policy.cap.measure] if policy.cap is not None else (whole,)


def no_charges(components: Iterable[str]) -> pl.DataFrame:
    return pl.DataFrame(schema={"unit": pl.UInt64, **dict.fromkeys(components, pl.Float64)})


class Forecast:
    """Adds up worst cases per record and unit in the components of the cap's measure, in bounded memory.

    A record that is a unit of its own is judged when it is added. Rows of subjects wait on the disk until all are
    there, dozens of bytes each, in the folder `scratch`. So do all rows if runs come `before`, whose charges count.
    """

    def __init__(self, policy: Policy, scratch: Path | None = None, before: pl.DataFrame | None = None) -> None:
        self._policy, self._before = policy, before
        self._scratch = scratch
        self.components = components_of(policy)
        self._worst, self._over = Counter[int](), Counter[Any](records=0, units=0)
        self._fitting = np.zeros(len(FACTORS) + 1, np.int64)
        self._lengths: list[set[int]] = []  # positions that are charged in each column, where records are units
        self._rows: Buckets | None = None

    def add(  # noqa: PLR0917
        self, worst: Amounts, asked: Amounts, units: Any, charged: Counts, used: Amounts, periods: Any = 0
    ) -> None:
        """Add a shard; units are canonical ids or hashes, with what they have used by component, and period numbers."""
        worst, asked, used = (np.minimum(amounts, _INFINITE) for amounts in (worst[:1], asked, used))
        self._worst.update(_histogram(worst[0]))
        numbers = np.broadcast_to(np.asarray(periods, np.int64), worst.shape[1])
        if self._policy.unit == "record" and self._before is None:  # each record is a unit: ids are checked
            self._lengths = self._lengths or [set() for _ in charged]
            for lengths, counts in zip(self._lengths, charged, strict=True):
                lengths.update(np.unique(counts).tolist())
            rows = worst.shape[1]
            each = _Rows(np.arange(rows), np.arange(rows), worst[0], asked, used, numbers, charged)
            self._over.update(self._beyond(each))
            self._fitting += self._fits(each)
            return
        hashed = units if isinstance(units, np.ndarray) else pl.Series(pl.from_arrow(units)).hash().to_numpy()
        if self._before is not None:
            earlier = pl.DataFrame({"unit": hashed}).join(self._before, on="unit", how="left", maintain_order="left")
            charged_before = earlier.select(self.components).fill_null(0).to_numpy().T
            used = np.minimum(used + charged_before, _INFINITE).astype(np.int64)
        table = np.concatenate(
            [hashed.view(np.int64)[None], worst, asked, used, numbers[None], charged.astype(np.int64)]
        )
        self._rows = self._rows or Buckets(8 * len(table), self._scratch)
        self._rows.add(np.ascontiguousarray(table.T).view(np.uint8))

    def records(self) -> Counter[int]:
        """Count the records by their worst case in the first component."""
        return self._worst

    def subjects(self) -> Counter[int] | None:
        """Count the subjects by their worst case in the first component; None where the unit is the record."""
        if self._policy.unit == "record":
            return None
        totals = Counter[int]()
        for rows in self._by_unit():
            totals.update(_histogram(rows.by_unit(rows.worst)))
        return totals

    def largest_totals(self, column: int, amounts: Callable[[Counts], Mapping[str, Amounts]]) -> dict[str, int]:
        """Return the largest sums of any unit, by name, of what positions cost in a column; see `is_infinite`."""
        largest: Counter[str] = Counter()
        for charged, by_unit in self._charged(column):
            for name, each in amounts(charged).items():
                largest[name] = max(largest[name], int(by_unit(np.minimum(each, _INFINITE)).max(initial=0)))
        return largest

    def over_cap(self) -> dict[str, int]:
        """Count the records that would not fit, judged in row order as the ledger does, and their units."""
        found = self.over()
        return {name: found[name] for name in ("records", "units")}

    def over(self) -> Counter[Any]:
        """Count the records that would not fit as `over_cap` does, and by the number of their period."""
        found = self._over.copy()
        for rows in self._by_unit():
            found.update(self._beyond(rows))
        return found

    def charges(self) -> pl.DataFrame:
        """Return what units would have been charged after the runs before and this one, without records over the cap.

        A row per unit: `unit`, a hash, and an amount by component. Only a forecast that knows of runs before it has it.
        """
        parts = [no_charges(self.components) if self._before is None else self._before]
        for rows in self._by_unit():
            admitted = np.delete(np.arange(len(rows.where)), self._left_out(rows))
            amounts = dict(zip(self.components, rows.asked[:, admitted].astype(np.float64), strict=True))
            parts.append(pl.DataFrame({"unit": rows.hashes[rows.where[admitted]].view(np.uint64), **amounts}))
        return pl.concat(parts).group_by("unit").sum()

    def kept(self) -> dict[float, int]:
        """Count the records that would fit if the first limit of the cap were so many times as large, by `FACTORS`.

        Where the records of a unit differ in cost, a run may keep some more: a later, cheaper one may fit.
        """
        fitting = self._fitting + sum(map(self._fits, self._by_unit()))
        return dict(zip(FACTORS, np.cumsum(fitting).tolist(), strict=False))

    def _fits(self, rows: _Rows) -> npt.NDArray[np.int64]:
        """Count records by the least of `FACTORS` with which they fit; at the end are those that fit with none."""
        if self._policy.cap is None:
            return np.zeros(len(FACTORS) + 1, np.int64)
        first, *others = limits(self._policy.cap)
        asked = pl.DataFrame(rows.asked.T.astype(np.float64), schema=list(self.components), orient="row")
        sums = asked.with_columns(unit=rows.where).select(pl.col(self.components).cum_sum().over("unit"))
        totals = sums.to_numpy().T + rows.used
        least = np.searchsorted(first * np.array(FACTORS), totals[0])
        for total, limit in zip(totals[1:], others, strict=True):
            least[total > limit] = len(FACTORS)
        least[~(rows.asked > 0).any(axis=0)] = 0
        return np.bincount(least, minlength=len(FACTORS) + 1)

    def _beyond(self, rows: _Rows) -> Counter[Any]:
        """Count the records of some units that would not fit, also by the number of their period, and their units."""
        rejected = self._left_out(rows)
        by_period = Counter[Any](rows.periods[rejected].tolist())
        return by_period + Counter(records=len(rejected), units=len(starts(np.sort(rows.where[rejected]))))

    def _left_out(self, rows: _Rows) -> list[int]:
        """Return the rows of records that would not fit."""
        if self._policy.cap is None:
            return []
        limit = np.array(limits(self._policy.cap), np.int64)[:, None]
        used = np.zeros((len(limit), len(rows.hashes)), np.int64)
        used[:, rows.where] = rows.used
        totals = np.stack([rows.by_unit(row) for row in rows.asked]) + used
        crowded: npt.NDArray[np.bool_] = np.any(totals > limit, axis=0) & np.any(totals > used, axis=0)
        asking = np.flatnonzero(crowded[rows.where] & (rows.asked > 0).any(axis=0))
        return _rejected(asking, rows.asked, rows.where, used, limit[:, 0])

    def _charged(self, column: int) -> Iterator[tuple[Counts, Callable[[Amounts], Amounts]]]:
        """Iterate over positions that are charged in a column, with what adds up amounts of theirs by unit."""
        for lengths in self._lengths[column : column + 1]:
            yield np.array(sorted(lengths), np.uint32), lambda amounts: amounts
        for rows in self._by_unit():
            yield rows.charged[column].astype(np.uint32), rows.by_unit

    def _by_unit(self) -> Iterator[_Rows]:
        """Iterate over the rows of subjects, all of a subject at once, in the order in which they were added."""
        measured = len(self.components)
        for cells in () if self._rows is None else self._rows.each():
            hashes, worst, asked, used, periods, charged = np.split(
                cells.view(np.int64).T, np.cumsum([1, 1, measured, measured, 1])
            )
            units, where = np.unique(hashes[0], return_inverse=True)
            yield _Rows(units, where, worst[0], asked, used, periods[0], charged)

    def used_before(self, ledger: Ledger | None, units: pa.Array) -> Amounts:
        """Return what units have used in the scope of the policy, shape (components, units); a null unit is 0."""
        used = np.zeros((len(self.components), len(units)), np.int64)
        if ledger is not None and self._policy.cap is not None:
            known = to_numpy(units.is_valid())
            found = ledger.used(Scope.of(self._policy), units.filter(units.is_valid()))
            for at, name in enumerate(self.components):
                used[at, known] = found.get(name, 0)
        return used


class _Rows(NamedTuple):
    """All rows of some units, in their order.

    Attributes:
        hashes: What distinguishes the units, int64, shape (units,).
        where: The unit of each row, shape (rows,).
        worst: The worst case of each row in the first component, shape (rows,).
        asked: What each row will be charged, shape (components, rows).
        used: What its unit has used, shape (components, rows).
        periods: The number of the period of each row, shape (rows,).
        charged: Positions that are charged, shape (columns, rows).
    """

    hashes: Amounts
    where: npt.NDArray[np.intp]
    worst: Amounts
    asked: Amounts
    used: Amounts
    periods: Amounts
    charged: npt.NDArray[Any]

    def by_unit(self, amounts: Amounts) -> Amounts:
        """Add up per unit; a sum with an infinite part is infinite."""
        order = np.argsort(self.where, kind="stable")
        starts = np.flatnonzero(np.diff(self.where[order], prepend=-1))
        summed: Amounts = np.minimum(sums(amounts[None, order], starts)[0], _INFINITE)
        return summed


def _histogram(amounts: Amounts) -> Counter[int]:
    distinct, counts = np.unique(amounts, return_counts=True)
    return Counter(dict(zip(distinct.tolist(), counts.tolist(), strict=True)))


def is_infinite(amount: int) -> bool:
    """Return whether a forecast amount stands for no bound."""
    return amount >= _INFINITE


def least_epsilon(forecast: Forecast, policy: Policy, columns: list[ColumnPolicy], delta: float) -> dict[str, Any]:
    """Return the least epsilon that holds at `delta` for every person, over all records of the run.

    The bound adds up, column by column, the largest total of any unit. So it holds for each unit, also where one has
    the most words in one column and another in the next (docs/spec/privacy.md#compose-records, #compose-mixture).
    """
    if policy.synthetic is not None:
        made, most = policy.synthetic.mechanism, policy.synthetic.per_subject if policy.unit == "subject" else 1
        person = most * worst_spend(columns[0].mechanism).eps_approx / MICRO
        return {"unit": policy.unit, "epsilon": person, "delta": made.delta, "rule": "zcdp"}
    gate = gate_delta(policy)
    totals = [_largest(forecast, column, at, gate) for at, column in enumerate(columns)]
    drawn = None if gate else _draws(forecast, columns)
    bound = least(joint(totals, delta, draws=drawn))
    epsilon = "inf" if math.isinf(bound.epsilon) else bound.epsilon / MICRO
    return {"unit": policy.unit, "epsilon": epsilon, "delta": bound.delta / MICRO, "rule": bound.rule}


def _largest(forecast: Forecast, column: ColumnPolicy, at: int, gate: int) -> Spend:
    """Return the largest total of any unit in one column, component by component."""
    totals = forecast.largest_totals(at, lambda charged: with_gate(spends(column.mechanism, to_arrow(charged)), gate))
    finite: dict[str, Any] = {name: math.inf if is_infinite(totals[name]) else totals[name] for name in ADDITIVE}
    return Spend(guarantee_of(column.mechanism, gate).guarantee_class, **finite)


def _draws(forecast: Forecast, columns: list[ColumnPolicy]) -> list[PureDraws] | None:
    """Return the most draws of any unit in each column, or None if a column holds anything but range-bounded draws."""
    found: list[PureDraws] = []
    for at, column in enumerate(columns):
        most = forecast.largest_totals(at, lambda charged: {"draws": charged.astype(np.int64)})["draws"]
        draws = _composable(column.mechanism, most)
        if draws is None:
            return None
        found += draws
    return found


def _composable(mechanism: Mechanism, positions: int) -> list[PureDraws] | None:
    """Return the draws of a record if privacy losses compose them; None also where `spend` is not that of the event."""
    event = mechanism.event(positions)
    charged = mechanism.spend(positions) == spend(mechanism.guarantee, event, positions)
    return range_bounded(event) if charged else None


def _rejected(
    rows: npt.NDArray[np.intp], asked: Amounts, where: npt.NDArray[np.intp], used: Amounts, limit: Amounts
) -> list[int]:
    """Repeat the admission of crowded units: leave out a record that does not fit; a later one may fit."""
    spent = used.copy()
    rejected = []
    for row in rows.tolist():
        unit = where[row]
        total = spent[:, unit] + asked[:, row]
        if (total > limit).any():
            rejected.append(row)
        else:
            spent[:, unit] = total
    return rejected
