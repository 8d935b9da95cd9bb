"""A forecast of caps: worst cases of a run per unit, beside what the ledger holds already."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl.accounting import MEASURES
from dptext_etl.column import INFINITE
from dptext_etl.guarantee import MICRO
from dptext_etl.ledger import Ledger, Scope
from dptext_etl.policy import Cap, Policy

Amounts = npt.NDArray[np.int64]


class Forecast:
    """Adds up worst cases per record and subject; 16 bytes per row are held.

    Args:
        policy: The run's policy.

    Attributes:
        components: What is counted, the cap's measure first.
        notes: What the ledger says about this release.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.components = MEASURES[policy.cap.measure] if policy.cap is not None else ("eps_pure",)
        self._amounts: list[Amounts] = []
        self._units: list[npt.NDArray[np.uint64]] = []
        self._left: list[tuple[npt.NDArray[np.uint64], Amounts]] = []
        self.notes: list[str] = []
        self._used = self._look()

    def add(self, amounts: Amounts, subjects: pa.Array | None) -> None:
        """Add a shard.

        Args:
            amounts: Worst cases in millionths, shape (components, rows).
            subjects: Canonical subject ids, shape (rows,), or None where records stand for themselves.
        """
        self._amounts.append(amounts)
        if subjects is None:
            return
        units = pl.Series(pl.from_arrow(subjects))
        self._units.append(_hashes(units))
        if self._used and self._policy.cap is not None:
            known = units.unique()
            with Ledger.open(
                self._policy.ledger.url, self._policy.ledger.id_key, create=False, read_only=True
            ) as ledger:
                asked = ledger.remaining(Scope.of(self._policy), known.to_arrow()).asked
            used = [[_whole(item[name]["used"]) for item in asked] for name in self.components]
            self._left.append((_hashes(known), np.array(used, dtype=np.int64)))

    def records(self) -> Amounts:
        """Return the worst case of every record on the first component."""
        first: Amounts = self._all()[0]
        return first

    def subjects(self) -> Amounts | None:
        """Return the worst case of every subject on the first component, or None where records stand for themselves."""
        if self._policy.unit == "record":
            return None
        amounts, (_, where) = self._all(), self._grouped()
        return _summed(amounts[0], where)

    def over_cap(self) -> dict[str, int]:
        """Count the records that would not fit, judged in row order as the ledger does, and their units."""
        cap = self._policy.cap
        if cap is None:
            return {"records": 0, "units": 0}
        amounts, limit = self._all(), limits(cap)
        if self._policy.unit == "record":
            over = int((amounts > limit[:, None]).any(axis=0).sum())
            return {"records": over, "units": over}
        units, where = self._grouped()
        used = self._used_before(units)
        totals = np.stack([_summed(row, where) for row in amounts]) + used
        crowded = np.flatnonzero((totals > limit[:, None]).any(axis=0))
        rows = _rejected(amounts, where, used, limit, crowded)
        return {"records": rows, "units": len(crowded)}

    def _all(self) -> Amounts:
        return np.concatenate(self._amounts, axis=1) if self._amounts else np.zeros((len(self.components), 0), np.int64)

    def _grouped(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.intp]]:
        hashes = np.concatenate(self._units) if self._units else np.zeros(0, np.uint64)
        return np.unique(hashes, return_inverse=True)

    def _used_before(self, units: npt.NDArray[np.uint64]) -> Amounts:
        used = np.zeros((len(self.components), len(units)), np.int64)
        for known, amounts in self._left:
            used[:, np.searchsorted(units, known)] = amounts
        return used

    def _look(self) -> bool:
        """Whether units of the scope were charged before; a plan makes no ledger."""
        url, policy = self._policy.ledger.url, self._policy
        if not Path(url.removeprefix("sqlite:///")).is_file():
            self.notes.append("there is no ledger yet: every unit has its whole budget")
            return False
        with Ledger.open(url, policy.ledger.id_key, create=False, read_only=True) as ledger:
            held = [
                row for row in ledger.show() if row["dataset"] == policy.dataset and row["release"] == policy.release
            ]
            known = max((row["committed"] - row["canaries"] for row in held), default=0)
            if known > 0:
                self.notes.append(f"the release holds about {known} records already; the same texts again cost nothing")
            return ledger.remaining(Scope.of(policy)).units > 0


def limits(cap: Cap) -> Amounts:
    """Return a cap in millionths, rounded down, shape (components,)."""
    given = {"pure": (cap.epsilon,), "zcdp": (cap.rho,), "approx": (cap.epsilon, cap.delta)}[cap.measure]
    return np.array([math.floor(Fraction(repr(float(amount or 0))) * MICRO) for amount in given], dtype=np.int64)


def _hashes(units: pl.Series) -> npt.NDArray[np.uint64]:
    hashed: npt.NDArray[np.uint64] = units.hash().to_numpy()
    return hashed


def _whole(amount: int | str) -> int:
    return int(amount) if isinstance(amount, int) else INFINITE // 4


def _summed(amounts: Amounts, where: npt.NDArray[np.intp]) -> Amounts:
    """Add up per unit; what is infinite stays far above any cap."""
    finite = np.minimum(amounts, INFINITE // max(4, 2 * len(amounts)))
    summed = np.zeros(int(where.max(initial=-1)) + 1, np.int64)
    np.add.at(summed, where, finite)
    endless = np.zeros(len(summed), dtype=bool)
    endless[where[amounts == INFINITE]] = True
    return np.where(endless, INFINITE // 2, summed)


def _rejected(
    amounts: Amounts, where: npt.NDArray[np.intp], used: Amounts, limit: Amounts, crowded: npt.NDArray[np.intp]
) -> int:
    """Replay the admission of the units that do not fit whole."""
    rows = np.flatnonzero(np.isin(where, crowded))
    spent = {int(unit): used[:, unit].copy() for unit in crowded}
    rejected = 0
    for row in rows:
        unit = spent[int(where[row])]
        asked = amounts[:, row]
        if (asked > limit - unit).any():
            rejected += 1
        else:
            unit += asked
    return rejected
