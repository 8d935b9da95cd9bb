"""Sort rows of a fixed number of bytes into 256 buckets by their first byte, in bounded memory.

What does not fit into memory goes to one file without a name, in chunks sorted by the first byte: nothing is left of a
process that is killed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from dptext_etl.errors import InputError, seam

BUCKETS = 256
HELD_BYTES = 1 << 25
"""Bytes of rows that are held in memory before they go to the file."""

ByteRows = npt.NDArray[np.uint8]
"""Rows, shape (rows, bytes per row)."""


class Buckets:
    """Takes rows, and gives them back bucket by bucket."""

    def __init__(self, width: int, folder: Path | None = None) -> None:
        self.width = width
        self.rows = 0
        self._folder = folder
        self._held: list[ByteRows] = []
        self._size = 0
        self._file: BinaryIO | None = None
        self._chunks: list[npt.NDArray[np.int64]] = []

    def add(self, rows: ByteRows) -> None:
        if rows.shape[1] != self.width:
            raise InputError(f"rows to compare have {rows.shape[1]} bytes, {self.width} are expected")
        self._held.append(rows)
        self._size += rows.size
        self.rows += len(rows)
        if self._size >= HELD_BYTES:
            self._spill()

    def each(self) -> Iterator[ByteRows]:
        """Yield every bucket, in order; all rows at once where they fit into memory."""
        if self._file is None:
            yield self._in_memory()
        else:
            yield from self.aligned()

    def frequent(self, most: int) -> npt.NDArray[np.uint64]:
        """Return the rows that were added more than so many times, as numbers of 8 bytes."""
        found = [np.zeros(0, np.uint64)]
        for rows in self.each():
            numbers, counts = np.unique(rows.view(np.uint64), return_counts=True)
            found.append(numbers[counts > most])
        return np.concatenate(found)

    def distinct(self) -> int:
        """Count the different rows, which are numbers of 8 bytes."""
        return sum(len(np.unique(rows.view(np.uint64))) for rows in self.each())

    def aligned(self) -> Iterator[ByteRows]:
        """Yield every bucket, in order, also where all rows fit into memory: for buckets that are compared."""
        for at in range(BUCKETS):
            yield self.bucket(at)

    def with_other(self, other: Buckets) -> Iterator[tuple[ByteRows, ByteRows]]:
        """Yield the rows that may be equal together: bucket by bucket, or all at once where they fit into memory."""
        if self._file is None and other._file is None:
            yield self._in_memory(), other._in_memory()
        else:
            yield from zip(self.aligned(), other.aligned(), strict=True)

    def drain(self) -> Iterator[ByteRows]:
        """Yield the rows, a bounded number at a time, then forget them."""
        yield from self.each()
        self.close()

    def close(self) -> None:
        """Forget all rows."""
        self._held, self._size, self._chunks, self.rows = [], 0, [], 0
        if self._file is not None:
            self._file.close()
            self._file = None

    def _in_memory(self) -> ByteRows:
        return np.concatenate([np.zeros((0, self.width), np.uint8), *self._held])

    def _spill(self) -> None:
        """Append the rows that are held to the file, sorted by their first byte."""
        if self._file is not None and not self._size:
            return
        rows = self._in_memory()
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

    def bucket(self, at: int) -> ByteRows:
        """Return the rows that begin with the byte `at`."""
        self._spill()
        with seam("reading digests from disk", InputError):
            return self._bucket(at)

    def _bucket(self, at: int) -> ByteRows:
        file = 0 if self._file is None else self._file.fileno()
        pieces = (os.pread(file, int(edges[at + 1] - edges[at]), int(edges[at])) for edges in self._chunks)
        return np.frombuffer(b"".join(pieces), np.uint8).reshape(-1, self.width)
