"""Hold keyed hashes of ids as sortable 128-bit numbers; search and fold sorted lists of them.

Segments keep all 32 bytes of an HMAC; lookups use the first 16. Without the id key no one can aim at a collision. Among
n ids a collision by chance has probability below n^2 / 2^129, which is 1e-21 for 10^9 ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl.arrays import arrow_kind, to_arrow
from dptext_etl.errors import InputError
from dptext_etl.ledger.types import I64, Mask

U64 = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Index = npt.NDArray[np.intp]
Values = I64
"""Whole numbers per id, shape (values, ids)."""
WIDTH = 32
SIEVE_BITS = 4
"""How many bits more than the number of wanted keys has a sieve looks at: one key of 16 to 32 passes by chance."""
LARGEST_SIEVE = 22
"""A sieve looks at no more bits; its table has a byte for each of their values."""
BISECTED = 8
"""A run that has so many keys for each wanted one is bisected."""


SATURATED = 1 << 62
"""A sum that reaches this stays at it, whatever is given back later: none wraps, and none is less than it should be."""


class HashedIds(NamedTuple):
    """Keyed hashes as pairs of 64-bit numbers (big-endian, the first 8 bytes and the next 8), which sort like bytes."""

    hi: U64
    lo: U64

    @property
    def size(self) -> int:
        return len(self.hi)

    def take(self, where: Index | Mask | slice) -> HashedIds:
        return HashedIds(self.hi[where], self.lo[where])

    def order(self, *, sorted_lists: bool = False) -> Index:
        """Return the places in ascending order of id; equal ids keep the order of their rows.

        A stable sort takes more than twice as long, but merges the `sorted_lists` that the ids consist of.
        """
        places = np.argsort(self.hi, kind="stable" if sorted_lists else None)
        hi = self.hi[places]
        if not (hi[1:] == hi[:-1]).any():
            return places
        places = places if sorted_lists else np.argsort(self.hi, kind="stable")
        lo = self.lo[places]
        if ((hi[1:] == hi[:-1]) & (lo[1:] != lo[:-1])).any():  # two ids share their first half
            places = np.lexsort((self.lo, self.hi))
        return places

    def starts(self) -> Index:
        """Return where each distinct id begins; the ids must be sorted."""
        if not self.size:
            return np.zeros(0, np.intp)
        changes = (self.hi[1:] != self.hi[:-1]) | (self.lo[1:] != self.lo[:-1])
        return np.flatnonzero(np.concatenate([[True], changes]))

    def equal(self, other: HashedIds) -> Mask:
        """Return where two lists of one length hold the same id."""
        same: Mask = (self.hi == other.hi) & (self.lo == other.lo)
        return same

    def as_bytes(self) -> Bytes:
        """Return the ids as bytes, shape (ids, 16)."""
        return np.stack([self.hi, self.lo], axis=1).astype(">u8").view(np.uint8)


def hashed_ids(rows: Bytes) -> HashedIds:
    """Read hashed ids from bytes, shape (ids, 16 or more)."""
    pairs = np.ascontiguousarray(rows[:, :16]).view(">u8")
    return HashedIds(pairs[:, 0].astype(np.uint64), pairs[:, 1].astype(np.uint64))


def concatenated(ids: Iterable[HashedIds]) -> HashedIds:
    lists = [HashedIds(np.zeros(0, np.uint64), np.zeros(0, np.uint64)), *ids]
    return HashedIds(np.concatenate([item.hi for item in lists]), np.concatenate([item.lo for item in lists]))


def matrix(array: pa.Array | pa.ChunkedArray, what: str) -> Bytes:
    """View fixed-size binaries as bytes, shape (rows, 32), without a copy."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if array.type != pa.binary(WIDTH):
        raise InputError(f"{what} are binaries of {WIDTH} bytes, got {arrow_kind(array.type)}")
    if array.null_count:
        raise InputError(f"{array.null_count} {what} are null")
    if not len(array):
        return np.zeros((0, WIDTH), np.uint8)
    return np.frombuffer(array.buffers()[1], np.uint8).reshape(-1, WIDTH)[array.offset : array.offset + len(array)]


def binaries(rows: Bytes, mask: Mask | None = None) -> pa.Array:
    """Wrap bytes as fixed-size binaries, without a copy."""
    data = pa.py_buffer(np.ascontiguousarray(rows))
    valid = None if mask is None else to_arrow(mask).buffers()[1]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(rows.shape[1]), len(rows), [valid, data])


class Fold(StrEnum):
    """How two entries of one id become one."""

    SUM = "sum"
    LATEST = "latest"
    """The entry whose last value is the largest."""


class Part(NamedTuple):
    """Ids in ascending order with their values."""

    ids: HashedIds
    values: Values


def fold(ids: HashedIds, values: Values, how: Fold, *, ordered: bool = False, sorted_lists: bool = False) -> Part:
    """Sort entries and fold those with the same id."""
    if not ordered:
        order = ids.order(sorted_lists=sorted_lists)
        ids, values = ids.take(order), values[:, order]
    starts = ids.starts()
    if len(starts) == ids.size:
        return Part(ids, values)
    if how is Fold.SUM:
        return Part(ids.take(starts), sums(values, starts))
    order = np.lexsort((values[-1], ids.lo, ids.hi))
    last = order[np.append(starts[1:], ids.size) - 1]
    return Part(ids.take(last), values[:, last])


def sums(values: Values, starts: Index) -> Values:
    """Add up values from each start to the next, shape (values, starts); sums saturate."""
    longest = int(np.diff(starts, append=values.shape[1]).max(initial=0))
    if longest * max(int(values.max(initial=0)), -int(values.min(initial=0))) < SATURATED:
        return np.add.reduceat(values, starts, axis=1)
    exact = np.clip(np.add.reduceat(values.astype(object), starts, axis=1), -SATURATED, SATURATED)
    full = np.maximum.reduceat(values, starts, axis=1) >= SATURATED
    return np.where(full, SATURATED, exact).astype(np.int64)


def plus(left: Values, right: Values) -> Values:
    """Add two sums of the same shape; they saturate."""
    total = np.maximum(left, -SATURATED) + np.maximum(right, -SATURATED)
    full = (left >= SATURATED) | (right >= SATURATED) | (total >= SATURATED)
    return np.where(full, SATURATED, np.maximum(total, -SATURATED))


def prefix_cuts(keys: U64, bits: int) -> list[int]:
    """Return where the sorted keys of each value of their first bits begin, and where the last ones end."""
    edges = np.arange(1, 1 << bits, dtype=np.uint64) << np.uint64(64 - bits) if bits else np.zeros(0, np.uint64)
    return [0, *np.searchsorted(keys, edges).tolist(), len(keys)]


def prefix_range(keys: U64, bits: int, prefix: int) -> tuple[int, int]:
    """Return where the sorted keys that begin with the bits `prefix` begin and end."""
    if not bits:
        return 0, len(keys)
    begin = int(np.searchsorted(keys, np.uint64(prefix << (64 - bits))))
    if prefix + 1 == 1 << bits:
        return begin, len(keys)
    return begin, int(np.searchsorted(keys, np.uint64((prefix + 1) << (64 - bits))))


def split(part: Part, bits: int) -> Iterator[Part]:
    """Split entries by the first bits of their ids, in ascending order."""
    cuts = prefix_cuts(part.ids.hi, bits)
    for begin, end in pairwise(cuts):
        yield Part(part.ids.take(slice(begin, end)), part.values[:, begin:end])


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
        self._table: Mask | None = None

    def matches(self, keys: U64, begin: int, end: int) -> tuple[Index, Index] | None:
        """Return what `matches` does, for the wanted keys from `begin` to `end`."""
        wanted = self._wanted[begin:end]
        if self._repeated or len(keys) > BISECTED * len(wanted):
            return matches(keys, wanted)
        if self._table is None:
            self._table = np.zeros(1 << self._bits, np.bool_)
            self._table[self._prefixes(self._wanted)] = True
        rows = np.flatnonzero(self._table[self._prefixes(keys)])
        passed = keys[rows]
        places = np.searchsorted(wanted, passed)
        hit = wanted[np.minimum(places, len(wanted) - 1)] == passed
        places, rows = places[hit], rows[hit]
        if (places[1:] == places[:-1]).any():  # two keys of the run are equal
            return matches(keys, wanted)
        return (places, rows) if len(places) else None

    def _prefixes(self, keys: U64) -> Index:
        return (keys >> np.uint64(64 - self._bits)).view(np.int64)


def exact_matches(keys: U64, low: U64, rows: Index, wanted: HashedIds) -> tuple[Index, Mask]:
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
