"""Add up the worst cases of a run per record and unit, compare them with caps, and state the epsilon of one person."""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl import extensions
from dptext_etl.accounting import MEASURES, PureDraws, joint, least, range_bounded, spend
from dptext_etl.arrays import to_arrow, to_numpy
from dptext_etl.checks.reports import gate_delta
from dptext_etl.column import INFINITE, spends
from dptext_etl.guarantee import ADDITIVE, MICRO, PURE, Spend
from dptext_etl.ledger import Ledger, Scope
from dptext_etl.ledger.caps import limits
from dptext_etl.mechanism import Mechanism
from dptext_etl.policy import ColumnPolicy, Policy
from dptext_etl.runner.claims import guarantee_of, with_gate

Amounts = npt.NDArray[np.int64]
Counts = npt.NDArray[np.uint32]
Hashes = npt.NDArray[np.uint64]

DELTA = 1e-6
"""The delta of the statement about one person, unless the caller gives another."""
INSTALL = f"`{extensions.pip_install('accounting')}` may give a smaller epsilon for all records of a person together"
_INFINITE = INFINITE // 8
"""The amount that counts as infinite in sums: far above any cap, and small enough that sums cannot overflow."""


class Forecast:
    """Adds up worst cases per record and unit in the components of the cap's measure, at dozens of bytes per row."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.components = MEASURES[policy.cap.measure] if policy.cap is not None else (PURE,)
        self._worst: list[Amounts] = []
        self._asked: list[Amounts] = []
        self._units: list[Hashes] = []
        self._used: list[Amounts] = []
        self._charged: list[Counts] = []
        self._groups: tuple[Hashes, npt.NDArray[np.intp]] | None = None

    def add(self, worst: Amounts, asked: Amounts, units: pa.Array | Hashes, charged: Counts, used: Amounts) -> None:
        """Add a shard; units are canonical ids or hashes, with what they have used by component."""
        self._groups = None
        self._charged.append(charged)
        self._worst.append(np.minimum(worst[0], _INFINITE))
        self._asked.append(np.minimum(asked, _INFINITE))
        self._used.append(np.minimum(used, _INFINITE))
        hashed = units if isinstance(units, np.ndarray) else pl.Series(pl.from_arrow(units)).hash().to_numpy()
        self._units.append(hashed)

    def records(self) -> Amounts:
        """Return the worst case of every record in the first component, shape (records,)."""
        return np.concatenate([np.zeros(0, np.int64), *self._worst])

    def subjects(self) -> Amounts | None:
        """Return the worst case of every subject in the first component, or None where the unit is the record."""
        if self._policy.unit == "record":
            return None
        units, where = self._grouped()
        return _summed(self.records(), where, len(units))

    def charged(self, column: int) -> Counts:
        """Return the positions that are charged in the column with that number, shape (records,)."""
        return np.concatenate([np.zeros(0, np.uint32), *(part[column] for part in self._charged)])

    def largest_total(self, amounts: Amounts) -> int:
        """Add up amounts, shape (records,), by unit and return the largest sum; see `is_infinite`."""
        units, where = self._grouped()
        return int(_summed(np.minimum(amounts, _INFINITE), where, len(units)).max(initial=0))

    def over_cap(self) -> dict[str, int]:
        """Count the records that would not fit, judged in row order as the ledger does, and their units."""
        cap = self._policy.cap
        if cap is None or not self._asked:
            return {"records": 0, "units": 0}
        asked, limit = np.concatenate(self._asked, axis=1), np.array(limits(cap), np.int64)[:, None]
        units, where = self._grouped()
        used = np.zeros((len(limit), len(units)), np.int64)
        used[:, where] = np.concatenate(self._used, axis=1)
        totals = np.stack([_summed(row, where, len(units)) for row in asked]) + used
        crowded: npt.NDArray[np.bool_] = np.any(totals > limit, axis=0) & np.any(totals > used, axis=0)
        rows = np.flatnonzero(crowded[where] & (asked > 0).any(axis=0))
        rejected = _rejected(rows, asked, where, used, limit[:, 0])
        return {"records": len(rejected), "units": len(np.unique(where[rejected]))}

    def _grouped(self) -> tuple[Hashes, npt.NDArray[np.intp]]:
        if self._groups is None:
            hashes = np.concatenate([np.zeros(0, np.uint64), *self._units])
            alone = self._policy.unit == "record"  # ids are checked: each record is a unit of its own
            self._groups = (hashes, np.arange(len(hashes))) if alone else np.unique(hashes, return_inverse=True)
        return self._groups

    def used_before(self, ledger: Ledger | None, units: pa.Array) -> Amounts:
        """Return what units have used in the scope of the policy, shape (components, units); a null unit is 0."""
        used = np.zeros((len(self.components), len(units)), np.int64)
        if ledger is not None and self._policy.cap is not None:
            known = to_numpy(units.is_valid())
            found = ledger.used(Scope.of(self._policy), units.filter(units.is_valid()))
            for at, name in enumerate(self.components):
                used[at, known] = found.get(name, 0)
        return used


def is_infinite(amount: int) -> bool:
    """Return whether a forecast amount stands for no bound."""
    return amount >= _INFINITE


def least_epsilon(forecast: Forecast, policy: Policy, columns: list[ColumnPolicy], delta: float) -> dict[str, Any]:
    """Return the least epsilon that holds at `delta` for every person, over all records of the run.

    The bound adds up, column by column, the largest total of any unit. So it holds for each unit, also where one has
    the most words in one column and another in the next (docs/spec/privacy.md#compose-records, #compose-mixture).
    """
    gate = gate_delta(policy)
    totals = [_largest(forecast, column, at, gate) for at, column in enumerate(columns)]
    drawn = None if gate or not accounting_installed() else _draws(forecast, columns)
    bound = least(joint(totals, delta, draws=drawn))
    epsilon = "inf" if math.isinf(bound.epsilon) else bound.epsilon / MICRO
    return {"unit": policy.unit, "epsilon": epsilon, "delta": bound.delta / MICRO, "rule": bound.rule}


def accounting_installed() -> bool:
    """Return whether the extra `accounting` is installed, which composes privacy losses."""
    return find_spec("dp_accounting") is not None


def extra_notes(policy: Policy) -> list[str]:
    """Name the extra with which `least_epsilon` could be smaller."""
    composes = all(_composable(item.mechanism, 1) is not None for item in policy.column_policies())
    return [INSTALL] if composes and not accounting_installed() else []


def _largest(forecast: Forecast, column: ColumnPolicy, at: int, gate: int) -> Spend:
    """Return the largest total of any unit in one column, component by component."""
    amounts = with_gate(spends(column.mechanism, to_arrow(forecast.charged(at))), gate)
    totals = {name: forecast.largest_total(amounts[name]) for name in ADDITIVE}
    finite: dict[str, Any] = {name: math.inf if is_infinite(total) else total for name, total in totals.items()}
    return Spend(guarantee_of(column.mechanism, gate).guarantee_class, **finite)


def _draws(forecast: Forecast, columns: list[ColumnPolicy]) -> list[PureDraws] | None:
    """Return the most draws of any unit in each column, or None if a column holds anything but range-bounded draws."""
    found: list[PureDraws] = []
    for at, column in enumerate(columns):
        draws = _composable(column.mechanism, forecast.largest_total(forecast.charged(at).astype(np.int64)))
        if draws is None:
            return None
        found += draws
    return found


def _composable(mechanism: Mechanism, positions: int) -> list[PureDraws] | None:
    """Return the draws of a record if privacy losses compose them; None also where `spend` is not that of the event."""
    event = mechanism.event(positions)
    charged = mechanism.spend(positions) == spend(mechanism.guarantee, event, positions)
    return range_bounded(event) if charged else None


def _summed(amounts: Amounts, where: npt.NDArray[np.intp], units: int) -> Amounts:
    """Add up per unit; a sum with an infinite part is infinite."""
    unbounded = np.zeros(units, dtype=bool)
    unbounded[where[amounts >= _INFINITE]] = True
    summed = np.zeros(units, np.int64)
    np.add.at(summed, where, np.where(amounts >= _INFINITE, 0, amounts))
    return np.where(unbounded, _INFINITE, np.minimum(summed, _INFINITE))


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
