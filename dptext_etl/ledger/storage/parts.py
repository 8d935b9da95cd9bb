"""Search and fold sorted ids in memory: what runs do with the parts that they hold (`sorted_runs`)."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dptext_etl.ledger.storage.keyed_ids import U64, Index, KeyedIds

SIEVE_BITS = 4
"""How many bits more than the number of wanted keys has a sieve looks at: one key of 16 to 32 passes by chance."""
LARGEST_SIEVE = 22
"""A sieve looks at no more bits; its table has a byte for each of their values."""
BISECTED = 8
"""A run that has so many keys for each wanted one is bisected."""
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
    """Sort entries and fold those with the same id."""
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


class Sieve:
    """Sorted keys that are looked for in many runs, with a table of the first bits that occur among them.

    Few keys of a run pass the table unless they are looked for. So a run of about as many keys is gone through once,
    in order, and bisection is left for what passes.
    """

    def __init__(self, wanted: U64) -> None:
        self._wanted = wanted
        self._repeated = bool((wanted[1:] == wanted[:-1]).any())
        self._bits = min(len(wanted).bit_length() + SIEVE_BITS, LARGEST_SIEVE)
        self._table: npt.NDArray[np.bool_] | None = None

    def matches(self, keys: U64, begin: int, end: int) -> tuple[Index, Index] | None:
        """Return what `matches` does, for the wanted keys from `begin` to `end`."""
        wanted = self._wanted[begin:end]
        if self._repeated or len(keys) > BISECTED * len(wanted):
            return matches(keys, wanted)
        rows = np.flatnonzero(self._occurring()[self._places(keys)])
        passed = keys[rows]
        places = np.searchsorted(wanted, passed)
        hit = wanted[np.minimum(places, len(wanted) - 1)] == passed
        places, rows = places[hit], rows[hit]
        if (places[1:] == places[:-1]).any():  # two keys of the run are equal
            return matches(keys, wanted)
        return (places, rows) if len(places) else None

    def _occurring(self) -> npt.NDArray[np.bool_]:
        if self._table is None:
            self._table = np.zeros(1 << self._bits, np.bool_)
            self._table[self._places(self._wanted)] = True
        return self._table

    def _places(self, keys: U64) -> Index:
        return (keys >> np.uint64(64 - self._bits)).view(np.int64)


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
