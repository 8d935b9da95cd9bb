"""Hold keyed hashes of ids as sortable 128-bit numbers.

Segments keep all 32 bytes of an HMAC; lookups use the first 16. Without the id key no one can aim at a collision. Among
n ids a collision by chance has probability below n^2 / 2^129, which is 1e-21 for 10^9 ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl.arrays import to_arrow
from dptext_etl.errors import InputError

U64 = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Index = npt.NDArray[np.intp]
WIDTH = 32


class KeyedIds(NamedTuple):
    """Keyed ids as pairs of 64-bit numbers, which sort like their bytes.

    Attributes:
        hi: The first 8 bytes, big-endian, shape (ids,).
        lo: The next 8 bytes, shape (ids,).
    """

    hi: U64
    lo: U64

    @property
    def size(self) -> int:
        """The number of ids."""
        return len(self.hi)

    def take(self, where: npt.NDArray[np.intp] | npt.NDArray[np.bool_] | slice) -> KeyedIds:
        """Return the ids at some places."""
        return KeyedIds(self.hi[where], self.lo[where])

    def order(self) -> Index:
        """Return the places in ascending order of id; equal ids keep the order of their rows."""
        places = np.argsort(self.hi, kind="stable")
        hi, lo = self.hi[places], self.lo[places]
        if ((hi[1:] == hi[:-1]) & (lo[1:] != lo[:-1])).any():  # two ids share their first half
            places = np.lexsort((self.lo, self.hi))
        return places

    def starts(self) -> Index:
        """Return where each distinct id begins; the ids must be sorted."""
        if not self.size:
            return np.zeros(0, np.intp)
        changes = (self.hi[1:] != self.hi[:-1]) | (self.lo[1:] != self.lo[:-1])
        return np.flatnonzero(np.concatenate([[True], changes]))


def keyed_ids(matrix: Bytes) -> KeyedIds:
    """Read keyed ids from bytes, shape (ids, 16 or more)."""
    pairs = np.ascontiguousarray(matrix[:, :16]).view(">u8")
    return KeyedIds(pairs[:, 0].astype(np.uint64), pairs[:, 1].astype(np.uint64))


def joined(ids: Iterable[KeyedIds]) -> KeyedIds:
    """Concatenate lists of keyed ids; no list gives no id."""
    listed = [KeyedIds(np.zeros(0, np.uint64), np.zeros(0, np.uint64)), *ids]
    return KeyedIds(np.concatenate([item.hi for item in listed]), np.concatenate([item.lo for item in listed]))


def matrix(array: pa.Array | pa.ChunkedArray, what: str) -> Bytes:
    """View fixed-size binaries as bytes, shape (rows, 32), without a copy."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if array.type != pa.binary(WIDTH):
        raise InputError(f"{what} are binaries of {WIDTH} bytes, got {array.type}")
    if array.null_count:
        raise InputError(f"{array.null_count} {what} are null")
    if not len(array):
        return np.zeros((0, WIDTH), np.uint8)
    return np.frombuffer(array.buffers()[1], np.uint8).reshape(-1, WIDTH)[array.offset : array.offset + len(array)]


def binaries(rows: Bytes, mask: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Wrap bytes as fixed-size binaries, without a copy."""
    data = pa.py_buffer(np.ascontiguousarray(rows))
    valid = None if mask is None else to_arrow(mask).buffers()[1]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(rows.shape[1]), len(rows), [valid, data])
