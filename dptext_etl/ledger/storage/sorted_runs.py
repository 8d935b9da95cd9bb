"""Map 128-bit ids to whole numbers with sorted runs, which stay fast as they grow.

With one row per random id every insert touches a random page, and a B-tree of 10^7 such rows slows down to a fraction
of its speed. Here a batch becomes one immutable sorted run (a log-structured merge tree). When `FANOUT` runs of one
size class exist, the same transaction merges them into the next class. An entry is rewritten log(n / batch) times, all
writes are long blobs, and a lookup bisects a few sorted arrays.

The leading bits of the id cut a run into parts. Ids are keyed hashes and so evenly spread: a part stays near
`PART_KEYS` ids, and a pass over a run needs the memory of one part.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dptext_etl.errors import LedgerError
from dptext_etl.ledger.storage.cache import PartCache
from dptext_etl.ledger.storage.keyed_ids import U64, Index, KeyedIds, joined
from dptext_etl.ledger.storage.store import Store

FANOUT = 8
PART_KEYS = 1 << 17
Values = npt.NDArray[np.int64]
"""Whole numbers per id, shape (values, ids)."""
Recall = dict[int, list[tuple[Index, Values]]]
"""Where runs, by id, hold some of the ids of one lookup, and their values. Runs never change, so it stays true."""


class Fold(StrEnum):
    """How two entries of one id become one."""

    SUM = "sum"
    LATEST = "latest"
    """The entry whose last value is the largest."""


class SortedRun(NamedTuple):
    """One immutable run; `scaled` where it was counted in larger steps."""

    id: int
    bits: int
    size: int
    scaled: bool = False

    @property
    def rank(self) -> int:
        """The size class; runs of equal rank are merged."""
        rank = 0
        while FANOUT ** (rank + 1) <= self.size:
            rank += 1
        return rank


class Part(NamedTuple):
    """Ids in ascending order with their values."""

    ids: KeyedIds
    values: Values


class SortedRuns:
    """The map of one space, such as the balances of a scope.

    Args:
        store: The store; every call happens inside one of its transactions or snapshots.
        cache: Parts that were read before. Runs never change, so they stay true.
        space: The name of the map.
        values: How many numbers an id has.
        fold: How two entries of one id become one.
        older: Another space whose runs belong to the map, and by what each of their numbers is multiplied: they were
            counted in larger steps. They are read so, and merging them rewrites them.
    """

    def __init__(  # noqa: PLR0917  (where it is, and what it holds)
        self,
        store: Store,
        cache: PartCache,
        space: str,
        values: int,
        fold: Fold,
        older: tuple[str, tuple[int, ...]] | None = None,
    ) -> None:
        self._store = store
        self._cache = cache
        self._space = space
        self._values = values
        self._fold = fold
        self._older, scale = older or (space, (1,) * values)
        self._scale = np.array(scale, np.int64)[:, None]

    def runs(self) -> list[SortedRun]:
        """Return all runs, largest first."""
        found = self._store.rows(
            "select id, bits, size, space from run where space in (?,?) order by size desc, id",
            (self._space, self._older),
        )
        return [SortedRun(row[0], row[1], row[2], row[3] != self._space) for row in found]

    def insert(self, part: Part) -> None:
        """Add entries: sorted ids, each once."""
        if not part.ids.size:
            return
        self._write([part], part.ids.size, _bits(part.ids.size))
        while (crowded := self._crowded()) is not None:
            size = sum(run.size for run in crowded)
            bits = _bits(size)
            self._write((self._merged(crowded, bits, at) for at in range(1 << bits)), size, bits)
            self.drop(crowded)

    def drop(self, runs: list[SortedRun] | None = None) -> None:
        """Remove runs; all of them if none are given."""
        for run in self.runs() if runs is None else runs:
            self._store.execute("delete from run_part where run=?", (run.id,))
            self._store.execute("delete from run where id=?", (run.id,))
            self._cache.forget(run.id)

    def find(self, wanted: KeyedIds, recall: Recall | None = None) -> tuple[npt.NDArray[np.bool_], Values]:
        """Look up sorted ids.

        Args:
            wanted: The ids.
            recall: What an earlier call for the same ids found, by run; this call adds to it.

        Returns:
            Which of them have an entry, shape (ids,), and their folded values, 0 where there is none, shape (values,
            ids).
        """
        found = np.zeros(wanted.size, np.bool_)
        values = np.zeros((self._values, wanted.size), np.int64)
        recall = {} if recall is None else recall
        for run in self.runs():
            if run.id not in recall:
                recall[run.id] = list(self._hits(run, wanted))
            for where, stored in recall[run.id]:
                self._fold_in(values, found, where, stored)
        return found, values

    def _hits(self, run: SortedRun, wanted: KeyedIds) -> Iterator[tuple[Index, Values]]:
        """Return which of the sorted ids a run holds, and their values."""
        for at, begin, end in _slices(wanted, run.bits):
            keys = self._keys(run, at)
            here = _matches(keys, wanted.hi[begin:end])
            if here is None:
                continue
            places, rows = here
            low, stored = self._rest(run, at, len(keys))
            rows, exact = _exact(keys, low, rows, wanted.take(slice(begin, end)).take(places))
            yield begin + places[exact], stored[:, rows[exact]]

    def _fold_in(self, values: Values, found: npt.NDArray[np.bool_], where: Index, new: Values) -> None:
        if self._fold is Fold.SUM:
            values[:, where] += new
        else:
            later = ~found[where] | (new[-1] > values[-1, where])
            values[:, where[later]] = new[:, later]
        found[where] = True

    def part(self, bits: int, at: int) -> Part:
        """Return all entries whose id begins with the bits `at`."""
        return self._merged(self.runs(), bits, at)

    def folded(self) -> Iterator[Part]:
        """Iterate over all entries in ascending order of id, one part at a time."""
        runs = self.runs()
        bits = _bits(sum(run.size for run in runs))
        for at in range(1 << bits):
            yield self._merged(runs, bits, at)

    def sound(self) -> bool:
        """Return whether every part holds ascending ids that begin with its bits; lookups rely on it."""
        for run in self.runs():
            held = 0
            for at in range(1 << run.bits):
                keys = self._keys(run, at, keep=False)
                low, _ = self._rest(run, at, len(keys), keep=False)
                held += len(keys)
                ascending = (keys[1:] > keys[:-1]) | ((keys[1:] == keys[:-1]) & (low[1:] > low[:-1]))
                if not ascending.all() or (run.bits and (keys >> np.uint64(64 - run.bits) != at).any()):
                    return False
            if held != run.size:
                return False
        return True

    def _crowded(self) -> list[SortedRun] | None:
        ranks: dict[int, list[SortedRun]] = {}
        for run in self.runs():
            ranks.setdefault(run.rank, []).append(run)
        return next((runs for _, runs in sorted(ranks.items()) if len(runs) >= FANOUT), None)

    def _merged(self, runs: list[SortedRun], bits: int, at: int) -> Part:
        """Fold what several runs hold of the ids whose first `bits` bits are `at`."""
        ids, values = [], []
        for run in runs:
            for piece in self._overlapping(run, bits, at):
                ids.append(piece.ids)
                values.append(piece.values)
        return fold(joined(ids), np.concatenate([np.zeros((self._values, 0), np.int64), *values], axis=1), self._fold)

    def _overlapping(self, run: SortedRun, bits: int, at: int) -> Iterator[Part]:
        first, count = (
            (at << (run.bits - bits), 1 << (run.bits - bits)) if run.bits > bits else (at >> (bits - run.bits), 1)
        )
        for place in range(first, first + count):
            keys = self._keys(run, place, keep=False)
            begin, end = _range(keys, bits, at)
            if begin == end:
                continue
            low, values = self._rest(run, place, len(keys), keep=False)
            yield Part(KeyedIds(keys[begin:end], low[begin:end]), values[:, begin:end])

    def _write(self, parts: Iterator[Part] | list[Part], size: int, bits: int) -> None:
        run = secrets.randbits(62)  # never the id of an earlier run, even of one that was rolled back
        written, new = 0, isinstance(parts, list)  # what was merged stays in the cache only if somebody looks it up
        self._store.execute("insert into run values(?,?,?,?)", (run, self._space, bits, size))
        for at, part in enumerate(_cut(parts[0], bits) if isinstance(parts, list) else parts):
            rest = np.concatenate([part.ids.lo.view(np.int64)[None], part.values])
            for piece, data in enumerate((part.ids.hi.view(np.int64), rest.reshape(-1))):
                blob = data.astype("<i8", copy=False).tobytes()
                self._store.execute("insert into run_part values(?,?,?,?)", (run, at, piece, blob))
                if new:
                    self._cache.put(run, at, piece, data)
            written += part.ids.size
        self._store.execute("update run set size=? where id=?", (written, run))

    def _keys(self, run: SortedRun, at: int, *, keep: bool = True) -> U64:
        return self._piece(run.id, at, 0, keep=keep).view(np.uint64)

    def _rest(self, run: SortedRun, at: int, size: int, *, keep: bool = True) -> tuple[U64, Values]:
        rest = self._piece(run.id, at, 1, keep=keep).reshape(1 + self._values, -1)
        if rest.shape[1] != size:
            raise LedgerError("an index of the ledger is damaged", "run `dptext ledger verify`")
        return rest[0].view(np.uint64), rest[1:] * self._scale if run.scaled else rest[1:]

    def _piece(self, run: int, at: int, piece: int, *, keep: bool) -> npt.NDArray[np.int64]:
        cached = self._cache.get(run, at, piece)
        if cached is not None:
            return cached
        found = self._store.row("select data from run_part where run=? and part=? and piece=?", (run, at, piece))
        if found is None or len(found[0]) % 8:
            raise LedgerError("an index of the ledger is damaged", "run `dptext ledger verify`")
        loaded = np.frombuffer(found[0], "<i8")
        if keep:
            self._cache.put(run, at, piece, loaded)
        return loaded


def fold(ids: KeyedIds, values: Values, how: Fold) -> Part:
    """Sort entries and fold those with the same id.

    Args:
        ids: Ids in any order, repeated or not.
        values: Their numbers, shape (values, ids).
        how: How two entries of one id become one.
    """
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


def _bits(size: int) -> int:
    return max(0, (size - 1).bit_length() - (PART_KEYS - 1).bit_length())


def _cut(part: Part, bits: int) -> Iterator[Part]:
    for at in range(1 << bits):
        begin, end = _range(part.ids.hi, bits, at)
        yield Part(part.ids.take(slice(begin, end)), part.values[:, begin:end])


def _range(keys: U64, bits: int, at: int) -> tuple[int, int]:
    """Return where the sorted keys that begin with the bits `at` begin and end."""
    if not bits:
        return 0, len(keys)
    begin = int(np.searchsorted(keys, np.uint64(at << (64 - bits))))
    if at + 1 == 1 << bits:
        return begin, len(keys)
    return begin, int(np.searchsorted(keys, np.uint64((at + 1) << (64 - bits))))


def _slices(wanted: KeyedIds, bits: int) -> Iterator[tuple[int, int, int]]:
    """Cut sorted ids by their first bits into (part, begin, end); empty parts are left out."""
    edges = np.arange(1, 1 << bits, dtype=np.uint64) << np.uint64(64 - bits) if bits else np.zeros(0, np.uint64)
    cuts = [0, *np.searchsorted(wanted.hi, edges).tolist(), wanted.size]
    for at in range(1 << bits):
        if cuts[at] < cuts[at + 1]:
            yield at, cuts[at], cuts[at + 1]


def _matches(keys: U64, wanted: U64) -> tuple[Index, Index] | None:
    """Return which wanted keys occur, and where each occurs first."""
    if not len(keys):
        return None
    rows = np.searchsorted(keys, wanted)
    places = np.flatnonzero(keys[np.minimum(rows, len(keys) - 1)] == wanted)
    return (places, rows[places]) if len(places) else None


def _exact(keys: U64, low: U64, rows: Index, wanted: KeyedIds) -> tuple[Index, npt.NDArray[np.bool_]]:
    """Compare the second half of ids too, past ids with the same first half (one in 10^6 ledgers has any)."""
    rows = rows.copy()
    exact = low[rows] == wanted.lo
    for miss in np.flatnonzero(~exact):
        row = int(rows[miss])
        while row < len(keys) and keys[row] == wanted.hi[miss]:
            if low[row] == wanted.lo[miss]:
                rows[miss], exact[miss] = row, True
                break
            row += 1
    return rows, exact
