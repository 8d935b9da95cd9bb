"""Read what the ledger holds of reserved rows: states, digests, and columns of their batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dptext_etl.guarantee import PURE
from dptext_etl.ledger.storage.hashed_ids import WIDTH, Bytes, HashedIds, Index
from dptext_etl.ledger.storage.journal import Journal
from dptext_etl.ledger.storage.segments import Segments
from dptext_etl.ledger.storage.store import Store
from dptext_etl.ledger.types import I64, U8, Event, Mask, ReleaseRef, State

POSTS = "post/"
"""The prefix of names under which `meta` lists the events that hold post-processed rows of a batch."""
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
    def __init__(self, store: Store, journal: Journal, segments: Segments) -> None:
        self._store = store
        self._journal = journal
        self._segments = segments

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


def _zeros(rows: int, name: str) -> npt.NDArray[Any]:
    return np.zeros((rows, WIDTH), np.uint8) if name in _HASHES else np.zeros(rows, np.int64)
