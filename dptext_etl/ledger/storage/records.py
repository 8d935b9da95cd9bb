"""Find the records of a release: the text that it holds of each, the place, the state and the digest."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dptext_etl.ledger.storage.cache import PartCache
from dptext_etl.ledger.storage.journal import Journal
from dptext_etl.ledger.storage.keyed_ids import WIDTH, Bytes, Index, KeyedIds
from dptext_etl.ledger.storage.parts import Fold, Part
from dptext_etl.ledger.storage.segments import Segments
from dptext_etl.ledger.storage.sorted_runs import Recall, SortedRuns
from dptext_etl.ledger.storage.store import Store
from dptext_etl.ledger.terms import I64, U8, Mask, ReleaseRef, State

RECENT = 4
"""Batches and columns of which a writer remembers what it looked up when it reserved them, until it commits them."""
POSTS = "post/"
"""What the names begin with under which `meta` says which events hold post-processed rows of a batch."""


class Places(NamedTuple):
    """Rows of reserved batches, shape (rows,)."""

    batch: I64
    row: I64

    def take(self, where: Index | Mask) -> Places:
        """Return some of the rows."""
        return Places(self.batch[where], self.row[where])

    def groups(self) -> Iterator[tuple[int, Index]]:
        """Iterate over the batches, each with the indices of its rows in this list."""
        if len(self.batch) and (self.batch == self.batch[0]).all():
            yield int(self.batch[0]), np.arange(len(self.batch))
            return
        order = np.argsort(self.batch, kind="stable")
        batches, starts = np.unique(self.batch[order], return_index=True)
        yield from zip(batches.tolist(), np.split(order, starts[1:]), strict=False)


class Held(NamedTuple):
    """What a release holds about some records, shape (records,).

    Attributes:
        known: Whether the release holds the record; an aborted reservation does not count.
        idem_keys: The first 16 bytes of the identity of the text that it holds.
        places: Where the record was reserved.
        state: A `State`, where the record is known.
    """

    known: Mask
    idem_keys: KeyedIds
    places: Places
    state: U8

    def same(self, idem_keys: KeyedIds) -> Mask:
        """Return where the release holds this very text."""
        same: Mask = self.known & (self.idem_keys.hi == idem_keys.hi) & (self.idem_keys.lo == idem_keys.lo)
        return same


class Records:
    """The record index of a ledger, the states of reserved rows, and their digests."""

    def __init__(self, store: Store, journal: Journal, segments: Segments, cache: PartCache) -> None:
        self._store = store
        self._journal = journal
        self._segments = segments
        self._cache = cache
        self._recent: deque[tuple[ReleaseRef, Recall]] = deque(maxlen=RECENT)

    def index(self, release: int, nonce: int) -> SortedRuns:
        """Return the record index of a release: record id to identity of the text and place."""
        return SortedRuns(self._store, self._cache, f"records/{release}/{nonce}", 3, Fold.LATEST)

    def turn(self, ref: ReleaseRef) -> str:
        """Name what a writer holds that adds records to a release (see `Store.turn`)."""
        return f"release/{ref.id}/{ref.nonce}"

    def turn_of_states(self, ref: ReleaseRef) -> str:
        """Name what a writer holds that changes states or counts of a release."""
        return f"states/{ref.id}/{ref.nonce}"

    def held(self, ref: ReleaseRef, records: KeyedIds, order: Index, recall: Recall | None = None) -> Held:
        """Look up records."""
        found, values = self.index(ref.id, ref.nonce).find(records.take(order), recall)
        known, stored = np.empty_like(found), np.empty_like(values)
        known[order], stored[:, order] = found, values
        places = Places(stored[2] >> 32, stored[2] & 0xFFFFFFFF)
        state = np.zeros(len(known), np.uint8)
        state[known] = self.states_of(places.take(known))
        known &= ~(known & (state == State.ABORTED))
        return Held(known, KeyedIds(stored[0].view(np.uint64), stored[1].view(np.uint64)), places, state)

    def remember(self, ref: ReleaseRef, recall: Recall) -> None:
        """Keep what was looked up of records that are reserved, for their commit. Call it inside a transaction."""
        self._recent.append((ref, recall))

    def recollect(self, ref: ReleaseRef, records: KeyedIds, order: Index) -> Recall:
        """Return what was looked up of these records when they were reserved; it is remembered no longer."""
        wanted = records.take(order)
        found = next((kept for kept in self._recent if kept[0] == ref and kept[1].asked_for(wanted)), None)
        if found is None:
            return Recall()
        self._recent.remove(found)
        return found[1]

    def reserve(self, ref: ReleaseRef, batch: int, records: KeyedIds, order: Index, idem_keys: KeyedIds) -> None:
        """Add the rows of a new batch to the index."""
        place = (np.int64(batch) << np.int64(32)) | order.astype(np.int64)
        identity = idem_keys.take(order)
        values = np.stack([identity.hi.view(np.int64), identity.lo.view(np.int64), place])
        self.index(ref.id, ref.nonce).insert(Part(records.take(order), values))

    def count(self, ref: ReleaseRef) -> int:
        """Count the records that a release holds, without canaries and without what was given back."""
        place = (ref.id, ref.nonce)
        found = self._store.row("select records, canaries, aborted from tally where release=? and nonce=?", place)
        records, canaries, aborted = found or (0, 0, 0)
        if not aborted:
            return int(records - canaries)
        batches = self._store.rows("select seq, state from batch where release=? and nonce=?", place)
        for seq, stored in batches:
            gone = np.frombuffer(stored, np.uint8) == State.ABORTED
            if gone.any():
                canary = self._segments.read(seq, self._journal.facts(seq), ["canary"])["canary"] == 1
                aborted -= int((gone & canary).sum())
        return int(records - canaries - aborted)

    def states(self, batch: int) -> U8:
        """Return the states of a batch, read-only, shape (rows,)."""
        found = self._store.row("select state from batch where seq=?", (batch,))
        return np.frombuffer(b"" if found is None else found[0], np.uint8)

    def states_of(self, places: Places) -> U8:
        """Return the states of reserved rows, shape (rows,)."""
        state = np.zeros(len(places.batch), np.uint8)
        for batch, group in places.groups():
            state[group] = self.states(batch)[places.row[group]]
        return state

    def move(self, places: Places, state: State) -> None:
        """Give reserved rows another state."""
        for batch, group in places.groups():
            states = self.states(batch).copy()
            states[places.row[group]] = state
            still_open = int((states == State.RESERVED).sum())
            self._store.execute("update batch set state=?, open=? where seq=?", (states.tobytes(), still_open, batch))

    def worst(self, places: Places) -> I64:
        """Return the positions that were reserved, shape (rows,)."""
        reserved = np.zeros(len(places.batch), np.int64)
        for batch, group in places.groups():
            column = self._segments.read(batch, self._journal.facts(batch), ["n_worst"])["n_worst"]
            reserved[group] = column[places.row[group]]
        return reserved

    def column(self, places: Places, name: str) -> Bytes:
        """Return a column of hashes of reserved rows ("record", "unit" or "idem_key"), shape (rows, 32)."""
        hashes = np.zeros((len(places.batch), WIDTH), np.uint8)
        for batch, group in places.groups():
            column = self._segments.read(batch, self._journal.facts(batch), [name])[name]
            hashes[group] = column[places.row[group]]
        return hashes

    def digests(self, places: Places) -> Bytes:
        """Return the digests of committed rows, shape (rows, 32)."""
        return self._held(places, self._commits(places), "digest")[1]

    def positions(self, places: Places) -> I64:
        """Return the positions of committed rows, shape (rows,)."""
        return self._held(places, self._commits(places), "positions")[1].astype(np.int64)

    def posted(self, places: Places, chain: str) -> tuple[Mask, Bytes]:
        """Return which rows a chain of post-processing rewrote, and digests of the results, shape (rows, 32)."""
        events = (seq for seq in self._posts(places) if self._journal.facts(seq)["chain"] == chain)
        return self._held(places, list(events), "digest")

    def note_post(self, places: Places, seq: int) -> None:
        """Remember which event holds the digests of post-processed rows."""
        for batch in np.unique(places.batch).tolist():
            name, before = f"{POSTS}{batch}", self._seqs(f"{POSTS}{batch}")
            self._store.execute("insert or replace into meta values(?,?)", (name, " ".join(map(str, [*before, seq]))))

    def _held(self, places: Places, seqs: list[int], name: str) -> tuple[Mask, npt.NDArray[Any]]:
        """Return which rows some events hold, and what a column of theirs holds of them."""
        known = np.zeros(len(places.batch), np.bool_)
        found = np.zeros((len(known), WIDTH), np.uint8) if name == "digest" else np.zeros(len(known), np.int64)
        order = np.lexsort((places.row, places.batch))
        keys = _key(places.batch, places.row)[order]
        for seq in seqs:
            columns = self._segments.read(seq, self._journal.facts(seq), ["batch", "row", name])
            held = _key(columns["batch"], columns["row"])
            at = np.searchsorted(keys, held)
            hit = (at < len(keys)) & (keys[np.minimum(at, len(keys) - 1)] == held) if len(keys) else at < 0
            known[order[at[hit]]], found[order[at[hit]]] = True, columns[name][hit]
        return known, found

    def _posts(self, places: Places) -> list[int]:
        batches = np.unique(places.batch).tolist()
        return sorted({seq for batch in batches for seq in self._seqs(f"{POSTS}{batch}")})

    def _seqs(self, name: str) -> list[int]:
        found = self._store.row("select value from meta where name=?", (name,))
        return [] if found is None else [int(seq) for seq in found[0].split()]

    def _commits(self, places: Places) -> list[int]:
        found: set[int] = set()
        for batch in np.unique(places.batch).tolist():
            found.update(row[0] for row in self._store.rows("select seq from commit_part where batch=?", (batch,)))
        return sorted(found)


def _key(batch: npt.NDArray[np.int64], row: npt.NDArray[np.int64]) -> I64:
    return (batch << np.int64(32)) | row
