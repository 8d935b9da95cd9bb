"""Compare cells with what the ledger vouches for: here, or on executors that share its index out among themselves.

A cell is a row of 56 bytes: the keyed id of its record, the digest of its text, and the least and the largest number of
positions that such a text may have. Cells of one range of ids are located together (`located`), which makes rows of 48
bytes: a place in the ledger instead of the id. Those of one batch of the ledger are compared together (`compared`). So
the whole index is read once, however many rows there are. Counts add up.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl.checks.buckets import Buckets, Cells

if TYPE_CHECKING:
    from dptext_etl.ledger.storage.records import Lookup

ID_BYTES = 16
DIGEST_BYTES = 32
PLACE_BYTES = 8
BOUNDS_BYTES = 8
ANY = 2**32 - 1
"""The largest number of positions: no bound."""
HELD_ROWS = 1 << 19
"""Cells that are held before they are looked up here: each look-up goes through the whole index of the ledger."""
RANGE_ROWS = 1 << 17
"""Entries of the index in a range, about."""
RANGE_BITS = 10
"""The most leading bits by which the index is cut into ranges."""


Bounds = npt.NDArray[np.uint32]


class CellCounts(NamedTuple):
    """Counts of cells."""

    uncommitted: int = 0  # cells whose record has no commit
    different: int = 0  # cells that hold other bytes than were committed
    misshapen: int = 0  # cells that are null or as long as no text with the committed positions is

    def plus(self, other: CellCounts) -> CellCounts:
        """Add the counts of other cells."""
        return CellCounts(*(one + more for one, more in zip(self, other, strict=True)))


def range_bits(entries: int) -> int:
    """Return by how many leading bits an index is cut into ranges.

    >>> range_bits(100_000), range_bits(1_000_000), range_bits(10**9)
    (0, 3, 10)
    """
    return min(RANGE_BITS, (max(0, entries - 1) // RANGE_ROWS).bit_length())


def located(lookup: Lookup, cells: Cells) -> Cells:
    """Find the places of cells in the ledger, in which the index is read once for all of them."""
    places = lookup.places(cells[:, :ID_BYTES])
    return np.hstack([places.astype("<i8")[:, None].view(np.uint8), cells[:, ID_BYTES:]])


def compared(lookup: Lookup, cells: Cells) -> CellCounts:
    """Compare located cells with what was committed at their places."""
    committed, digests, positions = lookup.digests(places_of(cells))
    different = committed & (digests != cells[:, PLACE_BYTES:-BOUNDS_BYTES]).any(axis=1)
    least, most = np.ascontiguousarray(cells[:, -BOUNDS_BYTES:]).view("<u4").T
    misshapen = committed & ((positions < least) | (positions > most))
    return CellCounts(int(np.sum(~committed)), int(np.sum(different)), int(np.sum(misshapen)))


def places_of(cells: Cells) -> npt.NDArray[np.int64]:
    """Return the places of located cells, shape (cells,)."""
    return np.ascontiguousarray(cells[:, :PLACE_BYTES]).view("<i8")[:, 0].astype(np.int64)


def batches_of(cells: Cells) -> npt.NDArray[np.int64]:
    """Return the batches of the ledger that located cells stand in, shape (cells,); -1 for none."""
    return places_of(cells) >> 32


class Cellwise:
    """Takes the cells of one column, and counts those that the ledger does not vouch for."""

    def __init__(self, lookup: Lookup, scratch: Path | None = None, *, elsewhere: bool = False) -> None:
        self.lookup = lookup
        self._elsewhere = elsewhere
        self._cells = Buckets(ID_BYTES + DIGEST_BYTES + BOUNDS_BYTES, scratch)
        self._counts = CellCounts()

    def add(self, ids: pa.Array, digests: pa.Array, canary: npt.NDArray[np.bool_], bounds: Bounds) -> None:
        """Take cells."""
        whole = np.frombuffer(
            digests.buffers()[1], np.uint8, DIGEST_BYTES * len(digests), DIGEST_BYTES * digests.offset
        )
        allowed = np.ascontiguousarray(bounds, "<u4").view(np.uint8)
        self._cells.add(np.hstack([self.lookup.hashed(ids, canary), whole.reshape(-1, DIGEST_BYTES), allowed]))
        if self._cells.rows >= HELD_ROWS:
            self.look_up()

    def look_up(self) -> None:
        """Compare the cells that are held, unless they are looked up elsewhere."""
        if not self._elsewhere:
            self._look_up()

    def add_counted(self, counts: CellCounts) -> None:
        """Take counts of cells that were compared elsewhere."""
        self._counts = self._counts.plus(counts)

    def drain(self) -> Iterator[Cells]:
        """Yield the cells that are held, a bounded number at a time, then forget them: others will compare them."""
        yield from self._cells.each()
        self._cells.close()

    def counts(self) -> CellCounts:
        """Return the counts of all cells."""
        self._look_up()
        return self._counts

    def _look_up(self) -> None:
        for cells in self.drain():
            if len(cells):
                self.add_counted(compared(self.lookup, located(self.lookup, cells)))
