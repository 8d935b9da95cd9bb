"""Find the records of a release: the text that it holds of each, the place, the state and the digest."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl.guarantee import PURE
from dptext_etl.ledger.storage.hashed_ids import (
    WIDTH,
    Bytes,
    Fold,
    HashedIds,
    Index,
    Part,
    Values,
    concatenated,
    hashed_ids,
)
from dptext_etl.ledger.storage.in_order import InOrder
from dptext_etl.ledger.storage.journal import Journal
from dptext_etl.ledger.storage.memo import LookupMemo
from dptext_etl.ledger.storage.part_cache import LastParts, PartCache
from dptext_etl.ledger.storage.segments import Segments
from dptext_etl.ledger.storage.sorted_runs import SortedRuns
from dptext_etl.ledger.storage.store import Store
from dptext_etl.ledger.types import I64, U8, Event, Mask, ReleaseRef, State

if TYPE_CHECKING:
    from dptext_etl.ledger.database import Database

RECENT = 4
"""Batches and columns of which a writer remembers what it looked up when it reserved them, until it commits them."""
POSTS = "post/"
"""The prefix of names under which `meta` lists the events that hold post-processed rows of a batch."""
NOWHERE = -1
"""The place of a record that the release has never seen."""
_HASHES = ("record", "unit", "idem_key", "digest")


class Places(NamedTuple):
    """Rows of reserved batches, shape (rows,)."""

    batch: I64
    row: I64

    @classmethod
    def unpack(cls, packed: I64) -> Places:
        return cls(packed >> 32, packed & 0xFFFFFFFF)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        return {"batch": self.batch, "row": self.row}

    def packed(self) -> I64:
        return (self.batch << np.int64(32)) | self.row

    def take(self, where: Index | Mask) -> Places:
        return Places(self.batch[where], self.row[where])

    def groups(self) -> Iterator[tuple[int, Index]]:
        """Iterate over the batches, each with the indices of its rows in this list."""
        if len(self.batch) and (self.batch == self.batch[0]).all():
            yield int(self.batch[0]), np.arange(len(self.batch))
            return
        order = np.arange(len(self.batch))
        if (self.batch[1:] < self.batch[:-1]).any():
            order = np.argsort(self.batch, kind="stable")
        batches, starts = np.unique(self.batch[order], return_index=True)
        yield from zip(batches.tolist(), np.split(order, starts[1:]), strict=False)


class Holdings(NamedTuple):
    """What a release holds about some records, shape (records,).

    Attributes:
        known: Whether the release holds the record; an aborted reservation does not count.
        idem_keys: The first 16 bytes of the identity of the text that it holds.
        places: Where the record was reserved.
        state: A `State`, where the record is known.
    """

    known: Mask
    idem_keys: HashedIds
    places: Places
    state: U8

    @property
    def committed(self) -> Mask:
        committed: Mask = self.known & (self.state == State.COMMITTED)
        return committed

    def same_text(self, idem_keys: HashedIds) -> Mask:
        return self.known & self.idem_keys.equal(idem_keys)


class Records:
    def __init__(self, store: Store, journal: Journal, segments: Segments, cache: PartCache) -> None:
        self._store = store
        self._journal = journal
        self._segments = segments
        self._cache = cache
        self._recent: deque[tuple[ReleaseRef, LookupMemo]] = deque(maxlen=RECENT)

    def index(self, release: int, nonce: int, cache: PartCache | None = None) -> SortedRuns:
        """Return the record index of a release: record id to identity of the text and place."""
        cache = self._cache if cache is None else cache
        return SortedRuns(self._store, cache, f"records/{release}/{nonce}", 3, Fold.LATEST)

    def batches(self, ref: ReleaseRef) -> I64:
        """Return the batches of a release, in ascending order."""
        rows = self._store.rows("select seq from batch where release=? and nonce=? order by seq", (ref.id, ref.nonce))
        return np.array([seq for (seq,) in rows], np.int64)

    def lock_name(self, ref: ReleaseRef) -> str:
        """Name what a writer locks that adds records to a release."""
        return f"release/{ref.id}/{ref.nonce}"

    def states_lock_name(self, ref: ReleaseRef) -> str:
        """Name what a writer locks that changes states or counts of a release."""
        return f"states/{ref.id}/{ref.nonce}"

    def look_up(
        self, ref: ReleaseRef, records: HashedIds, order: Index | None = None, memo: LookupMemo | None = None
    ) -> Holdings:
        """Look up records; `order` is their ascending order, where the caller knows it."""
        order = records.order() if order is None else order
        found, values = self.index(ref.id, ref.nonce).find(records.take(order), memo)
        known, stored = np.empty_like(found), np.empty_like(values)
        known[order], stored[:, order] = found, values
        places = Places.unpack(stored[2])
        state = np.zeros(len(known), np.uint8)
        state[known] = self.states_of(places.take(known))
        known &= ~(known & (state == State.ABORTED))
        return Holdings(known, HashedIds(stored[0].view(np.uint64), stored[1].view(np.uint64)), places, state)

    def remember(self, ref: ReleaseRef, memo: LookupMemo) -> None:
        """Keep what was looked up of records that are reserved, for their commit. Call it inside a transaction."""
        self._recent.append((ref, memo))

    def recollect(self, ref: ReleaseRef, records: HashedIds, order: Index) -> LookupMemo:
        """Return what was looked up of these records when they were reserved; it is remembered no longer."""
        wanted = records.take(order)
        for recent in self._recent:
            if recent[0] == ref and recent[1].is_of(wanted):
                self._recent.remove(recent)
                return recent[1]
        return LookupMemo()

    def reserve(self, ref: ReleaseRef, batch: int, records: HashedIds, order: Index, idem_keys: HashedIds) -> Values:
        """Add records to the index, and return what it holds of them, in ascending order of id."""
        place = (np.int64(batch) << np.int64(32)) | order.astype(np.int64)
        identity = idem_keys.take(order)
        values = np.stack([identity.hi.view(np.int64), identity.lo.view(np.int64), place])
        self.index(ref.id, ref.nonce).insert(Part(records.take(order), values))
        return values

    def count(self, ref: ReleaseRef) -> int:
        """Count the records that a release holds, without canaries and without what was given back."""
        key = (ref.id, ref.nonce)
        row = self._store.row("select records, canaries, aborted from tally where release=? and nonce=?", key)
        records, canaries, aborted = row or (0, 0, 0)
        batches = "select seq, state from batch where release=? and nonce=?"
        for seq, states in self._store.rows(batches, key) if aborted else ():
            gone = np.frombuffer(states, np.uint8) == State.ABORTED
            if gone.any():
                aborted -= int((gone & (self._segments.read(seq, ["canary"])["canary"] == 1)).sum())
        return int(records - canaries - aborted)

    def states(self, batch: int) -> U8:
        """Return the states of a batch, read-only, shape (rows,)."""
        row = self._store.row("select state from batch where seq=?", (batch,))
        return np.frombuffer(b"" if row is None else row[0], np.uint8)

    def states_of(self, places: Places) -> U8:
        states = np.zeros(len(places.batch), np.uint8)
        for batch, group in places.groups():
            states[group] = self.states(batch)[places.row[group]]
        return states

    def move(self, places: Places, state: State) -> None:
        for batch, group in places.groups():
            states = self.states(batch).copy()
            states[places.row[group]] = state
            still_open = int((states == State.RESERVED).sum())
            self._store.execute("update batch set state=?, open=? where seq=?", (states.tobytes(), still_open, batch))

    def reserved(self, places: Places, name: str) -> npt.NDArray[Any]:
        """Return a column of reserved rows, shape (rows,), or (rows, 32) for hashes."""
        values = _zeros(len(places.batch), name)
        for batch, group in places.groups():
            values[group] = self._segments.read(batch, [name])[name][places.row[group]]
        return values

    def digests(self, places: Places) -> Bytes:
        return self._recorded(places, self._commits(places), "digest")[1]

    def digests_and_positions(self, places: Places) -> tuple[Bytes, I64]:
        _, digests, positions = self._recorded(places, self._commits(places), "digest", "positions")
        return digests, positions

    def settled(self, places: Places) -> tuple[Mask, I64]:
        """Return which rows were settled ex post, and the pure epsilon that they used, in millionths."""
        known, used = self._recorded(places, [entry.seq for entry in self._journal.entries(Event.SETTLE)], PURE)
        return known, used

    def postprocessed(self, places: Places, chain: str) -> tuple[Mask, Bytes]:
        """Return which rows a chain of post-processing rewrote, and digests of the results, shape (rows, 32)."""
        batches = np.unique(places.batch).tolist()
        events = sorted({seq for batch in batches for seq in self._journal.listed(f"{POSTS}{batch}")})
        known, digests = self._recorded(
            places, [seq for seq in events if self._journal.facts(seq)["chain"] == chain], "digest"
        )
        return known, digests

    def note_postprocessed(self, places: Places, seq: int) -> None:
        for batch in np.unique(places.batch).tolist():
            self._journal.add_to_list(f"{POSTS}{batch}", seq)

    def _recorded(self, places: Places, events: list[int], *names: str) -> tuple[npt.NDArray[Any], ...]:
        """Return which rows some events hold, and what columns of theirs hold of them."""
        found = [np.zeros(len(places.batch), np.bool_), *(_zeros(len(places.batch), name) for name in names)]
        keys, order = places.packed(), np.arange(len(places.batch))
        if (keys[1:] < keys[:-1]).any():
            order = np.argsort(keys)
            keys = keys[order]
        for seq in events if len(keys) else ():
            columns = self._segments.read(seq, ["batch", "row", *names])
            held = Places(columns["batch"], columns["row"]).packed()
            at = np.searchsorted(keys, held)
            hit = (at < len(keys)) & (keys[np.minimum(at, len(keys) - 1)] == held)
            rows = order[at[hit]]
            found[0][rows] = True
            for values, name in zip(found[1:], names, strict=True):
                values[rows] = columns[name][hit]
        return tuple(found)

    def _commits(self, places: Places) -> list[int]:
        batches = np.unique(places.batch).tolist()
        query = "select seq from commit_part where batch=?"
        return sorted({row[0] for batch in batches for row in self._store.rows(query, (batch,))})


def look_up_in_order(db: Database, ref: ReleaseRef, hashes: Bytes) -> Holdings:
    """Look up records that are likely to come in the order in which they were reserved, shape (records, 32)."""
    packed = InOrder(db, ref).places(hashes)
    places, rest = Places.unpack(packed), hashed_ids(hashes[len(packed) :])
    known, records = np.ones(len(packed), np.bool_), db.records
    first = Holdings(known, hashed_ids(records.reserved(places, "idem_key")), places, records.states_of(places))
    if not rest.size:
        return first
    others = records.look_up(ref, rest)
    return Holdings(
        np.concatenate([known, others.known]),
        concatenated([first.idem_keys, others.idem_keys]),
        Places(*map(np.concatenate, zip(places, others.places, strict=True))),
        np.concatenate([first.state, others.state]),
    )


def _zeros(rows: int, name: str) -> npt.NDArray[Any]:
    return np.zeros((rows, WIDTH), np.uint8) if name in _HASHES else np.zeros(rows, np.int64)


class Lookup:
    """Look up what a release vouches for in two steps, which several processes can share out among themselves.

    The first step finds where records stand: it reads the index, in which ids lie in order, so that a process that
    looks up all ids of a range reads that range once, and one that takes the ranges in order reads the index once. The
    second step reads states and digests, which lie batch by batch. No process needs more than the ids of its range, or
    the places of its batches.
    """

    def __init__(self, db: Database, ref: ReleaseRef, chain: str | None = None) -> None:
        self._db = db
        self.ref = ref
        self.chain = chain
        self._parts = LastParts()
        self._in_order = InOrder(db, ref)

    def entries(self) -> int:
        """Return how many entries the index of the release has, those that were given back included."""
        with self._db.store.snapshot():
            return sum(run.size for run in self._db.records.index(self.ref.id, self.ref.nonce).runs())

    def hashed(self, ids: pa.Array, canary: Mask | None = None) -> Bytes:
        """Hash record ids as the index has them, shape (records, 16); their first bits say where in it they stand."""
        return np.ascontiguousarray(self._db.id_key.records(ids, canary).hashes[:, :16])

    def batches(self) -> I64:
        """Return the batches in which records of the release stand, in ascending order."""
        with self._db.store.snapshot():
            return self._db.records.batches(self.ref)

    def places(self, hashes: Bytes) -> I64:
        """Find where records were reserved, shape (records,); `NOWHERE` for those that the release has never seen."""
        records = hashed_ids(hashes)
        order = records.order()
        with self._db.store.snapshot():
            index = self._db.records.index(self.ref.id, self.ref.nonce, self._parts)
            found, values = index.find(records.take(order))
        places = np.empty(records.size, np.int64)
        places[order] = np.where(found, values[2], NOWHERE)
        return places

    def places_in_order(self, hashes: Bytes) -> I64:
        """Find where the first of these records were reserved, as far as they follow each other, without the index."""
        return self._in_order.places(hashes)

    def digests(self, places: I64) -> tuple[Mask, Bytes, I64]:
        """Return which records are committed, shape (records,), digests of their texts, (records, 32), and positions.

        With a chain of post-processings: which of them it rewrote, and the digests of the results.
        """
        packed, where = places, np.arange(len(places))
        if not (places[1:] > places[:-1]).all():
            packed, where = np.unique(places, return_inverse=True)
        mask = packed != NOWHERE
        every, records = Places.unpack(np.where(mask, packed, 0)), self._db.records
        digests, positions = np.zeros((len(packed), WIDTH), np.uint8), np.zeros(len(packed), np.int64)
        with self._db.store.snapshot():
            mask[mask] = records.states_of(every.take(mask)) == State.COMMITTED
            committed = every.take(mask)
            digests[mask], positions[mask] = records.digests_and_positions(committed)
            if self.chain is not None:
                done, digests[mask] = records.postprocessed(committed, self.chain)
                mask[mask] = done
        return mask[where], digests[where], positions[where]
