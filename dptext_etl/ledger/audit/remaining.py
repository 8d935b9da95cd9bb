"""Sum up what units have used of a cap and what they have left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dptext_etl.column import INFINITE
from dptext_etl.guarantee import PURE, Micro, millionths
from dptext_etl.ledger.operations.balances import balances, charged
from dptext_etl.ledger.operations.book import Book
from dptext_etl.ledger.operations.scopes import LARGEST, Pinned, components
from dptext_etl.ledger.storage.keyed_ids import KeyedIds, joined, keyed_ids
from dptext_etl.ledger.storage.parts import Fold, Part, Values, fold
from dptext_etl.ledger.storage.passes import Pass, Taken, passes
from dptext_etl.ledger.terms import I64, Scope, State

QUANTILES = {"min": 0.0, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95, "max": 1.0}
_UNCAPPED = PURE


@dataclass(frozen=True)
class Remaining:
    """What units have used of the cap of a scope, and what they have left. Amounts are millionths.

    Attributes:
        scope: The scope in words.
        unit: "subject" or "record".
        measure: The measure that the cap counts; None without a cap, and pure epsilon is shown.
        limits: The cap by component; empty without a cap.
        units: The number of units with a charge or a reservation.
        exhausted: The number of units that have reached the cap in some component.
        used: Quantiles of what units have used, by component; "inf" where no bound is known.
        left: Quantiles of what units have left, by component; empty without a cap.
        asked: One entry per unit in `subjects`: used and left by component.
    """

    scope: str
    unit: str
    measure: str | None
    limits: dict[str, Micro]
    units: int
    exhausted: int
    used: dict[str, dict[str, Micro | str]]
    left: dict[str, dict[str, Micro]]
    asked: list[dict[str, dict[str, Micro | str]]]

    def as_dict(self) -> dict[str, Any]:
        """Return the same facts as JSON can hold them."""
        return asdict(self)


def remaining(book: Book, scope: Scope, subjects: pa.Array | None) -> Remaining:
    """Sum up the balances of a scope (see `Ledger.remaining`)."""
    pinned = _found(book, scope)
    names = counted(pinned)
    limits = dict(zip(names, pinned.limits, strict=False))
    tables: dict[str, dict[int, int]] = {name: {} for name in names}
    units = exhausted = 0
    for part in used_by_unit(book, pinned, names):
        values = part.values
        units += values.shape[1]
        if limits:
            exhausted += int((values >= np.array(pinned.limits, np.int64)[:, None]).any(axis=0).sum())
        for name, amounts in zip(names, values, strict=True):
            for amount, count in zip(*(item.tolist() for item in np.unique(amounts, return_counts=True)), strict=True):
                tables[name][amount] = tables[name].get(amount, 0) + count
    spent = {
        name: {at: _shown(name, amount) for at, amount in _quantiles(table).items()} for name, table in tables.items()
    }
    left = {
        name: {at: millionths(name, amount) for at, amount in _quantiles(_left(tables[name], limit)).items()}
        for name, limit in limits.items()
    }
    asked = [] if subjects is None else _asked(used(book, scope, subjects), limits)
    said = {name: millionths(name, limit) for name, limit in limits.items()}
    return Remaining(str(scope), pinned.unit, pinned.measure, said, units, exhausted, spent, left, asked)


def _found(book: Book, scope: Scope) -> Pinned:
    return book.scopes.find(scope) or Pinned(-1, scope.unit, None, ())


def counted(pinned: Pinned) -> tuple[str, ...]:
    """Return the components that a scope adds up: those of its cap, and pure epsilon where it has none."""
    return components(pinned) or (_UNCAPPED,)


def used_by_unit(book: Book, pinned: Pinned, names: tuple[str, ...]) -> Iterator[Part]:
    """Iterate over units and what they have used, by component, in parts; each unit comes once."""
    if pinned.measure is not None:
        yield from balances(book.store, book.cache, pinned).folded()
        return
    found = book.store.rows("select seq, rows from batch where scope=? order by seq", (pinned.id,))
    for each in passes(book.segments, book.journal, sum(rows for _, rows in found)):
        taken = each.over([seq for seq, _ in found], "unit", ["canary", *names])
        parts = [_spent(book, item, names) for item in taken]
        values = np.concatenate([np.zeros((len(names), 0), np.int64), *(part.values for part in parts)], axis=1)
        yield fold(joined(part.ids for part in parts), values, Fold.SUM)


def _spent(book: Book, item: Taken, names: tuple[str, ...]) -> Part:
    """Return what rows of a batch took; an infinite amount counts as one that no cap reaches."""
    kept = (item.columns["canary"] == 0) & (book.records.states(item.batch)[item.rows] != State.ABORTED)
    return charged(item.ids.take(kept), np.stack([np.minimum(item.columns[name][kept], LARGEST) for name in names]))


def used(book: Book, scope: Scope, units: pa.Array) -> dict[str, I64]:
    """Return what some units have used, by component (see `Ledger.used`)."""
    pinned = _found(book, scope)
    names = counted(pinned)
    nobody = np.zeros(len(units), np.bool_)
    by_subject = pinned.unit == "subject"
    ids = keyed_ids(book.id_key.subjects(units, nobody) if by_subject else book.id_key.records(units, nobody).hashed)
    order = ids.order()
    values = np.zeros((len(names), ids.size), np.int64)
    wanted = ids.take(order)
    values[:, order] = (
        balances(book.store, book.cache, pinned).find(wanted)[1]
        if pinned.measure is not None
        else _summed(book, pinned, names, wanted)
    )
    return dict(zip(names, np.where(values >= LARGEST, INFINITE, values), strict=True))


def _asked(spent: dict[str, I64], limits: dict[str, int]) -> list[dict[str, dict[str, Micro | str]]]:
    rows = zip(*(amounts.tolist() for amounts in spent.values()), strict=True)
    return [
        {
            name: {
                "used": _shown(name, amount),
                **({"left": millionths(name, max(0, limits[name] - amount))} if limits else {}),
            }
            for name, amount in zip(spent, row, strict=True)
        }
        for row in rows
    ]


def _summed(book: Book, pinned: Pinned, names: tuple[str, ...], wanted: KeyedIds) -> Values:
    """Add up what units took in a scope that keeps no balances; `wanted` is sorted."""
    total = np.zeros((len(names), wanted.size), np.int64)
    batches = [seq for (seq,) in book.store.rows("select seq from batch where scope=?", (pinned.id,))]
    for item in Pass(book.segments, book.journal, 0, 0).over(batches, "unit", ["canary", *names]):
        part = _spent(book, item, names)
        if part.ids.size:
            at = np.minimum(np.searchsorted(part.ids.hi, wanted.hi), part.ids.size - 1)
            hit = (part.ids.hi[at] == wanted.hi) & (part.ids.lo[at] == wanted.lo)
            total += np.where(hit, part.values[:, at], 0)
    return total


def _left(used: dict[int, int], limit: int) -> dict[int, int]:
    left: dict[int, int] = {}
    for amount, units in used.items():
        rest = max(0, limit - amount)
        left[rest] = left.get(rest, 0) + units
    return left


def _quantiles(table: dict[int, int]) -> dict[str, int]:
    """Return quantiles of a histogram: the smallest amount that at least that share of the units stays within."""
    if not table:
        return {}
    amounts = np.array(sorted(table))
    reached = np.cumsum([table[amount] for amount in amounts.tolist()])
    return {
        name: int(amounts[min(len(amounts) - 1, int(np.searchsorted(reached, share * reached[-1])))])
        for name, share in QUANTILES.items()
    }


def _shown(name: str, amount: int) -> Micro | str:
    return "inf" if amount >= LARGEST else millionths(name, amount)
