"""Look up records and units in the ledger: once for all rows of a run, then only newer events.

The ledger stores no index. A plan goes through the batches of a release or a scope in the order in which they were
sealed, and finds in them the ids that are asked for. So it needs one pass over the history of its releases and scope,
and its memory follows from its own ids, not from the ledger.

A plan never answers from old data: it stores the last event that it read, and before each answer, it reads all events
that any writer committed since. Writers do this once more when they hold their locks. A plan never assumes that
the writes of its process are committed, because a transaction may be rolled back, or its answer may be lost.

Specification: docs/spec/ledger-plan.md#plan.
"""

from __future__ import annotations

import secrets
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dptext_etl._kernel import Secret
from dptext_etl.errors import KeyReferenceError
from dptext_etl.guarantee import PURE
from dptext_etl.ledger.batch import IdKey, check_value, ensure_key_file, resolve_id_key
from dptext_etl.ledger.caps import LARGEST, Scopes
from dptext_etl.ledger.contents import Contents, Key, Pinned
from dptext_etl.ledger.records import Holdings, Records
from dptext_etl.ledger.releases import Releases
from dptext_etl.ledger.storage.hashed_ids import (
    SATURATED,
    WIDTH,
    Bytes,
    HashedIds,
    Index,
    Values,
    WantedIds,
    concatenated,
    hashed_ids,
    plus,
    sums,
)
from dptext_etl.ledger.storage.journal import Head, Journal
from dptext_etl.ledger.storage.segments import Places, Segments
from dptext_etl.ledger.storage.store import MissingLedgerError, Store
from dptext_etl.ledger.types import I64, NEW, Mask, ReleaseRef, State

RECENT = 4
"""Batches whose plans are kept between their reservation and their commit: as many as are under way at a time."""
BLOCK = 1 << 17  # ids in a block, at most, unless one batch has more: small batches are gone through together
KEPT = 1 << 24
"""Ids that are kept in memory, in all columns of a ledger: 256 MB. Later batches are read again for each plan."""
REFUNDED = (PURE,)  # the components of a cap of which committed rows may give a part back


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
        places: I64 = (self.batches[at] << np.int64(32)) | (rows - self.begins[at])
        return places


class Keys:
    """The ids in a column of the batches of a release or a scope: read once, as far as they fit into memory.

    Threads share it, and read into it one at a time: within a transaction or a snapshot, which hold the store's lock.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._head = Head(0, b"")  # the last event that was seen when ids were read
        self._blocks: dict[tuple[str, Key | int], list[Block]] = {}
        self._size = 0

    def catch_up(self, db: Database, head: Head) -> None:
        """Drop the ids that were read if the ledger was since restored to an earlier state."""
        if not db.journal.has_head(self._head):
            self.clear()
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
            ids = hashed_ids(db.segments.read(seq, [column])[column])
            block = Block(ids, np.array([seq]), np.array([0]))
            self._keep(kept, block)
            if seq > after:
                pending.append(block)
                size += ids.size
            if size >= BLOCK:
                yield _joined(pending)
                pending, size = [], 0
        if pending:
            yield _joined(pending)

    def _keep(self, kept: list[Block], block: Block) -> None:
        self._size += block.ids.size
        if self._size > KEPT:  # no later block is kept either: kept blocks must have no gaps
            return
        if kept and kept[-1].ids.size + block.ids.size <= BLOCK:
            kept[-1] = _joined([kept[-1], block])
        else:
            kept.append(block)


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
    most: int = 0  # no amount is larger
    batch: int = 0  # the last one that was read
    settled: int = 0  # the event up to which settlements were read


class LedgerPlan:
    """The state of some records of a dataset, and the amounts of a cap that some units have used.

    States are not part of it: they change without a new place, so every answer reads them.
    """

    def __init__(self, dataset: str, records: WantedIds, units: WantedIds) -> None:
        self.dataset, self.records, self.units = dataset, records, units
        self._restart(Head(0, b""))

    def _restart(self, head: Head) -> None:
        self._head = head  # the last event that answers consider
        self._states: dict[tuple[int, int], _RecordStates] = {}
        self._used = self._nothing(NEW, ())

    def _nothing(self, scope: int, components: tuple[str, ...]) -> _Used:
        return _Used((scope, components), np.zeros((len(components), len(self.units)), np.int64))

    def catch_up(self, db: Database) -> None:
        """Include all events committed so far in answers. Call it again once the locks are held."""
        contents = db.contents.latest()
        head = contents.head
        db.keys.catch_up(db, head)
        undone = 0 < self._head.seq < contents.last_abort
        if undone or not db.journal.has_head(self._head):  # it was rolled back, or the ledger was restored
            self._restart(head)
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

    def places_of(self, records: HashedIds, units: HashedIds) -> tuple[Index, Index] | None:
        """Return the places of records and units in this plan, or None if it lacks one of them."""
        at = self.records.places(records)
        of_units = None if at is None else self.units.places(units)
        return None if at is None or of_units is None else (at, of_units)

    def places(self, db: Database, ref: ReleaseRef, at: Index) -> I64:
        """Return the packed places of records in a release, shape (places,); 0 for those that it has never seen."""
        return self._of_release(db, ref).places[at]

    def holdings(self, db: Database, ref: ReleaseRef, at: Index) -> Holdings:
        """Return the state in a release of the records at some places of this plan, shape (places,)."""
        of_release = self._of_release(db, ref)
        places = Places.unpack(of_release.places[at])
        mask, state = of_release.places[at] > 0, np.zeros(len(at), np.uint8)
        state[mask] = db.records.states_of(places.take(mask))
        mask &= ~(mask & (state == State.ABORTED))
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
        if self._used.pinned != (pinned.id, pinned.components):
            self._used = self._nothing(pinned.id, pinned.components)
        used = self._used
        if pinned.components and used.settled < self._head.seq:
            try:
                self._add_up(db, used)
            except BaseException:  # a partial sum must not be added again
                self._used = self._nothing(NEW, ())
                raise
        return used.amounts

    def _others(self, db: Database, refs: Sequence[ReleaseRef]) -> Iterator[ReleaseRef]:
        """Iterate over the other releases of the dataset, the newest first, if it was ever charged per subject."""
        if db.scopes.per_subject(self.dataset):
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

    def _add_up(self, db: Database, used: _Used) -> None:
        """Add reserved amounts, less refunds; canary rows have no unit."""
        number, names = used.pinned
        for block in db.keys.blocks(db, "unit", number, used.batch):
            rows, at = self.units.find(block.ids)
            places = Places.unpack(block.places(rows))
            amounts = np.stack([np.minimum(db.records.reserved(places, name), LARGEST) for name in names])
            _add(used, at, np.where(db.records.states_of(places) == State.ABORTED, 0, amounts))
            used.batch = int(block.batches[-1])
        settlements = db.contents.settlements if names == REFUNDED else []
        for seq in settlements[bisect_right(settlements, used.settled) : bisect_right(settlements, self._head.seq)]:
            for batch, refunded, spent in db.records.refunds(seq):
                if db.contents.batches[batch].scope == number:
                    charged = db.segments.read(batch, ["unit", PURE])
                    rows, at = self.units.find(hashed_ids(charged["unit"][refunded]))
                    _add(used, at, (spent - charged[PURE][refunded])[None, rows])
        used.settled = self._head.seq


class Plans:
    """The plans of an open ledger: the plan of its run, if it has one, and the plans of the last batches.

    `Ledger.use` sets `run` before batches start. `covering` adds to the recent ones; call it inside a transaction or a
    snapshot, because only the holder of the store's lock may write here or read into a plan.
    """

    def __init__(self) -> None:
        self.run: LedgerPlan | None = None
        self._recent: deque[tuple[LedgerPlan, HashedIds, Index]] = deque(maxlen=RECENT)

    def covering(
        self, dataset: str, records: HashedIds, wanted: WantedIds | None = None, units: HashedIds | None = None
    ) -> tuple[LedgerPlan, Index, Index]:
        """Return a plan that covers records and units, and the places of records and units in it.

        Args:
            dataset: The dataset of the records.
            records: Record ids, each once.
            wanted: The same as ids to look for, where the caller has them.
            units: Units; an id of zeros, as canary rows have, has the place 0 and stands for no unit.
        """
        unit_ids = _NO_IDS if units is None else units
        real = (unit_ids.hi != 0) | (unit_ids.lo != 0)
        of_units, unit_at = unit_ids.take(real), np.zeros(unit_ids.size, np.intp)
        if units is None:  # a commit brings the very ids that were reserved
            for plan, ids, at in self._recent:
                if ids.hi is records.hi and plan.dataset == dataset:
                    return plan, at, unit_at
        for plan in (*([] if self.run is None else [self.run]), *(item[0] for item in reversed(self._recent))):
            if plan.dataset == dataset and (places := plan.places_of(records, of_units)) is not None:
                at, unit_at[real] = places
                return plan, at, unit_at
        plan = LedgerPlan(dataset, WantedIds(records) if wanted is None else wanted, WantedIds(of_units))
        at, unit_at[real] = plan.records.places_as_passed(), plan.units.places_as_passed()
        self._recent.append((plan, records, at))
        return plan, at, unit_at


_NO_IDS = concatenated(())


def _add(used: _Used, at: Index, amounts: Values) -> None:
    """Add amounts at places, which may repeat; sums saturate."""
    used.most += int(np.abs(amounts).max(initial=0)) * len(at)
    if used.most < SATURATED:
        for component, values in zip(used.amounts, amounts, strict=True):
            np.add.at(component, at, values)
        return
    order = np.argsort(at, kind="stable")
    at, amounts = at[order], amounts[:, order]
    starts = np.flatnonzero(np.append(True, at[1:] != at[:-1])) if len(at) else at
    used.amounts[:, at[starts]] = plus(used.amounts[:, at[starts]], sums(amounts, starts)) if len(at) else 0


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
        self.segments = Segments(store, self.journal)
        self.records = Records(self.contents, self.segments)
        self.releases = Releases(store, self.journal, self.contents, self.id_key)
        self.scopes = Scopes(store, self.journal, self.contents, self.segments, self.records)
        self.keys, self.plans = Keys(), Plans()

    def look_up(self, ref: ReleaseRef, records: HashedIds, wanted: WantedIds | None = None) -> Holdings:
        """Return the state of distinct records in a release; `wanted` are the same ids, prepared for lookups."""
        plan, at, _ = self.plans.covering(ref.dataset, records, wanted)
        plan.catch_up(self)
        return plan.holdings(self, ref, at)


def initialize(store: Store, id_key: str | None) -> None:
    """Give a new ledger its name and the check value of its id key."""
    if id_key is None:
        if store.key_file is None:
            msg = f"a new ledger at {store.name} needs its own id key"
            raise KeyReferenceError(msg, 'run `dptext key new PATH` and give id_key="file:PATH", the same everywhere')
        ensure_key_file(store.key_file)
    name_ledger(store, resolve_id_key(id_key or f"file:{store.key_file}"))


def name_ledger(store: Store, secret: Secret) -> None:
    with store.transaction():
        if store.meta("ledger_id") is None:  # no other process was faster
            name = secrets.token_hex(16)
            store.execute("insert into meta values('ledger_id',?)", (name,))
            store.execute("insert into meta values('id_check',?)", (check_value(secret, name),))


NOWHERE = -1  # the place of a record that the release has never seen


class Lookup:
    """The first step finds the places of records; the second reads states and digests, which lie batch by batch.

    No process needs more than the ids of its records, or the places of its batches.
    """

    def __init__(self, db: Database, ref: ReleaseRef, chain: str | None = None, *, identities: bool = False) -> None:
        self._db, self.ref, self.chain, self._identities = db, ref, chain, identities

    def hashed(self, ids: pa.Array, canary: Mask | None = None) -> Bytes:
        """Hash record ids, shape (records, 16)."""
        hashes: Bytes = np.ascontiguousarray(self._db.id_key.records(ids, canary).hashes[:, :16])
        return hashes

    def batches(self) -> I64:
        """Return the batches of the release, in ascending order."""
        with self._db.store.snapshot():
            batches = self._db.contents.latest().of_release.get((self.ref.id, self.ref.nonce), [])
            return np.array(batches, np.int64)

    @property
    def planned(self) -> bool:
        """Whether the ledger has the plan of a run, so that records can be looked up a few at a time."""
        return self._db.plans.run is not None

    def places(self, hashes: Bytes) -> I64:
        """Find where records were reserved, shape (records,); `NOWHERE` for those that the release has never seen.

        Without a plan, each call goes through all batches of the release.
        """
        with self._db.store.snapshot():
            plan, at, _ = self._db.plans.covering(self.ref.dataset, hashed_ids(hashes))
            plan.catch_up(self._db)
            places = plan.places(self._db, self.ref, at)
        return np.where(places > 0, places, NOWHERE)

    def digests(self, places: I64) -> tuple[Mask, Bytes, I64]:
        """Return which records are committed, shape (records,), digests of their texts, (records, 32), and positions.

        With a chain of post-processings: which of them it rewrote, and the digests of the results. With `identities`:
        the identities of the raw texts instead of digests.
        """
        if not (places[1:] > places[:-1]).all():
            packed, where = np.unique(places, return_inverse=True)
            mask, digests, positions = self.digests(packed)
            return mask[where], digests[where], positions[where]
        mask, records = places != NOWHERE, self._db.records
        every = Places.unpack(np.where(mask, places, 0))
        with self._db.store.snapshot():
            mask[mask] = records.states_of(every.take(mask)) == State.COMMITTED
            if mask.all() and self.chain is None and not self._identities:
                return mask, *records.digests_and_positions(every)
            digests, positions = np.zeros((len(places), WIDTH), np.uint8), np.zeros(len(places), np.int64)
            committed = every.take(mask)
            digests[mask], positions[mask] = records.digests_and_positions(committed)
            if self._identities:
                digests[mask] = records.reserved(committed, "idem_key")
            if self.chain is not None:
                rewritten, digests[mask] = records.postprocessed(committed, self.chain)
                mask[mask] = rewritten
        return mask, digests, positions
