"""Hold keyed hashes of ids as sortable 128-bit numbers; look for them, and add up values by id.

Segments keep all 32 bytes of an HMAC; lookups use the first 16. Without the id key no one can aim at a collision. Among
n ids a collision by chance has probability below n^2 / 2^129, which is 1e-21 for 10^9 ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.arrays import arrow_kind, starts, to_arrow, to_numpy
from dptext_etl.errors import InputError
from dptext_etl.ledger.types import I64, Mask

U64 = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Index = npt.NDArray[np.intp]
Values = I64  # whole numbers per id, shape (values, ids)
WIDTH = 32
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

    def order(self) -> Index:
        """Return the places in ascending order of id; equal ids keep the order of their rows."""
        places = np.argsort(self.hi)
        hi = self.hi[places]
        if not (hi[1:] == hi[:-1]).any():
            return places
        places = np.argsort(self.hi, kind="stable")  # which is less than half as fast
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

    def real(self) -> HashedIds:
        """Return the ids except zeros, which are the units of canary rows."""
        return self.take((self.hi != 0) | (self.lo != 0))

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
        msg = f"{what} are binaries of {WIDTH} bytes, got {arrow_kind(array.type)}"
        raise InputError(msg, "pass SHA-256 digests as fixed-size binary (32)")
    if array.null_count:
        raise InputError(f"{array.null_count:,} {what} are null", "pass one value per record")
    if not len(array):
        return np.zeros((0, WIDTH), np.uint8)
    return np.frombuffer(array.buffers()[1], np.uint8).reshape(-1, WIDTH)[array.offset : array.offset + len(array)]


def binaries(rows: Bytes, mask: Mask | None = None) -> pa.Array:
    """Wrap bytes as fixed-size binaries, without a copy."""
    data = pa.py_buffer(np.ascontiguousarray(rows))
    valid = None if mask is None else to_arrow(mask).buffers()[1]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(rows.shape[1]), len(rows), [valid, data])


class UnitSums(NamedTuple):
    """Distinct ids with their values."""

    ids: HashedIds
    values: Values


def fold(ids: HashedIds, values: Values) -> UnitSums:
    """Add up the values of entries with the same id, in the order in which each id came first."""
    wanted = WantedIds(ids)
    if not wanted.repeated:
        return UnitSums(ids, values)
    order = np.argsort(wanted.places_as_passed(), kind="stable")
    firsts = starts(wanted.places_as_passed()[order])
    return UnitSums(ids.take(order[firsts]), sums(values[:, order], firsts))


def sums(values: Values, starts: Index) -> Values:
    """Add up values from each start to the next, shape (values, starts); sums saturate."""
    longest = int(np.diff(starts, append=values.shape[1]).max(initial=0))
    if longest * max(int(values.max(initial=0)), -int(values.min(initial=0))) < SATURATED:
        return np.add.reduceat(values, starts, axis=1)
    # Python's whole numbers do not wrap: a sum that wrapped would look like an unused balance.
    exact = np.clip(np.add.reduceat(values.astype(object), starts, axis=1), -SATURATED, SATURATED)
    full = np.maximum.reduceat(values, starts, axis=1) >= SATURATED
    return np.where(full, SATURATED, exact).astype(np.int64)


def plus(left: Values, right: Values) -> Values:
    """Add two sums of the same shape; they saturate."""
    total = np.maximum(left, -SATURATED) + np.maximum(right, -SATURATED)
    full = (left >= SATURATED) | (right >= SATURATED) | (total >= SATURATED)
    return np.where(full, SATURATED, np.maximum(total, -SATURATED))


class WantedIds:
    """Distinct ids that are looked for among many others; each has a place, in the order in which it came first."""

    def __init__(self, ids: HashedIds) -> None:
        self._index, given = _kernel.IdIndex.of(*map(to_arrow, ids))
        self._given: Index = to_numpy(pa.array(given))

    def __len__(self) -> int:
        return len(self._index)

    @property
    def repeated(self) -> int:
        """How many of the ids that these were made of came before."""
        return len(self._given) - len(self)

    def find(self, ids: HashedIds) -> tuple[Index, Index]:
        """Return the rows of other ids that are wanted, in ascending order, and their places among these."""
        rows, places = self._index.find(*map(to_arrow, ids))
        return to_numpy(pa.array(rows)), to_numpy(pa.array(places))

    def places_as_passed(self) -> Index:
        """Return the places of the ids that these were made of, shape (ids,)."""
        return self._given

    def places(self, ids: HashedIds) -> Index | None:
        """Return the places of other ids among these, shape (ids,), or None if one of them is not wanted."""
        if ids.size and not len(self.find(ids.take(slice(0, 1)))[0]):
            return None
        rows, places = self.find(ids)
        return places if len(rows) == ids.size else None
