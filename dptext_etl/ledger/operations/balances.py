"""Keep what every unit has used of a cap, and judge which records of a batch still fit."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dptext_etl.guarantee import MICRO, steps
from dptext_etl.ledger.operations.scopes import Pinned, components
from dptext_etl.ledger.storage.cache import PartCache
from dptext_etl.ledger.storage.keyed_ids import Index, KeyedIds
from dptext_etl.ledger.storage.parts import Fold, Part, Values, fold
from dptext_etl.ledger.storage.sorted_runs import Recall, SortedRuns
from dptext_etl.ledger.storage.store import Store
from dptext_etl.ledger.terms import Mask


def balances(store: Store, cache: PartCache, pinned: Pinned) -> SortedRuns:
    """Return the balances of a capped scope: per unit, the sums that the cap limits, in the steps of their components.

    Sums of delta once stood in millionths; such runs are read in finer steps.
    """
    names, space = components(pinned), f"balance/{pinned.id}"
    if "delta" not in names:
        return SortedRuns(store, cache, space, len(names), Fold.SUM)
    older = (space, tuple(steps(name) // MICRO for name in names))
    return SortedRuns(store, cache, f"{space}/fine", len(names), Fold.SUM, older)


def admit(  # noqa: PLR0917  (the balances, the cap, who asks for what)
    runs: SortedRuns,
    limits: tuple[int, ...],
    units: KeyedIds,
    order: Index,
    amounts: Values,
    asking: Mask,
    recall: Recall | None = None,
) -> Mask:
    """Judge the records of a batch in row order.

    A record fits if its amount, added to what its unit has used, stays within the cap.
    """
    bound = np.array(limits, np.int64)[:, None]
    fits: Mask = asking & (amounts <= bound).all(axis=0)
    rows = order[fits[order]]
    if not len(rows):
        return fits
    starts = units.take(rows).starts()
    _, used = runs.find(units.take(rows[starts]), recall)
    ends = np.append(starts[1:], len(rows))
    tight = _tight(used, amounts[:, rows], starts, limits)
    alone = ends - starts == 1
    fits[rows[starts[alone & ((used + amounts[:, rows[starts]]) > bound).any(axis=0)]]] = False
    for unit in np.flatnonzero(tight & ~alone):
        _walk(fits, rows[starts[unit] : ends[unit]], amounts, used[:, unit], limits)
    return fits


def _tight(used: Values, amounts: Values, starts: npt.NDArray[np.intp], limits: tuple[int, ...]) -> Mask:
    """Return the units whose records may not all fit; sums that could pass 2^62 are left to `_walk`."""
    if max(limits) * amounts.shape[1] >= 1 << 62:
        return np.ones(len(starts), np.bool_)
    asked = np.add.reduceat(amounts, starts, axis=1)
    over: Mask = np.any(used + asked > np.array(limits, np.int64)[:, None], axis=0)
    return over


def _walk(fits: Mask, rows: npt.NDArray[np.intp], amounts: Values, used: Values, limits: tuple[int, ...]) -> None:
    """Judge the records of one unit one by one, with whole numbers of any size."""
    spent = used.tolist()
    for row, wanted in zip(rows.tolist(), amounts[:, rows].T.tolist(), strict=True):
        after = [have + more for have, more in zip(spent, wanted, strict=True)]
        if any(total > limit for total, limit in zip(after, limits, strict=True)):
            fits[row] = False
        else:
            spent = after


def charged(units: KeyedIds, amounts: Values, *, ordered: bool = False) -> Part:
    """Add up what a batch adds to the balances, per unit."""
    return fold(units, amounts, Fold.SUM, ordered=ordered)
