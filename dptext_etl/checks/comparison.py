"""Compare rows of a fixed number of bytes in bounded memory: with each other, and with what the ledger vouches for.

The rows begin with a digest, so they spread evenly over buckets by their first byte, and equal rows meet in one
bucket (`buckets`).

Counts of rows with different digests add up. So parts of the rows can be counted anywhere, as long as all rows of one
digest are counted together: bucket by bucket on a disk, or group by group on the executors of a cluster.

A cell is a row of 56 bytes that the ledger knows: the keyed id of its record, the digest of its text, and the least and
the largest number of positions that such a text may have. Cells of one range of ids are located together (`located`),
which makes rows of 48 bytes: a place in the ledger instead of the id. Those of one batch of the ledger are compared
together (`compared`). So the whole index is read once, however many rows there are: here, cells that do not fit into
memory lie on the disk by their ids first, and then by their places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.buckets import BUCKETS, Buckets, ByteRows

if TYPE_CHECKING:
    from dptext_etl.ledger.storage.records import Lookup

BYTES = 16
ID_BYTES = 16
DIGEST_BYTES = 32
PLACE_BYTES = 8
BOUNDS_BYTES = 8
ANY = 2**32 - 1
"""The largest number of positions: no bound."""
RANGE_ROWS = 1 << 17
"""Entries of the index in a range, about, and cells of known places that are compared at a time."""
RANGE_BITS = 10
"""The most leading bits by which the index is cut into ranges."""

Bounds = npt.NDArray[np.uint32]


def short_digests(texts: pl.Series) -> ByteRows:
    """Return the digest of every text, shape (rows, 16); a null has a digest of its own."""
    return shortened(_kernel.digests(texts))


def shortened(digests: _kernel.Column) -> ByteRows:
    """Return the first 16 bytes of digests, shape (rows, 16)."""
    return np.ascontiguousarray(_digest_rows(pa.array(digests))[:, :BYTES])


def _digest_rows(digests: pa.Array) -> ByteRows:
    size, start = DIGEST_BYTES * len(digests), DIGEST_BYTES * digests.offset
    return np.frombuffer(digests.buffers()[1], np.uint8, size, start).reshape(-1, DIGEST_BYTES)


def as_values(rows: ByteRows) -> npt.NDArray[np.void]:
    """Return the rows of an array of bytes, each as one value that can be sorted and compared."""
    return np.ascontiguousarray(rows).view(f"V{rows.shape[1]}").reshape(-1)


class Counted(NamedTuple):
    """Counts of rows; the first 16 bytes of a row are its digest."""

    rows: int = 0
    digests: int = 0
    distinct: int = 0  # different rows
    shared: int = 0  # rows whose digest is that of another row, too

    def plus(self, other: Counted) -> Counted:
        return Counted(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


def counted(rows: ByteRows) -> Counted:
    """Count rows; all rows of a digest must be among them."""
    if not len(rows):
        return Counted()
    front = np.ascontiguousarray(rows[:, :8]).view("<u8").reshape(-1)
    ordered = np.sort(front)  # which takes a fraction of what the order takes
    if not (ordered[1:] == ordered[:-1]).any():
        return Counted(len(rows), len(rows), len(rows))
    order = np.argsort(front)
    equal = front[order[1:]] == front[order[:-1]]
    near = np.zeros(len(rows), np.bool_)  # rows whose digest begins like another one; no other row can be repeated
    near[:-1] = equal
    near[1:] |= equal
    some = np.ascontiguousarray(rows[order[near]])
    alone = len(rows) - len(some)
    _, times = np.unique(as_values(some[:, :BYTES]), return_counts=True)
    return Counted(len(rows), alone + len(times), alone + len(np.unique(as_values(some))), int(times[times > 1].sum()))


class Repeats(Buckets):
    """Takes rows, and counts them at the end."""

    def __init__(self, width: int = BYTES, folder: Path | None = None) -> None:
        super().__init__(width, folder)
        self._elsewhere = Counted()

    def add_counted(self, counts: Counted) -> None:
        """Take counts of rows that were counted elsewhere; their digests must not be added here or counted twice."""
        self._elsewhere = self._elsewhere.plus(counts)

    def counts(self) -> Counted:
        total = self._elsewhere
        for rows in self.each():
            total = total.plus(counted(rows))
        return total


class Mismatches(NamedTuple):
    """Counts of cells."""

    uncommitted: int = 0  # cells whose record has no commit
    different: int = 0  # cells that hold other bytes than were committed
    misshapen: int = 0  # cells that are null or as long as no text with the committed positions is

    def plus(self, other: Mismatches) -> Mismatches:
        return Mismatches(*(one + more for one, more in zip(self, other, strict=True)))


def by_batch(lookup: Lookup, cells: Iterable[ByteRows], scratch: Path | None) -> Iterator[ByteRows]:
    """Yield located cells again so that those of a batch of the ledger come together; most batches come once."""
    batches = lookup.batches()
    with closing(Buckets(1 + PLACE_BYTES + DIGEST_BYTES + BOUNDS_BYTES, scratch)) as placed:
        for some in cells:
            rank = np.searchsorted(batches, batches_of(some)) * BUCKETS // max(1, len(batches))
            placed.add(np.hstack([np.minimum(rank, BUCKETS - 1).astype(np.uint8)[:, None], some]))
        for some in placed.each():
            yield some[:, 1:]


def range_bits(entries: int) -> int:
    """Return by how many leading bits an index is cut into ranges.

    >>> range_bits(100_000), range_bits(1_000_000), range_bits(10**9)
    (0, 3, 10)
    """
    return min(RANGE_BITS, (max(0, entries - 1) // RANGE_ROWS).bit_length())


def located(lookup: Lookup, cells: ByteRows) -> ByteRows:
    """Find the places of cells in the ledger, in which the index is read once for all of them."""
    return _placed(lookup.places(cells[:, :ID_BYTES]), cells[:, ID_BYTES:])


def _placed(places: npt.NDArray[np.int64], cells: ByteRows) -> ByteRows:
    return np.hstack([places.astype("<i8")[:, None].view(np.uint8), cells])


def compared(lookup: Lookup, cells: ByteRows) -> Mismatches:
    """Compare located cells with what was committed at their places."""
    committed, digests, positions = lookup.digests(places_of(cells))
    different = committed & (digests != cells[:, PLACE_BYTES:-BOUNDS_BYTES]).any(axis=1)
    least, most = np.ascontiguousarray(cells[:, -BOUNDS_BYTES:]).view("<u4").T
    misshapen = committed & ((positions < least) | (positions > most))
    return Mismatches(int(np.sum(~committed)), int(np.sum(different)), int(np.sum(misshapen)))


def places_of(cells: ByteRows) -> npt.NDArray[np.int64]:
    return np.ascontiguousarray(cells[:, :PLACE_BYTES]).view("<i8")[:, 0].astype(np.int64)


def batches_of(cells: ByteRows) -> npt.NDArray[np.int64]:
    """Return the batches of the ledger that located cells stand in, shape (cells,); -1 for none."""
    return places_of(cells) >> 32


class LedgerComparison:
    """Takes the cells of one column, and counts those that the ledger does not vouch for."""

    def __init__(self, lookup: Lookup, scratch: Path | None = None, *, elsewhere: bool = False) -> None:
        self.lookup = lookup
        self._elsewhere = elsewhere
        self._scratch = scratch
        self._cells = Buckets(ID_BYTES + DIGEST_BYTES + BOUNDS_BYTES, scratch)
        self._placed: list[ByteRows] = []
        self._counts = Mismatches()

    def add(self, ids: pa.Array, digests: pa.Array, canary: npt.NDArray[np.bool_], bounds: Bounds) -> None:
        """Take cells. Those in the order in which the ledger holds them are compared now, the others at the end."""
        hashes = self.lookup.hashed(ids, canary)
        cells = np.hstack([_digest_rows(digests), np.ascontiguousarray(bounds, "<u4").view(np.uint8)])
        places = np.zeros(0, np.int64) if self._elsewhere else self.lookup.places_in_order(hashes)
        if done := len(places):
            self._placed.append(_placed(places, cells[:done]))
            if sum(map(len, self._placed)) >= RANGE_ROWS:
                self._compare_placed()
        if done < len(cells):
            self._cells.add(np.hstack([hashes[done:], cells[done:]]))

    def drain(self) -> Iterator[ByteRows]:
        """Yield the cells that are held, a bounded number at a time, then forget them."""
        return self._cells.drain()

    def add_counted(self, counts: Mismatches) -> None:
        self._counts = self._counts.plus(counts)

    def counts(self) -> Mismatches:
        """Compare the cells that are held, and return the counts of all cells."""
        spilled = self._cells.spilled
        placed = (located(self.lookup, cells) for cells in self.drain() if len(cells))
        for cells in by_batch(self.lookup, placed, self._scratch) if spilled else placed:
            self.add_counted(compared(self.lookup, cells))
        self._compare_placed()
        return self._counts

    def _compare_placed(self) -> None:
        """Compare the cells whose places are known: so many at a time that few batches are read twice."""
        if self._placed:
            self.add_counted(compared(self.lookup, np.concatenate(self._placed)))
            self._placed = []
