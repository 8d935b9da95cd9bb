"""Find what a ledger holds of all records of a run, in one walk over its indexes, before the run reserves them.

Without a walk each batch that is reserved goes through the whole index of its release, and through all balances of its
scope. A walk sorts the keyed hashes of all records by range, on the disk, and goes through the indexes once. Then a
batch looks up only what was written since by others: this run writes other records, because each of them is there once,
which the walk has checked. Balances of units that have several records are kept up to date, batch by batch.

A walk may be of no use, but never misleads. A batch whose records are not, hash by hash, the next ones that the walk
has seen, is looked up in full. So is every batch when another writer has merged runs that the walk accounts for.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from dptext_etl.buckets import BUCKETS, Buckets, ByteRows
from dptext_etl.errors import InputError, seam
from dptext_etl.ledger.batch import Ahead, BatchIds
from dptext_etl.ledger.database import Database
from dptext_etl.ledger.identities import per_subject
from dptext_etl.ledger.storage.hashed_ids import HashedIds, Index, Values, hashed_ids
from dptext_etl.ledger.storage.memo import Known, Prefetched
from dptext_etl.ledger.storage.part_cache import CACHE_BYTES, LastParts, PartCache
from dptext_etl.ledger.storage.sorted_runs import SortedRuns
from dptext_etl.ledger.types import I64, NEW, Mask, ReleaseRef, Scope

WORTH = 1000
"""A walk takes about as long per record as it takes to read so many bytes of the indexes from the store."""
AGAIN = 100
"""A second walk is worth it when batches went through so many entries per record that the first one did not see."""
_KEY = 8
"""Bytes of an entry that are read if it is not the one that is looked for."""
_NUMBER = np.dtype("<i8")
_CELL = 24
"""Bytes of a record or unit: the first 16 bytes of its keyed hash, and the number of its row."""
_HELD = 3
"""Buckets of values that are held while batches read them: of rows, and of canary rows."""


class RowValues:
    """Whole numbers of rows, on the disk: written in any order, read in ascending order of row."""

    def __init__(self, rows: int, folder: Path | None) -> None:
        self._rows = max(1, rows)
        self._folder = folder
        self._buckets: Buckets | None = None
        self._held: dict[int, I64] = {}

    def add(self, rows: I64, values: Values) -> None:
        """Take values of some rows, shape (values, rows)."""
        table = np.concatenate([rows[None], values]).T.astype(_NUMBER)
        bucket = (rows * BUCKETS // self._rows).astype(np.uint8)
        if self._buckets is None:
            self._buckets = Buckets(1 + table.shape[1] * _NUMBER.itemsize, self._folder)
        self._buckets.add(np.hstack([bucket[:, None], np.ascontiguousarray(table).view(np.uint8)]))

    def read(self, begin: int, end: int) -> tuple[Index, Values]:
        """Return which of the rows from `begin` to `end` have values, counted from `begin`, and the values."""
        if self._buckets is None or begin == end:
            return np.zeros(0, np.intp), np.zeros((0, 0), np.int64)
        parts = []
        for at in range(begin * BUCKETS // self._rows, (end - 1) * BUCKETS // self._rows + 1):
            table = self._bucket(self._buckets, at)
            parts.append(table[(table[:, 0] >= begin) & (table[:, 0] < end)])
        table = np.concatenate(parts)
        return (table[:, 0] - begin).astype(np.intp), np.ascontiguousarray(table[:, 1:].T)

    def _bucket(self, buckets: Buckets, at: int) -> I64:
        if at not in self._held:
            while len(self._held) >= _HELD:
                self._held.pop(next(iter(self._held)))
            cells = np.ascontiguousarray(buckets.bucket(at)[:, 1:])
            self._held[at] = cells.view(_NUMBER).reshape(-1, (buckets.width - 1) // _NUMBER.itemsize)
        return self._held[at]

    def keep(self, runs: SortedRuns, ids: HashedIds, rows: I64) -> None:
        """Look up sorted ids, and take what is found of them."""
        found, values = runs.find(ids)
        if found.any():
            self.add(rows[found], values[:, found])

    def of(self, size: int, values: int, places: Sequence[Rows]) -> tuple[Mask, Values]:
        """Return which rows of a batch have values, shape (size,), and their values, shape (values, size)."""
        mask, found = np.zeros(size, np.bool_), np.zeros((values, size), np.int64)
        for rows in places:
            at, stored = self.read(rows.begin, rows.end)
            if len(at):
                mask[rows.at[at]], found[:, rows.at[at]] = True, stored
        return mask, found

    def close(self) -> None:
        if self._buckets is not None:
            self._buckets.close()


class Numbers:
    """Rows of whole numbers in a file without a name, appended and read by place."""

    def __init__(self, width: int, folder: Path | None) -> None:
        self._width = width
        self.rows = 0
        self._file: BinaryIO = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115  (outlives the call)

    def append(self, table: npt.NDArray[np.uint64] | I64) -> None:
        """Append rows, shape (rows, width)."""
        with seam("keeping hashes on disk", InputError, "is there room? Run the same policy again"):
            view = np.ascontiguousarray(table).view(np.uint8).reshape(-1).data
            while view:
                view = view[os.write(self._file.fileno(), view) :]
        self.rows += len(table)

    def read(self, begin: int, end: int) -> npt.NDArray[np.uint64]:
        size = 8 * self._width
        data = os.pread(self._file.fileno(), (end - begin) * size, begin * size)
        return np.frombuffer(data, np.uint64).reshape(-1, self._width)

    def mapped(self) -> I64:
        """Return all rows, as they lie on the disk, to read and to change."""
        if not self.rows:
            return np.zeros((0, self._width), np.int64)
        return np.memmap(self._file, np.int64, "r+", shape=(self.rows, self._width))

    def close(self) -> None:
        self._file.close()


class Indexes:
    """The indexes of releases and the balances of a scope, through which a run's reservations look."""

    def __init__(self, db: Database, scope: Scope, refs: Sequence[ReleaseRef]) -> None:
        self._db = db
        self.pinned = db.scopes.find(scope)
        others = db.releases.of_dataset(scope.dataset) if per_subject(db, scope.dataset) else ()
        self.refs = [ref for ref in dict.fromkeys((*refs, *others)) if ref.id != NEW]

    def maps(self, cache: PartCache) -> list[SortedRuns]:
        """Return the index of every release and then, where the scope has a cap, the balances."""
        balances = [] if self.pinned.measure is None else [self._db.scopes.balances(self.pinned, cache)]
        return [*(self._db.records.index(ref.id, ref.nonce, cache) for ref in self.refs), *balances]

    def is_worth_a_walk(self, rows: int, at_once: int, held: int = CACHE_BYTES) -> bool:
        """Return whether a walk for so many records takes less than to look batches up, of `at_once` records each.

        Each of these reads what `held` bytes of memory cannot hold of the indexes, which grow meanwhile.
        """
        maps = self.maps(LastParts())
        entries = sum(run.size for runs in maps for run in runs.runs()) + len(maps) * rows // 2
        return rows > at_once and max(0, _KEY * entries - held) > WORTH * at_once


class Walk:
    """What the ledger held of the records of a run, row by row. One walk serves one run, in one process."""

    def __init__(self, db: Database, scope: Scope, refs: Sequence[ReleaseRef], folder: Path | None = None) -> None:
        self._db = db
        self._indexes = Indexes(db, scope, refs)
        self._pinned, self._refs, self._maps = self._indexes.pinned, self._indexes.refs, self._indexes.maps
        self._by_record = scope.unit == "record"
        self._folder = folder
        self._opened = ExitStack()
        self._seen = Numbers(2, folder)
        self._records, self._units = Buckets(_CELL, folder), Buckets(_CELL, folder)
        self._own = self._next_own = self._next_canary = 0
        self._found = Found({}, None, np.zeros((0, 0), np.int64), {})
        self._read = 0  # entries that batches had to go through since the indexes were

    def add(self, records: HashedIds, units: HashedIds, canary: Mask) -> None:
        """Take the next records of the run, with their units. Canary rows come last."""
        numbers, charged = np.arange(self._seen.rows, self._seen.rows + records.size), ~canary
        self._own += int(charged.sum())
        self._seen.append(np.stack([records.lo, units.lo], axis=1).astype("<u8"))
        self._records.add(_cells(records, numbers))
        if not self._by_record:
            self._units.add(_cells(units.take(charged), numbers[charged]))

    def is_worth(self, rows: int, at_once: int) -> bool:
        return self._indexes.is_worth_a_walk(rows, at_once)

    def go(self) -> bool:
        """Go through the indexes, once more if need be; return False if an id of the run occurs twice."""
        self._found.close()
        self._read = 0
        with self._db.store.snapshot():
            *indexes, last = self._maps(LastParts())
            balances = None if self._pinned.measure is None else last
            if balances is None:
                indexes.append(last)
            known = {runs.space: Known({run.id for run in runs.runs()}) for runs in self._maps(LastParts())}
            holdings = {ref: RowValues(self._seen.rows, self._folder) for ref in self._refs}
            units = None if balances is None else RowValues(self._seen.rows, self._folder)
            self._found = Found(holdings, units, np.zeros((0, 0), np.int64), known)
            for ids, numbers in _ranges(self._records):
                if len(ids.starts()) < ids.size:
                    return False
                for runs, values in zip(indexes, holdings.values(), strict=True):
                    values.keep(runs, ids, numbers)
                if balances is not None and units is not None and self._by_record:
                    units.keep(balances, ids, numbers)
            if balances is not None and units is not None and not self._by_record:
                self._found = self._found._replace(used=self._number_units(balances, units))
        return True

    def _number_units(self, balances: SortedRuns, numbered: RowValues) -> I64:
        """Give each unit a number, and return what each has used."""
        used = Numbers(len(self._pinned.components), self._folder)
        self._opened.callback(used.close)
        for ids, numbers in _ranges(self._units):
            starts, each = ids.starts(), np.zeros(ids.size, np.int64)
            each[starts[1:]] = 1
            numbered.add(numbers, (used.rows + np.cumsum(each))[None])
            used.append(balances.find(ids.take(starts))[1].T)
        return used.mapped()

    def next(self, batch: BatchIds) -> Ahead | None:
        """Return what is prefetched of the next batch; None if it holds other records than those that were added."""
        own, canaries = int((~batch.canary).sum()), int(batch.canary.sum())
        places = (
            Rows(np.flatnonzero(~batch.canary), self._next_own),
            Rows(np.flatnonzero(batch.canary), self._own + self._next_canary),
        )
        self._next_own, self._next_canary = self._next_own + own, self._next_canary + canaries
        for rows in places:
            seen = self._seen.read(rows.begin, rows.end)
            ids = np.stack([batch.record_ids.lo[rows.at], batch.unit_ids.lo[rows.at]], axis=1)
            if not np.array_equal(seen, ids):
                return None
        self._catch_up()
        return self._ahead(batch, places)

    def _ahead(self, batch: BatchIds, places: Sequence[Rows]) -> Ahead:
        found, order = self._found, batch.record_order
        records = {}
        for ref, values in found.holdings.items():
            mask, stored = values.of(batch.size, 3, places)
            known = found.known[self._db.records.index(ref.id, ref.nonce).space]
            records[ref] = Prefetched(known, mask[order], stored[:, order])
        if found.units is None:
            return Ahead(records, None, None, lambda rows: np.zeros((0, len(rows)), np.int64))
        balances = found.known[self._db.scopes.balances(self._pinned).space]
        if self._by_record:
            _, used = found.units.of(batch.size, len(self._pinned.components), places)
            return Ahead(records, balances, None, lambda rows: used[:, rows])
        _, numbers = found.units.of(batch.size, 1, places)
        return Ahead(records, balances, numbers[0], lambda rows: found.used[numbers[0, rows]].T)

    def _catch_up(self) -> None:
        """Note what this process wrote since its last batch; go through the indexes again where that is worth it."""
        self.note()
        unknown = total = 0
        for runs in self._maps(LastParts()):
            live, known = runs.runs(), self._found.known[runs.space]
            covered = known.covers({run.id for run in live})
            total += sum(run.size for run in live)
            unknown += sum(run.size for run in live if not (covered and run.id in known.runs))
        self._read += unknown
        if self._read > total + AGAIN * self._seen.rows:
            self.go()

    def settle(self, ahead: Ahead | None) -> None:
        """Note what a batch wrote, now that its transaction has ended."""
        self.note(own=ahead is not None)
        if ahead is not None:
            ahead.settle(self._found.used)

    def note(self, *, own: bool = False) -> None:
        """Note the runs that this process wrote; new ones count only if `settle` knows their contents (`own`)."""
        written = self._db.cache.written
        for one in written:
            if one.space in self._found.known:
                self._found.known[one.space].note(one, own=own)
        written.clear()

    def close(self) -> None:
        self._found.close()
        for part in (self._seen, self._records, self._units):
            part.close()
        self._opened.close()


class Rows(NamedTuple):
    """Rows of a batch, and the number of the first of them in the run; the others follow it."""

    at: Index
    begin: int

    @property
    def end(self) -> int:
        return self.begin + len(self.at)


class Found(NamedTuple):
    """What the indexes held.

    Attributes:
        holdings: Of each release, by row.
        units: By row what its unit has used, where rows are units; else the number of its unit. None without a cap.
        used: What each unit has used, by number, shape (units, components).
        known: Of each map, what is accounted for.
    """

    holdings: Mapping[ReleaseRef, RowValues]
    units: RowValues | None
    used: I64
    known: Mapping[str, Known]

    def close(self) -> None:
        for values in (*self.holdings.values(), self.units):
            if values is not None:
                values.close()


def _cells(ids: HashedIds, numbers: I64) -> ByteRows:
    return np.hstack([ids.as_bytes(), numbers.astype(_NUMBER)[:, None].view(np.uint8)])


def _ranges(cells: Buckets) -> Iterator[tuple[HashedIds, I64]]:
    """Iterate over ids in ascending order, with the numbers of their rows, range by range."""
    for some in cells.aligned():
        if len(some):
            ids, numbers = hashed_ids(some), np.ascontiguousarray(some[:, 16:]).view(_NUMBER)[:, 0]
            order = ids.order()
            yield ids.take(order), numbers[order]
