"""Look up records and units in the ledger: where they were reserved, in which state, at what amounts.

The ledger stores no index. A plan goes through the batches of a release or a scope in the order in which they were
sealed, and finds in them the ids that are asked for. So it needs one pass over the history of its releases and scope,
and its memory follows from its own ids. A run looks up all its rows at once, and then reads only newer events.

A plan never answers from old data: it stores the last event that it read, and before each answer, it reads all events
that any writer committed since. Writers do this once more when they hold their locks. A plan never assumes that
the writes of its process are committed, because a transaction may be rolled back, or its answer may be lost.

Specification: docs/spec/ledger-plan.md#plan.
"""

from __future__ import annotations

import secrets
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from dptext_etl.arrays import starts
from dptext_etl.errors import LedgerError
from dptext_etl.guarantee import PURE
from dptext_etl.ledger.caps import LARGEST, Scopes
from dptext_etl.ledger.contents import Batch, Contents, Key, Pinned
from dptext_etl.ledger.releases import Releases
from dptext_etl.ledger.storage.hashed_ids import (
    RECENT,
    WIDTH,
    Bytes,
    HashedIds,
    IdKey,
    Index,
    Values,
    WantedIds,
    add_at,
    concatenated,
    hashed_ids,
)
from dptext_etl.ledger.storage.journal import Head, Journal
from dptext_etl.ledger.storage.store import MissingLedgerError, Store
from dptext_etl.ledger.types import I64, NEW, U8, Event, Mask, ReleaseRef, State

BLOCK = 1 << 17  # ids in a block, at most, unless one batch has more: small batches are gone through together
KEPT = 1 << 24
"""Ids that are kept in memory, in all columns of a ledger: 256 MB. Later batches are read again for each plan."""
REFUNDED = (PURE,)  # the components of a cap of which committed rows may give a part back
MOVES: dict[Event, tuple[tuple[State, ...], State]] = {
    Event.COMMIT: ((State.RESERVED, State.EXPIRED), State.COMMITTED),
    Event.EXPIRE: ((State.RESERVED,), State.EXPIRED),
    Event.ABORT: ((State.RESERVED,), State.ABORTED),
    Event.DIVERGED: ((State.COMMITTED,), State.COMMITTED),
}
"""The states that an event moves rows from, and the state that it moves them to."""
_HASHES = ("record", "unit", "idem_key", "digest")


class Places(NamedTuple):
    """Rows of reserved batches, shape (rows,)."""

    batch: I64
    row: I64

    @classmethod
    def unpack(cls, packed: I64) -> Places:
        return cls(packed >> 32, packed & 0xFFFFFFFF)

    def packed(self) -> I64:
        return (self.batch << np.int64(32)) | self.row

    def take(self, where: Index | Mask) -> Places:
        return Places(self.batch[where], self.row[where])

    def groups(self) -> Iterator[tuple[int, Index]]:
        """Iterate over the batches, each with the indices of its rows in this list."""
        if not len(self.batch):
            return
        order, batches = np.arange(len(self.batch)), self.batch
        if (batches[1:] < batches[:-1]).any():
            order = np.argsort(batches, kind="stable")
            batches = batches[order]
        firsts = starts(batches)
        yield from zip(batches[firsts].tolist(), np.split(order, firsts[1:]), strict=True)


class Holdings(NamedTuple):
    """The state of some records in a release, shape (records,)."""

    present: Mask  # whether the release holds the record; an aborted reservation does not count
    idem_keys: HashedIds  # the first 16 bytes of the identity of the text that it holds
    places: Places  # where the record was reserved
    state: U8  # a `State`, where the record is present

    @property
    def committed(self) -> Mask:
        committed: Mask = self.present & (self.state == State.COMMITTED)
        return committed


class Records:
    def __init__(self, contents: Contents, journal: Journal) -> None:
        self._contents, self._journal = contents, journal

    def count(self, ref: ReleaseRef) -> int:
        """Count the records that a release holds, without canaries and without aborted records."""
        contents, key = self._contents.latest(), (ref.id, ref.nonce)
        tally, given_back = contents.count(key), 0
        for seq in contents.of_release.get(key, ()) if tally["aborted"] else ():
            states = self.states(seq)
            given_back += int((states[self._journal.read(seq, ["canary"])["canary"] == 0] == State.ABORTED).sum())
        return tally["records"] - tally["canaries"] - given_back

    def states(self, batch: int) -> U8:
        """Return the states of a batch by the events that moved its rows, shape (rows,). Catch up before."""
        found = self._contents.batches[batch]
        states = np.zeros(found.rows, np.uint8)
        for event, kind, whole in found.moves:
            rows = slice(None) if whole else self.rows(event, batch)
            before, after = MOVES[kind]
            if not np.isin(states[rows], before).all():
                _refuse(f"event {event} ({kind}) moves rows of batch {batch} that it cannot move")
            states[rows] = after
        return states

    def rows(self, event: int, batch: int) -> Index:
        """Return the rows of a batch that an event names, each once."""
        columns = self._journal.read(event, ["batch", "row"])
        rows: Index = columns["row"][columns["batch"] == batch]
        if rows.size and not 0 <= rows.min() <= rows.max() < self._contents.batches[batch].rows:
            _refuse(f"event {event} names rows that batch {batch} does not have")
        if len(np.unique(rows)) < len(rows):
            _refuse(f"event {event} names a row of batch {batch} twice")
        return rows

    def states_of(self, places: Places) -> U8:
        self._contents.latest()
        states = np.zeros(len(places.batch), np.uint8)
        for batch, group in places.groups():
            states[group] = self.states(batch)[places.row[group]]
        return states

    def reserved(self, places: Places, name: str) -> npt.NDArray[Any]:
        """Return a column of reserved rows, shape (rows,), or (rows, 32) for hashes."""
        values = _zeros(len(places.batch), name)
        for batch, group in places.groups():
            values[group] = self._journal.read(batch, [name])[name][places.row[group]]
        return values

    def digests_and_positions(self, places: Places) -> tuple[Bytes, I64]:
        def commits(batch: Batch) -> list[int]:
            return [move.seq for move in batch.moves if move.kind == Event.COMMIT]

        _, digests, positions = self._recorded(places, commits, "digest", "positions")
        return digests, positions

    def settled(self, places: Places) -> tuple[Mask, I64]:
        """Return which rows were settled ex post, and the pure epsilon that they used, in millionths."""
        mask, used = self._recorded(places, lambda batch: batch.settled, PURE)
        return mask, used

    def refunds(self, event: int) -> Iterator[tuple[int, Index, I64]]:
        """Iterate over batches with the rows that an event settled, and the pure epsilon that they used."""
        columns = self._journal.read(event, ["batch", "row", PURE])
        for batch, group in Places(columns["batch"], columns["row"]).groups():
            rows, spent = columns["row"][group], columns[PURE][group]
            every = np.concatenate([self.rows(seq, batch) for seq in self._contents.batches[batch].settled])
            committed, worst = self.states(batch)[rows] == State.COMMITTED, self._journal.read(batch, [PURE])[PURE]
            once = len(np.unique(every)) == len(every)
            if not once or not committed.all() or (spent < 0).any() or (spent > worst[rows]).any():
                _refuse(f"event {event} (SETTLE) settles rows of batch {batch} that it cannot settle")
            yield batch, rows, spent

    def postprocessed(self, places: Places, chain: str) -> tuple[Mask, Bytes]:
        """Return which rows a chain of post-processing rewrote, and digests of the results, shape (rows, 32)."""
        mask, digests = self._recorded(
            places, lambda batch: [seq for seq, name in batch.posts if name == chain], "digest"
        )
        return mask, digests

    def _recorded(
        self, places: Places, events_of: Callable[[Batch], list[int]], *names: str
    ) -> tuple[npt.NDArray[Any], ...]:
        """Return which rows some events of their batches hold, and what columns of theirs hold of them."""
        batches = self._contents.latest().batches
        events = {event for seq in np.unique(places.batch).tolist() for event in events_of(batches[seq])}
        outputs = [np.zeros(len(places.batch), np.bool_), *(_zeros(len(places.batch), name) for name in names)]
        keys, order = places.packed(), np.arange(len(places.batch))
        if (keys[1:] < keys[:-1]).any():
            order = np.argsort(keys)
            keys = keys[order]
        for seq in sorted(events):
            columns = self._journal.read(seq, ["batch", "row", *names])
            event_rows = Places(columns["batch"], columns["row"]).packed()
            at = np.searchsorted(keys, event_rows)
            hit = (at < len(keys)) & (keys[np.minimum(at, len(keys) - 1)] == event_rows)
            rows = order[at[hit]]
            outputs[0][rows] = True
            for values, name in zip(outputs[1:], names, strict=True):
                values[rows] = columns[name][hit]
        return tuple(outputs)


def _zeros(rows: int, name: str) -> npt.NDArray[Any]:
    return np.zeros((rows, WIDTH), np.uint8) if name in _HASHES else np.zeros(rows, np.int64)


def _refuse(problem: str) -> NoReturn:
    raise LedgerError(problem, "nothing is charged or published; `dptext ledger verify` lists what differs")


class Block(NamedTuple):
    """The ids of consecutive batches, shape (ids,), and the numbers of the batches and the rows where they begin."""

    ids: HashedIds
    batches: I64
    begins: I64

    def after(self, batch: int) -> Block:
        """Return the part that belongs to batches with larger numbers."""
        first = int(np.searchsorted(self.batches, batch, side="right"))
        if not first:
            return self
        row = int(self.begins[first]) if first < len(self.batches) else self.ids.size
        return Block(self.ids.take(slice(row, None)), self.batches[first:], self.begins[first:] - row)

    def places(self, rows: Index) -> I64:
        """Return the packed places of some rows, which are in ascending order; so are these."""
        at = np.searchsorted(self.begins, rows, side="right") - 1
        return Places(self.batches[at], rows - self.begins[at]).packed()


class Keys:
    """The ids in a column of the batches of a release or a scope: read once, as far as they fit into memory.

    Threads share it, and read into it one at a time: within a transaction or a snapshot, which hold the store's lock.
    """

    def __init__(self) -> None:
        self._head = Head(0, b"")  # the last event that was seen when ids were read
        self._blocks: dict[tuple[str, Key | int], list[Block]] = {}
        self._size = 0

    def catch_up(self, db: Database, head: Head) -> None:
        """Drop the ids that were read if the ledger was since restored to an earlier state."""
        if not db.journal.has_head(self._head):
            self._blocks.clear()
            self._size = 0
        self._head = head

    def blocks(self, db: Database, column: str, of: Key | int, after: int) -> Iterator[Block]:
        """Iterate over the ids of the batches of a release or a scope with larger numbers than `after`, in order."""
        kept = self._blocks.setdefault((column, of), [])
        for block in tuple(kept):
            if (rest := block.after(after)).ids.size:
                yield rest
        read = int(kept[-1].batches[-1]) if kept else 0
        batches = db.contents.of_scope.get(of, []) if isinstance(of, int) else db.contents.of_release.get(of, [])
        pending, size = list[Block](), 0
        for seq in batches[bisect_right(batches, max(read, after) if self._size > KEPT else read) :]:
            ids = hashed_ids(db.journal.read(seq, [column])[column])
            block = Block(ids, np.array([seq]), np.array([0]))
            self._size += ids.size
            if self._size <= KEPT:  # past that, no later block is kept either: kept blocks must have no gaps
                if kept and kept[-1].ids.size + ids.size <= BLOCK:
                    kept[-1] = _joined([kept[-1], block])
                else:
                    kept.append(block)
            if seq > after:
                pending.append(block)
                size += ids.size
            if size >= BLOCK:
                yield _joined(pending)
                pending, size = [], 0
        if pending:
            yield _joined(pending)


@dataclass
class _RecordStates:
    """The state of a plan's records in one release, shape (records,)."""

    places: I64  # packed; 0 for a record that the release has never seen
    idem_keys: HashedIds
    batch: int = 0  # the last one that was read


@dataclass
class _Used:
    """The amounts of a cap that the units of a plan have used, shape (components, units)."""

    pinned: tuple[int, tuple[str, ...]]  # the number of the scope, and the components that it adds up
    amounts: Values
    batch: int = 0  # the last one that was read
    settled: int = 0  # the event up to which settlements were read


class LedgerPlan:
    """The state of some records of a dataset, and the amounts of a cap that some units have used.

    States are not part of it: they change without a new place, so every answer reads them.
    """

    def __init__(self, dataset: str, records: WantedIds, units: WantedIds) -> None:
        self.dataset, self.records, self.units = dataset, records, units
        self._head = Head(0, b"")  # the last event that answers consider
        self._states: dict[tuple[int, int], _RecordStates] = {}
        self._used: _Used | None = None

    def catch_up(self, db: Database) -> None:
        """Include all events committed so far in answers. Call it again once the locks are held."""
        contents = db.contents.latest()
        head = contents.head
        db.keys.catch_up(db, head)
        undone = 0 < self._head.seq < contents.last_abort
        if undone or not db.journal.has_head(self._head):  # it was rolled back, or the ledger was restored
            self._states.clear()
            self._used = None
        self._head = head

    def read_ahead(self, db: Database, refs: Sequence[ReleaseRef], at: Index, pinned: Pinned) -> None:
        """Read ahead for a reservation, so that little is left to read under its locks."""
        self.catch_up(db)
        in_release = [self.places(db, ref, at) > 0 for ref in refs]
        if np.all(in_release):
            return
        unseen = ~np.any(in_release, axis=0)
        for ref in self._others(db, refs):
            if not unseen.any():
                break
            unseen &= self.places(db, ref, at) == 0
        self.used(db, pinned)

    def places(self, db: Database, ref: ReleaseRef, at: Index) -> I64:
        """Return the packed places of records in a release, shape (places,); 0 for those that it has never seen."""
        return self._of_release(db, ref).places[at]

    def holdings(self, db: Database, ref: ReleaseRef, at: Index) -> Holdings:
        """Return the state in a release of the records at some places of this plan, shape (places,)."""
        of_release = self._of_release(db, ref)
        places = Places.unpack(of_release.places[at])
        mask, state = of_release.places[at] > 0, np.zeros(len(at), np.uint8)
        state[mask] = db.records.states_of(places.take(mask))
        mask &= state != State.ABORTED
        return Holdings(mask, of_release.idem_keys.take(at), places, state)

    def moved(self, db: Database, refs: Sequence[ReleaseRef], at: Index, units: HashedIds) -> Mask:
        """Return which records were charged to another unit before, in these or other releases of the dataset.

        The newest release that holds a record decides, these releases first; `accept_units` unbinds all before it.
        """
        since = db.contents.latest().accepted.get(self.dataset, 0)
        unseen, moved = np.ones(len(at), np.bool_), np.zeros(len(at), np.bool_)
        for ref in (*refs, *self._others(db, refs)):
            rows = np.flatnonzero(unseen)
            if not len(rows):
                break
            holdings = self.holdings(db, ref, at[rows])
            binding = holdings.present & (holdings.places.batch > since)
            charged = hashed_ids(db.records.reserved(holdings.places.take(binding), "unit"))
            moved[rows[binding]] = ~charged.equal(units.take(rows[binding]))
            unseen[rows[binding]] = False
        return moved

    def used(self, db: Database, pinned: Pinned) -> Values:
        """Return the amounts of a cap that the units of this plan have used, shape (components, units)."""
        number, names = pinned.id, pinned.components
        used, self._used = self._used, None  # a sum that breaks off must not be continued
        if used is None or used.pinned != (number, names):
            used = _Used((number, names), np.zeros((len(names), len(self.units)), np.int64))
        if names and used.settled < self._head.seq:
            # Reserved amounts, less refunds; canary rows have no unit
            for block in db.keys.blocks(db, "unit", number, used.batch):
                rows, at = self.units.find(block.ids)
                places = Places.unpack(block.places(rows))
                amounts = np.stack([np.minimum(db.records.reserved(places, name), LARGEST) for name in names])
                add_at(used.amounts, at, np.where(db.records.states_of(places) == State.ABORTED, 0, amounts))
                used.batch = int(block.batches[-1])
            settlements = db.contents.settlements if names == REFUNDED else []
            for seq in settlements[bisect_right(settlements, used.settled) : bisect_right(settlements, self._head.seq)]:
                for batch, refunded, spent in db.records.refunds(seq):
                    if db.contents.batches[batch].scope == number:
                        charged = db.journal.read(batch, ["unit", PURE])
                        rows, at = self.units.find(hashed_ids(charged["unit"][refunded]))
                        add_at(used.amounts, at, (spent - charged[PURE][refunded])[None, rows])
            used.settled = self._head.seq
        self._used = used
        return used.amounts

    def _others(self, db: Database, refs: Sequence[ReleaseRef]) -> Iterator[ReleaseRef]:
        """Iterate over the other releases of the dataset, the newest first, if it was ever charged per subject."""
        if any(item.unit == "subject" for item in db.contents.latest().scopes_of(self.dataset)):
            yield from (ref for ref in reversed(db.releases.of_dataset(self.dataset)) if ref not in refs)

    def _of_release(self, db: Database, ref: ReleaseRef) -> _RecordStates:
        key, size = (ref.id, ref.nonce), len(self.records)
        of_release = self._states.get(key)
        if of_release is None:  # memory that holds only zeros is not allocated
            ids = HashedIds(np.zeros(size, np.uint64), np.zeros(size, np.uint64))
            of_release = self._states[key] = _RecordStates(np.zeros(size, np.int64), ids)
        if of_release.batch < self._head.seq and ref.id != NEW:
            for block in db.keys.blocks(db, "record", key, of_release.batch):
                rows, at = self.records.find(block.ids)
                places = block.places(rows)
                np.maximum.at(of_release.places, at, places)  # the last place of a record holds
                last = of_release.places[at] == places
                at, identities = at[last], db.records.reserved(Places.unpack(places[last]), "idem_key")
                of_release.idem_keys.hi[at], of_release.idem_keys.lo[at] = hashed_ids(identities)
                of_release.batch = int(block.batches[-1])
        return of_release


def _joined(blocks: Sequence[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    begins = np.cumsum([0, *(item.ids.size for item in blocks[:-1])])
    return Block(
        concatenated(item.ids for item in blocks),
        np.concatenate([item.batches for item in blocks]),
        np.concatenate([item.begins + begin for item, begin in zip(blocks, begins, strict=True)]),
    )


class Database:
    """The parts of an open ledger, put together once for every operation."""

    def __init__(self, store: Store, id_key: str | None) -> None:
        ledger_id = store.meta("ledger_id")
        if ledger_id is None:
            raise MissingLedgerError(f"{store.name} is an unfinished ledger", "delete the file: it holds no charge")
        self.store, self.ledger_id = store, ledger_id
        self.id_key = IdKey(store, id_key, ledger_id)
        # forgotten people by dataset, with the events that name them; only the holder of the store's lock writes it
        self.forgotten: dict[str, tuple[tuple[int, ...], Any]] = {}
        self.journal = Journal(store, ledger_id, secrets.token_hex(4))
        self.contents = Contents(store, self.journal)
        self.records = Records(self.contents, self.journal)
        self.releases = Releases(store, self.journal, self.contents, self.id_key)
        self.scopes = Scopes(store, self.journal, self.contents, self.records.states)
        self.keys = Keys()
        self.run: LedgerPlan | None = None  # the plan of a run: `Ledger.use` sets it before batches start
        self._recent: deque[tuple[LedgerPlan, HashedIds, Index]] = deque(maxlen=RECENT)  # the plans of the last batches

    def covering(
        self, dataset: str, records: HashedIds, wanted: WantedIds | None = None, units: HashedIds | None = None
    ) -> tuple[LedgerPlan, Index, Index]:
        """Return a plan that covers distinct records and units, and the places of records and units in it.

        Call it inside a transaction or a snapshot: only the holder of the store's lock reads into a plan. The unit of
        a canary row, an id of zeros, has the place 0.
        """
        unit_ids = concatenated(()) if units is None else units
        real = unit_ids.are_real()
        of_units, unit_at = unit_ids.take(real), np.zeros(unit_ids.size, np.intp)
        if units is None:  # a commit brings the very ids that were reserved
            for plan, ids, at in self._recent:
                if ids.hi is records.hi and plan.dataset == dataset:
                    return plan, at, unit_at
        for plan in (*([] if self.run is None else [self.run]), *(item[0] for item in reversed(self._recent))):
            found = plan.records.places(records) if plan.dataset == dataset else None
            found_units = None if found is None else plan.units.places(of_units)
            if found is not None and found_units is not None:
                unit_at[real] = found_units
                return plan, found, unit_at
        plan = LedgerPlan(dataset, WantedIds(records) if wanted is None else wanted, WantedIds(of_units))
        at, unit_at[real] = plan.records.places_as_passed, plan.units.places_as_passed
        self._recent.append((plan, records, at))
        return plan, at, unit_at

    def look_up(self, ref: ReleaseRef, records: HashedIds, wanted: WantedIds | None = None) -> Holdings:
        """Return the state of distinct records in a release; `wanted` are the same ids, prepared for lookups."""
        plan, at, _ = self.covering(ref.dataset, records, wanted)
        plan.catch_up(self)
        return plan.holdings(self, ref, at)
