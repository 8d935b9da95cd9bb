"""Share one walk over a ledger's indexes among the processes of a run, each of which reserves some of its shards.

The walk goes by range of hashed ids: a process that has all records and units of a range looks them up in the runs that
were there when the walk was planned (`range_answers`), and answers per shard. Then a process that reserves a shard
looks up only what was written since by others (`ShardWalk`): another shard of the same run writes other records, and
charges other units, which the walk has checked. Before a process commits a run of an index, it notes the shard that
wrote it, or of which runs it was merged, where the others find it (`Notes`). A run without a note is looked up.

Like a walk in one process, it may be of no use, but never misleads: a batch of other records than those that the walk
saw of the shard is looked up in full, and so is every batch once others have merged runs that the walk accounts for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from dptext_etl.errors import LedgerError
from dptext_etl.ledger.batch import Ahead, BatchIds, hash_both
from dptext_etl.ledger.database import Database
from dptext_etl.ledger.id_key import IdKey
from dptext_etl.ledger.storage.hashed_ids import Bytes, HashedIds, Index, Values, hashed_ids
from dptext_etl.ledger.storage.memo import Known, LookupMemo, Prefetched
from dptext_etl.ledger.storage.part_cache import LastParts, MissingPartError, Written
from dptext_etl.ledger.storage.sorted_runs import SortedRuns
from dptext_etl.ledger.types import I64, Mask, ReleaseRef, Scope
from dptext_etl.ledger.walk import Indexes

RECORDS, UNITS = "records", "units"
"""What is looked up: cells of 36 bytes (record, unit, shard), and of 20 bytes (unit, shard)."""
_SEEN, _USED, _HELD = 0, 1, 2
"""What an answer begins with: a record of the shard with its unit, what a unit has used, what the nth release holds."""
_ID, _SHARD, _HOLDING = 16, 4, 24
_BEFORE = -1
"""The shard of runs that were there before."""


class SharedIdsError(LedgerError):
    """Two records of a run have one id, or two shards have rows of one unit."""


class WalkTerms(NamedTuple):
    """What all processes of a run need to know of its walk.

    Attributes:
        scope: Where the spends add up.
        refs: The releases that are looked up.
        runs: The runs that the walk accounts for: of every release, and then of the balances where there is a cap.
        entries: How many entries they hold.
        components: Amounts of the cap per unit, 0 without a cap.
    """

    scope: Scope
    refs: tuple[ReleaseRef, ...]
    runs: tuple[frozenset[int], ...]
    entries: int
    components: int

    @property
    def every_run(self) -> frozenset[int]:
        return frozenset().union(*self.runs)

    @property
    def width(self) -> int:
        """Bytes of an answer."""
        return 1 + _ID + max(_HOLDING, 8 * self.components)


def walk_terms(db: Database, scope: Scope, refs: Iterable[ReleaseRef], rows: int, at_once: int) -> WalkTerms | None:
    """Plan a walk, or return None where look-ups batch by batch take less: a process that reserves holds no index."""
    with db.store.snapshot():
        indexes = Indexes(db, scope, tuple(refs))
        if not indexes.is_worth_a_walk(rows, at_once, held=0):
            return None
        runs = [one.runs() for one in indexes.maps(LastParts())]
        entries = sum(run.size for some in runs for run in some)
        known = tuple(frozenset(run.id for run in some) for some in runs)
        return WalkTerms(scope, tuple(indexes.refs), known, entries, len(indexes.pinned.components))


def walked_cells(  # noqa: PLR0917
    key: IdKey, terms: WalkTerms, ids: pa.Array, subjects: pa.Array | None, canary: Mask, shards: I64, *, own: bool
) -> Iterator[tuple[str, Bytes]]:
    """Yield what is to be looked up of some rows of the run: cells of records, and of units where there is a cap."""
    records, units = hash_both(key, terms.scope.unit, ids, subjects, canary, own=own)
    marks = shards.astype("<i4")[:, None].view(np.uint8)
    yield RECORDS, np.hstack([records.as_bytes(), units.as_bytes(), marks])
    if terms.components:
        yield UNITS, np.hstack([units.as_bytes(), marks])[~canary]


def range_answers(db: Database, terms: WalkTerms, what: str, cells: Bytes) -> tuple[Bytes, I64]:
    """Look up all records or units of a run in a range of ids; return answers, and the shard that gets each.

    Raises:
        SharedIdsError: Two records have one id, or two shards share a unit.
        MissingPartError: Runs were merged since the walk was planned.
    """
    ids = hashed_ids(cells)
    order = ids.order()
    ids, cells = ids.take(order), cells[order]
    shards, starts = np.ascontiguousarray(cells[:, -_SHARD:]).view("<i4")[:, 0].astype(np.int64), ids.starts()
    if len(starts) < ids.size:
        if what == RECORDS or (shards != np.repeat(shards[starts], np.diff([*starts, ids.size]))).any():
            raise SharedIdsError("two records of a run have one id, or two shards rows of one unit")
        ids, cells, shards = ids.take(starts), cells[starts], shards[starts]
    answers, targets = ([_answers(terms, _SEEN, cells[:, :-_SHARD])], [shards]) if what == RECORDS else ([], [])
    with db.store.snapshot():
        maps = _maps(db, terms)
        wanted = enumerate(maps[: len(terms.refs)], _HELD) if what == RECORDS else [(_USED, maps[-1])]
        for kind, one in wanted:
            if not terms.runs[kind - _HELD if what == RECORDS else -1] <= {run.id for run in one.runs()}:
                raise MissingPartError("runs of the index were merged since a walk was planned")
            found, values = one.find(ids, LookupMemo(only=terms.every_run))
            stored = np.ascontiguousarray(values[:, found].T).astype("<i8").view(np.uint8)
            answers.append(_answers(terms, kind, np.hstack([cells[found, :_ID], stored])))
            targets.append(shards[found])
    return np.concatenate(answers), np.concatenate(targets)


def _maps(db: Database, terms: WalkTerms) -> list[SortedRuns]:
    """Return the maps that the walk knows, in their order."""
    maps = Indexes(db, terms.scope, terms.refs).maps(db.cache)  # releases that are new come after those that it knows
    return maps[: len(terms.refs)] + (maps[-1:] if terms.components else [])


def _answers(terms: WalkTerms, kind: int, payload: Bytes) -> Bytes:
    made = np.zeros((len(payload), terms.width), np.uint8)
    made[:, 0], made[:, 1 : 1 + payload.shape[1]] = kind, payload
    return made


class Notes(Protocol):
    """Small files that all processes of a run share, one for each run of an index that they write."""

    def write(self, run: int, content: bytes) -> None: ...
    def read(self, run: int) -> bytes | None: ...


class Leaves:
    """Of which runs, each written by one shard, the runs of the indexes consist, as far as it is known."""

    def __init__(self, terms: WalkTerms, notes: Notes) -> None:
        self._before = terms.every_run
        self._notes = notes
        self._known: dict[int, I64 | None] = {}

    def of(self, run: int) -> I64 | None:
        """Return runs and the shards that wrote them, shape (leaves, 2); None of a run that others wrote."""
        if run not in self._known:
            self._known[run] = np.array([[run, _BEFORE]]) if run in self._before else self._read(run)
        return self._known[run]

    def _read(self, run: int) -> I64 | None:
        noted = self._notes.read(run)
        return None if noted is None or len(noted) % 16 else np.frombuffer(noted, "<i8").reshape(-1, 2)

    def note(self, written: Written, shard: int | None) -> None:
        """Note a run before its transaction ends; a new one only where a shard is given."""
        leaves = [self.of(run) for run in written.merged]
        if not written.merged and shard is not None:
            leaves = [np.array([[written.run, shard]])]
        known = [one for one in leaves if one is not None]
        if known and len(known) == len(leaves):
            self._notes.write(written.run, np.concatenate(known).astype("<i8").tobytes())


class VouchedRuns(Known):
    """The runs of an index that hold nothing of a shard but what its process accounts for."""

    def __init__(self, runs: set[int], leaves: Leaves, shard: int) -> None:
        super().__init__(set())
        self._accounted = runs
        self._leaves = leaves
        self._shard = shard

    def covers(self, live: set[int]) -> bool:
        inside = {run: self._inside(run) for run in live}
        self.runs = {run for run, held in inside.items() if held is not None}
        return self._accounted <= {leaf for held in inside.values() if held is not None for leaf in held}

    def _inside(self, run: int) -> set[int] | None:
        """Return the accounted runs that a run holds; None if it may hold anything else of the shard."""
        leaves = self._leaves.of(run)
        if leaves is None:
            return None
        held = self._accounted.intersection(leaves[:, 0].tolist())
        own = leaves[leaves[:, 1] == self._shard, 0].tolist()
        return held if held.issuperset(own) else None

    def account(self, run: int) -> None:
        self._accounted.add(run)


class ShardWalk:
    """What a shared walk found of one shard, for the process that reserves it (see `walk.Walk`)."""

    def __init__(self, db: Database, terms: WalkTerms, answers: Bytes, shard: int, notes: Notes) -> None:
        self._db = db
        self.shard = shard
        self._leaves = Leaves(terms, notes)
        kinds = answers[:, 0]
        seen = answers[kinds == _SEEN, 1:]
        order = hashed_ids(seen).order()
        self._records, self._units = hashed_ids(seen[order]), hashed_ids(seen[order, _ID:])
        self._numbers, units = _numbered(self._units)
        self._used = np.zeros((units.size, terms.components), np.int64)
        found, used = _placed(units, answers[kinds == _USED, 1:], terms.components)
        self._used[found] = used.T[found]
        known = [VouchedRuns(set(runs), self._leaves, shard) for runs in terms.runs]
        self._maps = {one.space: vouched for one, vouched in zip(_maps(db, terms), known, strict=True)}
        self._balances = known[-1] if terms.components else None
        self._held: Mapping[ReleaseRef, tuple[VouchedRuns, Mask, Values]] = {
            ref: (known[at], *_placed(self._records, answers[kinds == _HELD + at, 1:], _HOLDING // 8))
            for at, ref in enumerate(terms.refs)
        }
        self._taken = np.zeros(self._records.size, np.bool_)
        self._at: Index | None = None  # where the rows of the batch that is reserved stand
        db.cache.written = _Noting(self._note)

    def next(self, batch: BatchIds) -> Ahead | None:
        """Return what is prefetched of a batch; None if the walk did not see its records, or it was reserved before."""
        self._at = None
        if not self._records.size:
            return None
        at = np.minimum(np.searchsorted(self._records.hi, batch.record_ids.hi), self._records.size - 1)
        same = self._records.take(at).equal(batch.record_ids) & self._units.take(at).equal(batch.unit_ids)
        if not same.all() or self._taken[at].any():
            return None
        self._at, order = at, at[batch.record_order]
        records = {
            ref: Prefetched(known, mask[order], held[:, order]) for ref, (known, mask, held) in self._held.items()
        }
        numbers = self._numbers[at]
        units = None if self._balances is None else numbers
        return Ahead(records, self._balances, units, lambda rows: self._used[numbers[rows]].T)

    def settle(self, ahead: Ahead | None) -> None:
        """Take up what a batch wrote, now that its transaction has ended."""
        if ahead is not None and self._at is not None:
            ahead.settle(self._used)
            self._taken[self._at] = True
            for one in self._db.cache.written:
                if not one.merged and one.space in self._maps:
                    self._maps[one.space].account(one.run)
        self._at = None

    def note(self) -> None:
        """Do nothing: what is written is noted at once."""

    def close(self) -> None:
        self._db.cache.written = []

    def _note(self, written: Written) -> None:
        if written.space in self._maps:
            self._leaves.note(written, None if self._at is None else self.shard)


class _Noting(list[Written]):
    """Notes what is written before its transaction ends."""

    def __init__(self, note: Callable[[Written], None]) -> None:
        super().__init__()
        self._note = note

    def append(self, one: Written) -> None:
        self._note(one)
        super().append(one)


def _numbered(ids: HashedIds) -> tuple[I64, HashedIds]:
    """Number ids in ascending order; return the number of each, and all distinct ones."""
    order = ids.order()
    ordered = ids.take(order)
    starts, numbers = ordered.starts(), np.zeros(ids.size, np.int64)
    each = np.zeros(ids.size, np.int64)
    each[starts[1:]] = 1
    numbers[order] = np.cumsum(each)
    return numbers, ordered.take(starts)


def _placed(ids: HashedIds, answers: Bytes, values: int) -> tuple[Mask, Values]:
    """Return which of some sorted ids have an answer, and its values, shape (values, ids)."""
    found, stored, answered = np.zeros(ids.size, np.bool_), np.zeros((values, ids.size), np.int64), hashed_ids(answers)
    if answered.size and ids.size:
        at = np.minimum(np.searchsorted(ids.hi, answered.hi), ids.size - 1)
        if not ids.take(at).equal(answered).all():  # two ids share their first half
            pairs = {pair: place for place, pair in enumerate(zip(*(half.tolist() for half in ids), strict=True))}
            at = np.array([pairs[pair] for pair in zip(*(half.tolist() for half in answered), strict=True)])
        found[at] = True
        stored[:, at] = np.ascontiguousarray(answers[:, _ID : _ID + 8 * values]).view("<i8").T
    return found, stored
