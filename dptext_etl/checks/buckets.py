"""Keep digests and other rows of a fixed number of bytes by their first byte, in bounded memory, and count equal ones.

The rows begin with a digest, so they spread evenly over the 256 buckets, and equal rows meet in one bucket. What does
not fit into memory goes to one file without a name, in chunks sorted by the first byte: nothing is left of a process
that is killed.

Counts of rows with different digests add up. So parts of the rows can be counted anywhere, as long as all rows of one
digest are counted together: bucket by bucket on a disk, or group by group on the executors of a cluster.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.errors import InputError, seam

BYTES = 16
_WHOLE = 32


def short_digests(texts: pl.Series) -> npt.NDArray[np.uint8]:
    """Return the digest of every text, shape (rows, 16); a null has a digest of its own."""
    found = pa.array(_kernel.digests(texts))
    whole = np.frombuffer(found.buffers()[1], dtype=np.uint8, count=_WHOLE * len(found), offset=_WHOLE * found.offset)
    return np.ascontiguousarray(whole.reshape(len(found), _WHOLE)[:, :BYTES])


def as_rows(cells: npt.NDArray[np.uint8]) -> npt.NDArray[np.void]:
    """Return the rows of an array of bytes, each as one value that can be sorted and compared."""
    return np.ascontiguousarray(cells).view(f"V{cells.shape[1]}").reshape(-1)


HELD_BYTES = 1 << 25
"""Bytes of rows that are held in memory before they go to the file."""
BUCKETS = 256

Cells = npt.NDArray[np.uint8]
"""Rows, shape (rows, bytes per row)."""


class Buckets:
    """Takes rows, and gives them back bucket by bucket."""

    def __init__(self, width: int, folder: Path | None = None) -> None:
        self.width = width
        self.rows = 0
        self._folder = folder
        self._held: list[Cells] = []
        self._size = 0
        self._file: BinaryIO | None = None
        self._chunks: list[npt.NDArray[np.int64]] = []

    def add(self, rows: Cells) -> None:
        """Take rows."""
        if rows.shape[1] != self.width:
            raise InputError(f"rows to compare have {rows.shape[1]} bytes, {self.width} are expected")
        self._held.append(rows)
        self._size += rows.size
        self.rows += len(rows)
        if self._size >= HELD_BYTES:
            self._spill()

    def each(self) -> Iterator[Cells]:
        """Yield every bucket, in order; all rows at once where they fit into memory."""
        if self._file is None:
            yield np.concatenate([np.zeros((0, self.width), np.uint8), *self._held])
        else:
            yield from self.aligned()

    def aligned(self) -> Iterator[Cells]:
        """Yield every bucket, in order, also where all rows fit into memory: for buckets that are compared."""
        self._spill()
        for at in range(BUCKETS):
            with seam("reading digests from disk", InputError):
                rows = self._bucket(at)
            yield rows

    def close(self) -> None:
        """Forget all rows."""
        self._held, self._size, self._chunks, self.rows = [], 0, [], 0
        if self._file is not None:
            self._file.close()
            self._file = None

    def _spill(self) -> None:
        """Append the rows that are held to the file, sorted by their first byte."""
        rows = np.concatenate([np.zeros((0, self.width), np.uint8), *self._held])
        order = np.argsort(rows[:, 0], kind="stable")
        rows = np.take(rows.view(f"V{self.width}"), order).view(np.uint8).reshape(-1, self.width)
        with seam("keeping digests on disk", InputError, "is there room? Run the same policy again"):
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115  (outlives the call)
            begin = os.fstat(self._file.fileno()).st_size
            view = rows.reshape(-1).data
            while view:
                view = view[os.write(self._file.fileno(), view) :]
        self._chunks.append(begin + np.searchsorted(rows[:, 0], np.arange(BUCKETS + 1)) * self.width)
        self._held, self._size = [], 0

    def _bucket(self, at: int) -> Cells:
        file = 0 if self._file is None else self._file.fileno()
        pieces = (os.pread(file, int(edges[at + 1] - edges[at]), int(edges[at])) for edges in self._chunks)
        return np.frombuffer(b"".join(pieces), np.uint8).reshape(-1, self.width)


class Counted(NamedTuple):
    """Counts of rows; the first 16 bytes of a row are its digest."""

    rows: int = 0
    digests: int = 0
    distinct: int = 0  # different rows
    shared: int = 0  # rows whose digest is that of another row, too

    def plus(self, other: Counted) -> Counted:
        """Add the counts of rows that have other digests."""
        return Counted(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


def counted(rows: Cells) -> Counted:
    """Count rows; all rows of a digest must be among them."""
    if not len(rows):
        return Counted()
    front = np.ascontiguousarray(rows[:, :8]).view("<u8").reshape(-1)
    order = np.argsort(front)
    equal = front[order[1:]] == front[order[:-1]]
    near = np.zeros(len(rows), np.bool_)  # rows whose digest begins like another one; no other row can be repeated
    near[:-1] = equal
    near[1:] |= equal
    some = np.ascontiguousarray(rows[order[near]])
    alone = len(rows) - len(some)
    _, times = np.unique(as_rows(some[:, :BYTES]), return_counts=True)
    return Counted(len(rows), alone + len(times), alone + len(np.unique(as_rows(some))), int(times[times > 1].sum()))


class Repeats:
    """Takes rows, and counts them at the end."""

    def __init__(self, width: int = BYTES, folder: Path | None = None) -> None:
        self._buckets = Buckets(width, folder)
        self._elsewhere = Counted()

    def add(self, rows: Cells) -> None:
        """Take rows, shape (rows, width)."""
        self._buckets.add(rows)

    def add_counted(self, counts: Counted) -> None:
        """Take counts of rows that were counted elsewhere; their digests must not be added here or counted twice."""
        self._elsewhere = self._elsewhere.plus(counts)

    def drain(self) -> Iterator[Cells]:
        """Yield the rows that were added, a bounded number at a time, then forget them: others will count them."""
        yield from self._buckets.each()
        self._buckets.close()

    def counts(self) -> Counted:
        """Return the counts of all rows."""
        total = self._elsewhere
        for rows in self._buckets.each():
            total = total.plus(counted(rows))
        return total
