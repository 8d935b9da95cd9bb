"""Compare rows of a fixed number of bytes in bounded memory, and find long strings that may be raw texts.

What does not fit into memory goes to one file without a name, in chunks sorted by the first byte: nothing is left of a
process that is killed.

The rows begin with a digest, so they spread evenly over buckets by their first byte, and equal rows meet in one
bucket (`Buckets`).

Counts of rows with different digests add up. So parts of the rows can be counted anywhere, as long as all rows of one
digest are counted together: bucket by bucket on a disk, or group by group on the executors of a cluster.

A cell is a row of 56 bytes that the ledger knows: the keyed id of its record, the digest of its text, and the least and
the largest number of positions that such a text may have. Many cells are located together (`located`), which makes rows
of 48 bytes: a place in the ledger instead of the id. Those of one batch of the ledger are compared together
(`compared`), so the ledger is read once, however many rows there are.

Long strings of columns that are published unchanged are compared with the raw texts of their rows (`long_strings`).
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping
from operator import add
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.arrays import starts
from dptext_etl.data_types import parts_of
from dptext_etl.errors import InputError, seam
from dptext_etl.policy import Policy

if TYPE_CHECKING:
    from dptext_etl.ledger.reader import Lookup


BUCKETS = 256
HELD_BYTES = 1 << 25
"""Bytes of rows that are held in memory before they go to the file."""

ByteRows = npt.NDArray[np.uint8]
"""Rows, shape (rows, bytes per row)."""


class Buckets:
    """Takes rows, and gives them back bucket by bucket."""

    def __init__(self, width: int, folder: Path | None) -> None:
        self.width, self._folder = width, folder
        self.rows = 0
        self._pending: list[ByteRows] = []
        self._size = 0
        self._file: BinaryIO | None = None
        self._chunks: list[npt.NDArray[np.int64]] = []

    def add(self, rows: ByteRows) -> None:
        if rows.shape[1] != self.width:
            raise InputError(f"rows to compare have {rows.shape[1]} bytes, {self.width} are expected")
        self._pending.append(rows)
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
        """Return the rows that were added more than a given number of times, as numbers of 8 bytes."""
        parts = [np.zeros(0, np.uint64)]
        for rows in self.each():
            numbers = np.sort(rows.view(np.uint64).reshape(-1))
            more = numbers[most:][numbers[most:] == numbers[: max(0, len(numbers) - most)]]
            parts.append(more[starts(more)])
        return np.concatenate(parts)

    def distinct(self) -> int:
        """Count the different rows, which are numbers of 8 bytes."""
        return sum(len(starts(np.sort(rows.view(np.uint64).reshape(-1)))) for rows in self.each())

    def aligned(self) -> Iterator[ByteRows]:
        """Yield every bucket, in order, also where all rows fit into memory: for buckets that are compared."""
        self._spill()
        for at in range(BUCKETS):
            with seam("reading digests from disk", InputError):
                file = 0 if self._file is None else self._file.fileno()
                pieces = (os.pread(file, int(edges[at + 1] - edges[at]), int(edges[at])) for edges in self._chunks)
                rows = np.frombuffer(b"".join(pieces), np.uint8).reshape(-1, self.width)
            yield rows

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
        self._pending, self._size, self._chunks, self.rows = [], 0, [], 0
        if self._file is not None:
            self._file.close()
            self._file = None

    def _in_memory(self) -> ByteRows:
        return np.concatenate([np.zeros((0, self.width), np.uint8), *self._pending])

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
        self._pending, self._size = [], 0


BYTES = 16
ID_BYTES = 16
DIGEST_BYTES = 32
PLACE_BYTES = 8
BOUNDS_BYTES = 8
ANY = 2**32 - 1
"""The largest number of positions: no bound."""
TOGETHER = 1 << 20
"""Cells that are located together, about: each time, all batches of the release are gone through."""
FEW = 4
"""Cells that lie in so few batches of the ledger are compared at once."""

Bounds = npt.NDArray[np.uint32]


class TextDigests:
    """The digests of texts in the batches that gates look at: two at a time, and each text is hashed once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._recent: deque[tuple[pl.DataFrame, dict[str, pa.Array]]] = deque(maxlen=2)

    def of(self, batch: pl.DataFrame, name: str) -> pa.Array:
        """Return the digest of every text of a column, fixed-size binary (32); gates must pass the very same batch."""
        with self._lock:
            digests = next((digests for frame, digests in self._recent if frame is batch), None)
            if digests is None:
                digests = {}
                self._recent.append((batch, digests))
            if name not in digests:
                digests[name] = pa.array(_kernel.digests(batch[name]))
            return digests[name]


def short_digests(texts: pl.Series) -> ByteRows:
    """Return the digest of every text, shape (rows, 16); a null has its own digest."""
    return shortened(_kernel.digests(texts))


def shortened(digests: _kernel.Column | pa.Array) -> ByteRows:
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
    shared: int = 0  # rows whose digest another row has, too

    def plus(self, other: Counted) -> Counted:
        return Counted(*map(add, self, other))


def counted(rows: ByteRows) -> Counted:
    """Count rows; all rows of a digest must be among them."""
    if not len(rows):
        return Counted()
    front = np.ascontiguousarray(rows[:, :8]).view("<u8").reshape(-1)
    ordered = np.sort(front)  # which is a fraction of the cost of the order
    if not (ordered[1:] == ordered[:-1]).any():
        return Counted(len(rows), len(rows), len(rows))
    order = np.argsort(front)
    equal = front[order[1:]] == front[order[:-1]]
    near = np.zeros(len(rows), np.bool_)  # rows whose digest begins like another one; no other row can be repeated
    near[:-1] = equal
    near[1:] |= equal
    alike = np.ascontiguousarray(rows[order[near]])
    alone = len(rows) - len(alike)
    times = np.diff(starts(np.sort(as_values(alike[:, :BYTES]))), append=len(alike))
    distinct = len(starts(np.sort(as_values(alike))))
    return Counted(len(rows), alone + len(times), alone + distinct, int(times[times > 1].sum()))


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
        return Mismatches(*map(add, self, other))


def located(lookup: Lookup, cells: ByteRows) -> ByteRows:
    """Find the places of cells in the ledger."""
    places = lookup.places(cells[:, :ID_BYTES])
    return np.hstack([places.astype("<i8")[:, None].view(np.uint8), cells[:, ID_BYTES:]])


def compared(lookup: Lookup, cells: ByteRows) -> Mismatches:
    """Compare located cells with the commits at their places."""
    committed, digests, positions = lookup.digests(places_of(cells))
    different = committed & (digests != cells[:, PLACE_BYTES:-BOUNDS_BYTES]).any(axis=1)
    least, most = np.ascontiguousarray(cells[:, -BOUNDS_BYTES:]).view("<u4").T
    misshapen = committed & ((positions < least) | (positions > most))
    return Mismatches(int(np.sum(~committed)), int(np.sum(different)), int(np.sum(misshapen)))


def places_of(cells: ByteRows) -> npt.NDArray[np.int64]:
    return np.ascontiguousarray(cells[:, :PLACE_BYTES]).view("<i8")[:, 0].astype(np.int64)


def batches_of(cells: ByteRows) -> npt.NDArray[np.int64]:
    """Return the batches of the ledger that hold located cells, shape (cells,); -1 for none."""
    return places_of(cells) >> 32


class LedgerComparison:
    """Takes the cells of one column, and counts those that the ledger does not vouch for."""

    def __init__(self, lookup: Lookup, scratch: Path | None = None) -> None:
        self.lookup = lookup
        self._batches = np.zeros(0, np.int64)
        self._cells = Buckets(ID_BYTES + DIGEST_BYTES + BOUNDS_BYTES, scratch)
        self._placed = Buckets(1 + PLACE_BYTES + DIGEST_BYTES + BOUNDS_BYTES, scratch)
        self._counts = Mismatches()

    def add(self, ids: pa.Array, digests: pa.Array, canary: npt.NDArray[np.bool_], bounds: Bounds) -> None:
        """Take cells. With the plan of a run they are located now, else many together."""
        bounds = np.ascontiguousarray(bounds, "<u4")
        cells = np.hstack([self.lookup.hashed(ids, canary), _digest_rows(digests), bounds.view(np.uint8)])
        if self.lookup.planned:
            self._take(located(self.lookup, cells))
        else:
            self._cells.add(cells)

    def add_counted(self, counts: Mismatches) -> None:
        self._counts = self._counts.plus(counts)

    def counts(self) -> Mismatches:
        """Compare the cells that are held, and return the counts of all cells."""
        pieces, size = list[ByteRows](), 0
        for cells in self._cells.drain():
            pieces.append(cells)
            size += len(cells)
            if size >= TOGETHER:
                self._take(located(self.lookup, np.concatenate(pieces)))
                pieces, size = [], 0
        if size:
            self._take(located(self.lookup, np.concatenate(pieces)))
        for placed in self._placed.drain():
            if len(placed):
                self.add_counted(compared(self.lookup, placed[:, 1:]))
        return self._counts

    def _take(self, placed: ByteRows) -> None:
        """Compare located cells now if they lie in few batches, else together with others of their batches."""
        batches = batches_of(placed)
        if len(starts(np.sort(batches))) <= FEW:
            self.add_counted(compared(self.lookup, placed))
            return
        if not len(self._batches):
            self._batches = self.lookup.batches()
        rank = np.searchsorted(self._batches, batches) * BUCKETS // len(self._batches)
        self._placed.add(np.hstack([np.clip(rank, 0, BUCKETS - 1).astype(np.uint8)[:, None], placed]))


LEAST_CHARACTERS = 20
"""Shorter strings are not compared: texts and values of kept columns share words."""
LEAST_ROWS, LEAST_SHARE = 2, 0.01
"""A column fails if this many rows, and this share of the rows with long strings, hold their text."""
ROW, CELL = "__dptext_row", "__dptext_cell"


def compared_columns(policy: Policy, schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns with strings or bytes that are published unchanged, except those that the policy accepts."""
    names = [policy.id] if policy.ids == "keep" and not policy.one_table else []
    names += [item.column for item in policy.kept if not item.rule]
    return tuple(
        name
        for name in names
        if name not in policy.keep_copies
        and name in schema
        and any(part in (pl.String, pl.Binary) for part in parts_of(schema[name]))
    )


def long_strings(column: pl.Series) -> list[pl.DataFrame]:
    """Return the long strings of a column with the numbers of their rows, from lists and structs, too."""
    return _strings(column.alias(CELL).to_frame().with_row_index(ROW))


def _strings(cells: pl.DataFrame) -> list[pl.DataFrame]:
    dtype = cells.schema[CELL]
    if dtype == pl.Binary:  # bytes that are not UTF-8 hold no text; `cast` would fail by them
        return _strings(cells.with_columns(pl.Series(CELL, [_decoded(cell) for cell in cells[CELL]], pl.String)))
    if dtype == pl.String:
        return [cells.filter(pl.col(CELL).str.len_chars() >= LEAST_CHARACTERS)]
    if isinstance(dtype, pl.Map):
        return _strings(cells.with_columns(pl.col(CELL).map.entries()))
    if isinstance(dtype, pl.List | pl.Array):
        return _strings(cells.explode(CELL))
    if isinstance(dtype, pl.Struct):
        fields = (pl.col(CELL).struct.field(field.name).alias(CELL) for field in dtype.fields)
        return [inner for field in fields for inner in _strings(cells.select(ROW, field))]
    return []


def _decoded(cell: bytes | None) -> str | None:
    try:
        return None if cell is None else cell.decode()
    except UnicodeDecodeError:
        return None


def too_many(long: int, copied: int) -> bool:
    """Return whether too many rows hold their text, of those that have a long string."""
    return copied >= LEAST_ROWS and copied >= LEAST_SHARE * long
