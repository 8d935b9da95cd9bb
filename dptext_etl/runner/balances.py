"""Forecast caps: add up the worst cases of a run per unit, together with what the ledger holds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl.accounting import MEASURES
from dptext_etl.column import INFINITE
from dptext_etl.guarantee import PURE
from dptext_etl.ledger import Ledger, Scope
from dptext_etl.ledger.caps import limits
from dptext_etl.policy import Policy

Amounts = npt.NDArray[np.int64]
Counts = npt.NDArray[np.uint32]
Hashes = npt.NDArray[np.uint64]

_FAR = INFINITE // 8
"""The amount that counts as infinite in sums: far above any cap, and small enough that sums cannot overflow."""


class Forecast:
    """Add up worst cases per record and subject. A few dozen bytes per row are held.

    Attributes:
        components: The components that are counted, those of the cap's measure.
    """

    def __init__(self, policy: Policy, ledger: Ledger | None) -> None:
        self._policy = policy
        self._ledger = ledger
        self.components = MEASURES[policy.cap.measure] if policy.cap is not None else (PURE,)
        self._worst: list[Amounts] = []
        self._asked: list[Amounts] = []
        self._units: list[Hashes] = []
        self._used: list[Amounts] = []
        self._charged: list[Counts] = []
        self._groups: tuple[Hashes, npt.NDArray[np.intp]] | None = None

    def add(
        self, worst: Amounts, asked: Amounts, units: pa.Array | Hashes, charged: Counts, used: Amounts | None = None
    ) -> None:
        """Add a shard; units are canonical ids or hashes, and the ledger says what they used unless the caller does."""
        self._groups = None
        self._charged.append(charged)
        self._worst.append(np.minimum(worst[0], _FAR))
        self._asked.append(np.minimum(asked, _FAR))
        self._units.append(units if isinstance(units, np.ndarray) else _hashes(units))
        self._used.append(self._used_before(units) if used is None else np.minimum(used, _FAR))

    def records(self) -> Amounts:
        """Return the worst case of every record in the first component, shape (records,)."""
        return np.concatenate(self._worst) if self._worst else np.zeros(0, np.int64)

    def subjects(self) -> Amounts | None:
        """Return the worst case of every subject in the first component, or None where the unit is the record."""
        if self._policy.unit == "record":
            return None
        units, where = self._grouped()
        return _summed(self.records(), where, len(units))

    def charged(self, column: int) -> Counts:
        """Return the positions that are charged in the column with that number, shape (records,)."""
        parts = [part[column] for part in self._charged]
        return np.concatenate(parts) if parts else np.zeros(0, np.uint32)

    def largest_total(self, amounts: Amounts) -> int:
        """Add up amounts, shape (records,), by unit and return the largest sum; see `is_infinite`."""
        units, where = self._grouped()
        finite = np.minimum(amounts, _FAR)
        totals = finite if len(units) == len(where) else _summed(finite, where, len(units))  # one record each
        return int(totals.max(initial=0))

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
            hashes = np.concatenate(self._units) if self._units else np.zeros(0, np.uint64)
            alone = self._policy.unit == "record"  # ids are checked: each record is a unit of its own
            self._groups = (hashes, np.arange(len(hashes))) if alone else np.unique(hashes, return_inverse=True)
        return self._groups

    def _used_before(self, units: pa.Array) -> Amounts:
        used = np.zeros((len(self.components), len(units)), np.int64)
        if self._ledger is not None and self._policy.cap is not None:
            known = self._ledger.used(Scope.of(self._policy), units)
            for at, name in enumerate(self.components):
                used[at] = np.minimum(known.get(name, 0), _FAR)
        return used


def is_infinite(amount: int) -> bool:
    """Return whether a forecast amount stands for no bound."""
    return amount >= _FAR


def _hashes(units: pa.Array) -> Hashes:
    hashed: Hashes = pl.Series(pl.from_arrow(units)).hash().to_numpy()
    return hashed


def _summed(amounts: Amounts, where: npt.NDArray[np.intp], units: int) -> Amounts:
    """Add up per unit; a sum with an infinite part is infinite."""
    endless = np.zeros(units, dtype=bool)
    endless[where[amounts >= _FAR]] = True
    finite = np.where(amounts >= _FAR, 0, amounts)
    if units == len(where):  # one record each
        summed = np.empty(units, np.int64)
        summed[where] = finite
    else:
        summed = np.zeros(units, np.int64)
        np.add.at(summed, where, finite)
    return np.where(endless, _FAR, np.minimum(summed, _FAR))


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
