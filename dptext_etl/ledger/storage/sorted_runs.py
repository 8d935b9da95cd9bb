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
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dptext_etl.errors import LedgerError
from dptext_etl.ledger.storage.cache import PartCache
from dptext_etl.ledger.storage.keyed_ids import U64, Index, KeyedIds, joined
from dptext_etl.ledger.storage.parts import Fold, Part, Sieve, Values, between, cut, exact, fold, slices
from dptext_etl.ledger.storage.store import Store
from dptext_etl.ledger.terms import Mask

FANOUT = 8
PART_KEYS = 1 << 17
Loaded = tuple[int, U64, U64, Values]
"""The number of a part, and what it holds: both halves of its ids, and values."""


class MissingPartError(LedgerError):
    """A part of a run is not there: it was merged since the runs were listed, or the index is damaged."""


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


class Recall:
    """What lookups of the same ids found before; it forgets all of it when it is used for other ids.

    Runs never change, so it stays true of those that still exist.

    Attributes:
        hits: Where runs, by id, hold some of the ids, and their values.
        folded: The runs that the answer below was made of.
        found: Which ids have an entry, read-only, shape (ids,); None before the first answer.
        values: Their folded values, read-only, shape (values, ids).
    """

    def __init__(self) -> None:
        self._asked: tuple[SortedRuns, KeyedIds] | None = None
        self._sieve: Sieve | None = None
        self._forget()

    def _forget(self) -> None:
        self.hits: dict[int, list[tuple[Index, Values]]] = {}
        self.folded: frozenset[int] = frozenset()
        self.found: Mask | None = None
        self.values: Values | None = None

    def ask(self, runs: SortedRuns, wanted: KeyedIds) -> Sieve:
        """Keep which ids are looked up in which map, and return what finds them in a run."""
        if self._sieve is None or not self.asked_for(wanted):
            self._forget()
            self._sieve = Sieve(wanted.hi)
        self._asked = (runs, wanted)
        return self._sieve

    def asked_for(self, wanted: KeyedIds) -> bool:
        """Return whether these ids were looked up."""
        return self._asked is not None and all(map(np.array_equal, wanted, self._asked[1]))

    def catch_up(self) -> None:
        """Look the ids up in runs that are new since; one that vanishes meanwhile is left for later."""
        if self._asked is not None:
            with suppress(MissingPartError):
                self._asked[0].look(self._asked[1], self)


class SortedRuns:
    """The map of one space, such as the balances of a scope."""

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

    @property
    def space(self) -> str:
        """The name of the map."""
        return self._space

    def insert(self, part: Part) -> None:
        """Add entries: sorted ids, each once. A writer that is alone merges runs, if there are many."""
        if part.ids.size:
            self.adopt(self.send(part))

    def send(self, part: Part) -> SortedRun:
        """Store entries as a run that the map does not have yet; `adopt` or `withdraw` it in the same transaction."""
        return self._write([part], _bits(part.ids.size))

    def adopt(self, run: SortedRun) -> None:
        """Take a run into the map. With other writers no one merges here: they wait for this one (`merging`)."""
        self._store.execute("insert into run values(?,?,?,?)", (run.id, self._space, run.bits, run.size))
        if not self._store.lane:
            while crowded := self.crowded():
                runs = crowded[0]
                self.replace(runs, self.merged(runs))

    def withdraw(self, run: SortedRun) -> None:
        """Remove a run that was sent or merged and is not wanted."""
        self._store.execute("delete from run_part where run=?", (run.id,))
        self._cache.forget(run.id)

    def crowded(self) -> list[list[SortedRun]]:
        """Return the runs of each size class that has so many that they should be merged, small ones first."""
        ranks: dict[int, list[SortedRun]] = {}
        for run in self.runs():
            ranks.setdefault(run.rank, []).append(run)
        return [runs for _, runs in sorted(ranks.items()) if len(runs) >= FANOUT]

    def merged(self, runs: list[SortedRun]) -> SortedRun:
        """Store what some runs hold as one run that the map does not have yet."""
        bits = _bits(sum(run.size for run in runs))
        near: dict[int, Loaded] = {}
        return self._write((self._folded(runs, bits, at, near) for at in range(1 << bits)), bits)

    def replace(self, runs: list[SortedRun], by: SortedRun) -> None:
        """Put a merged run into the place of those that it was made of."""
        self._store.execute("insert into run values(?,?,?,?)", (by.id, self._space, by.bits, by.size))
        self.drop(runs)

    def drop(self, runs: list[SortedRun] | None = None) -> None:
        """Remove runs; all of them if none are given."""
        for run in self.runs() if runs is None else runs:
            self._store.execute("delete from run where id=?", (run.id,))
            self.withdraw(run)

    def find(self, wanted: KeyedIds, recall: Recall | None = None) -> tuple[Mask, Values]:
        """Look up sorted ids."""
        recall = Recall() if recall is None else recall
        runs = self.look(wanted, recall)
        live = frozenset(run.id for run in runs)
        if recall.found is None or recall.values is None or not recall.folded <= live:
            found, values = np.zeros(wanted.size, np.bool_), np.zeros((self._values, wanted.size), np.int64)
            new = live
        elif not (new := live - recall.folded):
            return recall.found, recall.values
        else:
            found, values = recall.found.copy(), recall.values.copy()
        for run in new:
            for where, stored in recall.hits[run]:
                self._fold_in(values, found, where, stored)
        for array in (found, values):
            array.setflags(write=False)
        recall.folded, recall.found, recall.values = live, found, values
        return found, values

    def look(self, wanted: KeyedIds, recall: Recall) -> list[SortedRun]:
        """Look up sorted ids in the runs that a recall does not know, and return all runs."""
        sieve, runs = recall.ask(self, wanted), self.runs()
        for run in runs:
            if run.id not in recall.hits:
                recall.hits[run.id] = list(self._hits(run, wanted, sieve))
        return runs

    def _hits(self, run: SortedRun, wanted: KeyedIds, sieve: Sieve) -> Iterator[tuple[Index, Values]]:
        """Return which of the sorted ids a run holds, and their values."""
        for at, begin, end in slices(wanted, run.bits):
            keys = self._keys(run, at)
            here = sieve.matches(keys, begin, end)
            if here is None:
                continue
            places, rows = here
            low, stored = self._rest(run, at, len(keys))
            rows, same = exact(keys, low, rows, wanted.take(slice(begin, end)).take(places))
            yield begin + places[same], stored[:, rows[same]]

    def _fold_in(self, values: Values, found: Mask, where: Index, new: Values) -> None:
        if self._fold is Fold.SUM:
            values[:, where] += new
        else:
            later = ~found[where] | (new[-1] > values[-1, where])
            values[:, where[later]] = new[:, later]
        found[where] = True

    def part(self, bits: int, at: int) -> Part:
        """Return all entries whose id begins with the bits `at`."""
        return self._folded(self.runs(), bits, at, {})

    def folded(self) -> Iterator[Part]:
        """Iterate over all entries in ascending order of id, one part at a time."""
        runs = self.runs()
        bits = _bits(sum(run.size for run in runs))
        near: dict[int, Loaded] = {}
        for at in range(1 << bits):
            yield self._folded(runs, bits, at, near)

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

    def _folded(self, runs: list[SortedRun], bits: int, at: int, near: dict[int, Loaded]) -> Part:
        """Fold what several runs hold of the ids whose first `bits` bits are `at`; `near` keeps a part of each."""
        ids, values = [], []
        for run in runs:
            for piece in self._overlapping(run, bits, at, near):
                ids.append(piece.ids)
                values.append(piece.values)
        return fold(joined(ids), np.concatenate([np.zeros((self._values, 0), np.int64), *values], axis=1), self._fold)

    def _overlapping(self, run: SortedRun, bits: int, at: int, near: dict[int, Loaded]) -> Iterator[Part]:
        first, count = (
            (at << (run.bits - bits), 1 << (run.bits - bits)) if run.bits > bits else (at >> (bits - run.bits), 1)
        )
        for place in range(first, first + count):
            if run.id not in near or near[run.id][0] != place:
                keys = self._keys(run, place, keep=False)
                near[run.id] = (place, keys, *self._rest(run, place, len(keys), keep=False))
            _, keys, low, values = near[run.id]
            begin, end = between(keys, bits, at)
            if begin < end:
                yield Part(KeyedIds(keys[begin:end], low[begin:end]), values[:, begin:end])

    def _write(self, parts: Iterator[Part] | list[Part], bits: int) -> SortedRun:
        run = secrets.randbits(62)  # never the id of an earlier run, even of one that was rolled back
        written = 0
        for at, part in enumerate(cut(parts[0], bits) if isinstance(parts, list) else parts):
            rest = np.concatenate([part.ids.lo.view(np.int64)[None], part.values])
            for piece, data in enumerate((part.ids.hi.view(np.int64), rest.reshape(-1))):
                blob = data.astype("<i8", copy=False).tobytes()
                self._store.execute("insert into run_part values(?,?,?,?)", (run, at, piece, blob))
                self._cache.put(run, at, piece, data)
            written += part.ids.size
        return SortedRun(run, bits, written)

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
            raise MissingPartError("an index of the ledger is damaged", "run `dptext ledger verify`")
        loaded = np.frombuffer(found[0], "<i8")
        if keep:
            self._cache.put(run, at, piece, loaded)
        return loaded


def _bits(size: int) -> int:
    return max(0, (size - 1).bit_length() - (PART_KEYS - 1).bit_length())
