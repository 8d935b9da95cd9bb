"""Map 128-bit ids to whole numbers with sorted runs, which stay fast as they grow.

With one row per random id every insert touches a random page, and a B-tree of 10^7 such rows slows down to a fraction
of its speed. Here a batch becomes one immutable sorted run (a log-structured merge tree). When `FANOUT` runs of one
size class exist, they are merged into the next class; of large runs, `LARGE_FANOUT`. An entry is rewritten
log(n / batch) times, all writes are long blobs, and a lookup bisects a few sorted arrays.

The leading bits of the id cut a run into parts. Ids are keyed hashes and so evenly spread: a part stays near
`PART_KEYS` ids, and a pass over a run needs the memory of one part.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dptext_etl.errors import LedgerError
from dptext_etl.ledger.storage.hashed_ids import (
    SATURATED,
    U64,
    Fold,
    HashedIds,
    Index,
    Part,
    Sieve,
    Values,
    concatenated,
    exact_matches,
    fold,
    plus,
    prefix_cuts,
    prefix_range,
    split,
)
from dptext_etl.ledger.storage.memo import LookupMemo
from dptext_etl.ledger.storage.part_cache import MissingPartError, PartCache
from dptext_etl.ledger.storage.store import Store
from dptext_etl.ledger.types import I64, Mask

FANOUT = 16
"""More runs take longer to look through, fewer are rewritten more often; 16 runs of a batch each are merged at once."""
LARGE, LARGE_FANOUT = 1 << 16, 64
"""Runs of so many entries fill about a part each, so more of them take no longer to look through. A merge holds a part
of each."""
PART_KEYS = 1 << 17
Loaded = tuple[int, U64, U64, Values]
"""The number of a part, and what it holds: both halves of its ids, and values."""


class SortedRun(NamedTuple):
    """One immutable run; `scaled` where it was counted in larger steps."""

    id: int
    bits: int
    size: int
    scaled: bool = False

    @property
    def size_class(self) -> int:
        exponent = 0
        while FANOUT ** (exponent + 1) <= self.size:
            exponent += 1
        return exponent


class SortedRuns:
    def __init__(  # noqa: PLR0917
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
        self.space = space
        self._values = values
        self._fold = fold
        self._older, scale = older or (space, (1,) * values)
        self._scale = np.array(scale, np.int64)[:, None]

    def runs(self) -> list[SortedRun]:
        """Return all runs, largest first."""
        rows = self._store.rows(
            "select id, bits, size, space from run where space in (?,?) order by size desc, id",
            (self.space, self._older),
        )
        return [SortedRun(row[0], row[1], row[2], row[3] != self.space) for row in rows]

    def insert(self, part: Part) -> None:
        """Add entries: sorted ids, each once. A writer that is alone merges runs, if there are many."""
        if part.ids.size:
            self.attach(self.stage(part))

    def stage(self, part: Part) -> SortedRun:
        """Store entries as a run outside the map; `attach` or `discard` it in the same transaction."""
        bits = _bits(part.ids.size)
        return self._write(split(part, bits), bits)

    def attach(self, run: SortedRun) -> None:
        """Take a run into the map. Next to other writers nothing is merged here: they would wait for it."""
        self._store.execute("insert into run values(?,?,?,?)", (run.id, self.space, run.bits, run.size))
        if not self._store.chain:
            while mergeable := self.mergeable():
                self.replace(mergeable[0], self.merged(mergeable[0]))

    def discard(self, run: SortedRun) -> None:
        self._store.execute("delete from run_part where run=?", (run.id,))
        self._cache.drop(run.id)

    def mergeable(self) -> list[list[SortedRun]]:
        """Return the runs of each size class that has enough of them to be merged, small ones first."""
        classes: dict[int, list[SortedRun]] = {}
        for run in self.runs():
            classes.setdefault(run.size_class, []).append(run)
        least = {size: FANOUT if FANOUT**size < LARGE else LARGE_FANOUT for size in classes}
        return [runs for size, runs in sorted(classes.items()) if len(runs) >= least[size]]

    def merged(self, runs: list[SortedRun]) -> SortedRun:
        """Store what some runs hold as one run outside the map."""
        bits = _bits(sum(run.size for run in runs))
        loaded: dict[int, Loaded] = {}
        return self._write((self._folded(runs, bits, at, loaded) for at in range(1 << bits)), bits)

    def replace(self, runs: list[SortedRun], by: SortedRun) -> None:
        self._store.execute("insert into run values(?,?,?,?)", (by.id, self.space, by.bits, by.size))
        for run in runs:
            self._store.execute("delete from run where id=?", (run.id,))
            self.discard(run)

    def merge_concurrently(self, lock: str) -> None:
        """Merge runs, each size class in a transaction of its own, while others write; call it outside of one.

        It locks the map for the exchange alone. Runs never change and any of them may be folded before the others, so
        it changes no answer. Another writer that merges the same size class already goes on with it.
        """
        progress = True
        while progress:
            progress = False
            for runs in self.mergeable():
                with self._store.transaction(sum(run.size for run in runs), shared=True):
                    if self._store.try_lock(f"merge/{self.space}/{runs[0].size_class}"):
                        progress |= self._merge_unless_gone(runs, lock)

    def _merge_unless_gone(self, runs: list[SortedRun], lock: str) -> bool:
        """Merge some runs if no other writer merged them meanwhile, and return whether it did."""
        if not set(runs) <= set(self.runs()):
            return False
        merged = self.merged(runs)
        self._store.lock(lock)
        if set(runs) <= set(self.runs()):
            self.replace(runs, merged)
            return True
        self.discard(merged)
        return False

    def find(self, wanted: HashedIds, memo: LookupMemo | None = None) -> tuple[Mask, Values]:
        """Look up sorted ids: which have an entry, and their folded values, shape (values, ids)."""
        memo = LookupMemo() if memo is None else memo
        live = frozenset(run.id for run in self.search(wanted, memo))
        if memo.answer is None or not memo.folded <= live:
            found, values = np.zeros(wanted.size, np.bool_), np.zeros((self._values, wanted.size), np.int64)
            new = live
        elif not (new := live - memo.folded):
            return memo.answer
        else:
            found, values = memo.answer[0].copy(), memo.answer[1].copy()
        for run in new:
            for where, stored in memo.hits[run]:
                if self._fold is Fold.SUM:
                    values[:, where] = plus(values[:, where], stored)
                else:
                    later = ~found[where] | (stored[-1] > values[-1, where])
                    values[:, where[later]] = stored[:, later]
                found[where] = True
        for array in (found, values):
            array.setflags(write=False)
        memo.folded, memo.answer = live, (found, values)
        return memo.answer

    def search(self, wanted: HashedIds, memo: LookupMemo) -> list[SortedRun]:
        """Look up sorted ids in the runs that a memo does not know, and return all runs."""
        sieve, runs = memo.ask(self, wanted), self.runs()
        for run in runs:
            if run.id not in memo.hits:
                memo.hits[run.id] = list(self._hits(run, wanted, sieve))
        return runs

    def _hits(self, run: SortedRun, wanted: HashedIds, sieve: Sieve) -> Iterator[tuple[Index, Values]]:
        """Return which of the sorted ids a run holds, and their values."""
        cuts = prefix_cuts(wanted.hi, run.bits)
        for at, (begin, end) in enumerate(pairwise(cuts)):
            if begin == end:
                continue
            keys = self._keys(run, at)
            first = int(np.searchsorted(keys, wanted.hi[begin]))
            last = int(np.searchsorted(keys, wanted.hi[end - 1], side="right"))
            here = sieve.matches(keys[first:last], begin, end)
            if here is None:
                continue
            places, rows = here[0], here[1] + first
            low, stored = self._rest(run, at, len(keys))
            rows, same = exact_matches(keys, low, rows, wanted.take(slice(begin, end)).take(places))
            yield begin + places[same], stored[:, rows[same]]

    def part(self, bits: int, prefix: int) -> Part:
        return self._folded(self.runs(), bits, prefix, {})

    def folded(self) -> Iterator[Part]:
        """Iterate over all entries in ascending order of id, one part at a time."""
        runs = self.runs()
        bits = _bits(sum(run.size for run in runs))
        loaded: dict[int, Loaded] = {}
        for at in range(1 << bits):
            yield self._folded(runs, bits, at, loaded)

    def sound(self) -> bool:
        """Return whether every part holds ascending ids that begin with its bits; lookups rely on it."""
        for run in self.runs():
            size = 0
            for at in range(1 << run.bits):
                keys = self._keys(run, at, keep=False)
                low, _ = self._rest(run, at, len(keys), keep=False)
                size += len(keys)
                ascending = (keys[1:] > keys[:-1]) | ((keys[1:] == keys[:-1]) & (low[1:] > low[:-1]))
                if not ascending.all() or (run.bits and (keys >> np.uint64(64 - run.bits) != at).any()):
                    return False
            if size != run.size:
                return False
        return True

    def _folded(self, runs: list[SortedRun], bits: int, prefix: int, loaded: dict[int, Loaded]) -> Part:
        """Fold what several runs hold of the ids with a prefix; `loaded` keeps the last part of each run."""
        parts = [part for run in runs for part in self._overlapping(run, bits, prefix, loaded)]
        values = [np.zeros((self._values, 0), np.int64), *(part.values for part in parts)]
        ids = concatenated(part.ids for part in parts)
        return fold(ids, np.concatenate(values, axis=1), self._fold, sorted_lists=True)

    def _overlapping(self, run: SortedRun, bits: int, prefix: int, loaded: dict[int, Loaded]) -> Iterator[Part]:
        more = max(0, run.bits - bits)
        first = prefix << more if more else prefix >> (bits - run.bits)
        for at in range(first, first + (1 << more)):
            if run.id not in loaded or loaded[run.id][0] != at:
                keys = self._keys(run, at, keep=False)
                loaded[run.id] = (at, keys, *self._rest(run, at, len(keys), keep=False))
            _, keys, low, values = loaded[run.id]
            begin, end = prefix_range(keys, bits, prefix)
            if begin < end:
                yield Part(HashedIds(keys[begin:end], low[begin:end]), values[:, begin:end])

    def _write(self, parts: Iterable[Part], bits: int) -> SortedRun:
        run = secrets.randbits(62)  # never the id of an earlier run, even of one that was rolled back
        size = 0
        for at, part in enumerate(parts):
            rest = np.concatenate([part.ids.lo.view(np.int64)[None], part.values])
            for piece, data in enumerate((part.ids.hi.view(np.int64), rest.reshape(-1))):
                blob = np.ascontiguousarray(data, "<i8").data
                self._store.execute("insert into run_part values(?,?,?,?)", (run, at, piece, blob))
                self._cache.put(run, at, piece, data)
            size += part.ids.size
        return SortedRun(run, bits, size)

    def _keys(self, run: SortedRun, at: int, *, keep: bool = True) -> U64:
        return self._piece(run.id, at, 0, keep=keep).view(np.uint64)

    def _rest(self, run: SortedRun, at: int, size: int, *, keep: bool = True) -> tuple[U64, Values]:
        rest = self._piece(run.id, at, 1, keep=keep).reshape(1 + self._values, -1)
        if rest.shape[1] != size:
            raise LedgerError("an index of the ledger is damaged", "run `dptext ledger verify`")
        if run.scaled:
            most = SATURATED // self._scale
            return rest[0].view(np.uint64), np.clip(rest[1:], -most, most) * self._scale
        return rest[0].view(np.uint64), rest[1:]

    def _piece(self, run: int, at: int, piece: int, *, keep: bool) -> I64:
        cached = self._cache.get(run, at, piece)
        if cached is not None:
            return cached
        row = self._store.row("select data from run_part where run=? and part=? and piece=?", (run, at, piece))
        if row is None or len(row[0]) % 8:
            raise MissingPartError("an index of the ledger is damaged", "run `dptext ledger verify`")
        loaded = np.frombuffer(row[0], "<i8")
        if keep:
            self._cache.put(run, at, piece, loaded)
        return loaded


def _bits(size: int) -> int:
    return max(0, (size - 1).bit_length() - (PART_KEYS - 1).bit_length())
