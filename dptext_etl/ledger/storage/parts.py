"""Search and fold sorted ids in memory: what runs do with the parts that they hold (`sorted_runs`)."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dptext_etl.ledger.storage.keyed_ids import U64, Index, KeyedIds

Values = npt.NDArray[np.int64]
"""Whole numbers per id, shape (values, ids)."""


class Fold(StrEnum):
    """How two entries of one id become one."""

    SUM = "sum"
    LATEST = "latest"
    """The entry whose last value is the largest."""


class Part(NamedTuple):
    """Ids in ascending order with their values."""

    ids: KeyedIds
    values: Values


def fold(ids: KeyedIds, values: Values, how: Fold, *, ordered: bool = False) -> Part:
    """Sort entries and fold those with the same id.

    Args:
        ids: Ids in any order, repeated or not.
        values: Their numbers, shape (values, ids).
        how: How two entries of one id become one.
        ordered: Whether the ids stand in ascending order already.
    """
    if not ordered:
        order = ids.order()
        ids, values = ids.take(order), values[:, order]
    starts = ids.starts()
    if len(starts) == ids.size:
        return Part(ids, values)
    if how is Fold.SUM:
        return Part(ids.take(starts), np.add.reduceat(values, starts, axis=1))
    order = np.lexsort((values[-1], ids.lo, ids.hi))
    last = order[np.append(starts[1:], ids.size) - 1]
    return Part(ids.take(last), values[:, last])


def cut(part: Part, bits: int) -> Iterator[Part]:
    """Cut entries by the first bits of their ids, in ascending order."""
    for at in range(1 << bits):
        begin, end = between(part.ids.hi, bits, at)
        yield Part(part.ids.take(slice(begin, end)), part.values[:, begin:end])


def between(keys: U64, bits: int, at: int) -> tuple[int, int]:
    """Return where the sorted keys that begin with the bits `at` begin and end."""
    if not bits:
        return 0, len(keys)
    begin = int(np.searchsorted(keys, np.uint64(at << (64 - bits))))
    if at + 1 == 1 << bits:
        return begin, len(keys)
    return begin, int(np.searchsorted(keys, np.uint64((at + 1) << (64 - bits))))


def slices(wanted: KeyedIds, bits: int) -> Iterator[tuple[int, int, int]]:
    """Cut sorted ids by their first bits into (part, begin, end); empty parts are left out."""
    edges = np.arange(1, 1 << bits, dtype=np.uint64) << np.uint64(64 - bits) if bits else np.zeros(0, np.uint64)
    cuts = [0, *np.searchsorted(wanted.hi, edges).tolist(), wanted.size]
    for at in range(1 << bits):
        if cuts[at] < cuts[at + 1]:
            yield at, cuts[at], cuts[at + 1]


def matches(keys: U64, wanted: U64) -> tuple[Index, Index] | None:
    """Return which wanted keys occur, and where each occurs first."""
    if not len(keys):
        return None
    rows = np.searchsorted(keys, wanted)
    places = np.flatnonzero(keys[np.minimum(rows, len(keys) - 1)] == wanted)
    return (places, rows[places]) if len(places) else None


def exact(keys: U64, low: U64, rows: Index, wanted: KeyedIds) -> tuple[Index, npt.NDArray[np.bool_]]:
    """Compare the second half of ids too, past ids with the same first half (one in 10^6 ledgers has any)."""
    rows = rows.copy()
    same = low[rows] == wanted.lo
    for miss in np.flatnonzero(~same):
        row = int(rows[miss])
        while row < len(keys) and keys[row] == wanted.hi[miss]:
            if low[row] == wanted.lo[miss]:
                rows[miss], same[miss] = row, True
                break
            row += 1
    return rows, same
