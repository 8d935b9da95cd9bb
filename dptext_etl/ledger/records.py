"""Read states, digests, and refunds of reserved rows, by the events that name them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from dptext_etl.errors import LedgerError
from dptext_etl.guarantee import PURE
from dptext_etl.ledger.contents import Batch, Contents
from dptext_etl.ledger.storage.hashed_ids import WIDTH, Bytes, HashedIds, Index
from dptext_etl.ledger.storage.segments import Places, Segments
from dptext_etl.ledger.types import I64, U8, Event, Mask, ReleaseRef, State

MOVES: dict[Event, tuple[tuple[State, ...], State]] = {
    Event.COMMIT: ((State.RESERVED, State.EXPIRED), State.COMMITTED),
    Event.EXPIRE: ((State.RESERVED,), State.EXPIRED),
    Event.ABORT: ((State.RESERVED,), State.ABORTED),
    Event.DIVERGED: ((State.COMMITTED,), State.COMMITTED),
}
"""The states that an event moves rows from, and the state that it moves them to."""
_HASHES = ("record", "unit", "idem_key", "digest")


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

    def same_text(self, idem_keys: HashedIds) -> Mask:
        return self.present & self.idem_keys.equal(idem_keys)


class Refund(NamedTuple):
    """Rows of a batch that an event settled, and the pure epsilon that they used, in millionths."""

    batch: int
    rows: Index
    spent: I64


class Records:
    def __init__(self, contents: Contents, segments: Segments) -> None:
        self._contents, self._segments = contents, segments

    def lock_name(self, ref: ReleaseRef) -> str:
        """Return the name of the lock for adding records to a release."""
        return f"release/{ref.id}/{ref.nonce}"

    def states_lock_name(self, ref: ReleaseRef) -> str:
        """Return the name of the lock for changing states of a release."""
        return f"states/{ref.id}/{ref.nonce}"

    def count(self, ref: ReleaseRef) -> int:
        """Count the records that a release holds, without canaries and without aborted records."""
        contents, key = self._contents.latest(), (ref.id, ref.nonce)
        tally, given_back = contents.count(key), 0
        for seq in contents.of_release.get(key, ()) if tally["aborted"] else ():
            states = self.states(seq)
            given_back += int((states[self._segments.read(seq, ["canary"])["canary"] == 0] == State.ABORTED).sum())
        return tally["records"] - tally["canaries"] - given_back

    def states(self, batch: int) -> U8:
        """Return the states of a batch by the events that moved its rows, shape (rows,). Catch up before.

        Raises:
            LedgerError: An event moves rows that are not in a state from which it can move them.
        """
        found = self._contents.batches[batch]
        states = np.zeros(found.rows, np.uint8)
        for event, kind, whole in found.moves:
            rows = slice(None) if whole else self._rows(event, batch)
            before, after = MOVES[kind]
            if not np.isin(states[rows], before).all():
                _refuse(f"event {event} ({kind}) moves rows of batch {batch} that it cannot move")
            states[rows] = after
        return states

    def _rows(self, event: int, batch: int) -> Index:
        """Return the rows of a batch that an event names."""
        columns = self._segments.read(event, ["batch", "row"])
        rows: Index = columns["row"][columns["batch"] == batch]
        if rows.size and not 0 <= rows.min() <= rows.max() < self._contents.batches[batch].rows:
            _refuse(f"event {event} names rows that batch {batch} does not have")
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
            values[group] = self._segments.read(batch, [name])[name][places.row[group]]
        return values

    def digests(self, places: Places) -> Bytes:
        return self.digests_and_positions(places)[0]

    def digests_and_positions(self, places: Places) -> tuple[Bytes, I64]:
        commits = {move.seq for batch in self._batches(places) for move in batch.moves if move.kind == Event.COMMIT}
        _, digests, positions = self._recorded(places, commits, "digest", "positions")
        return digests, positions

    def settled(self, places: Places) -> tuple[Mask, I64]:
        """Return which rows were settled ex post, and the pure epsilon that they used, in millionths."""
        events = {seq for batch in self._batches(places) for seq in batch.settled}
        mask, used = self._recorded(places, events, PURE)
        return mask, used

    def refunds(self, event: int) -> Iterator[Refund]:
        """Iterate over the rows that an event settled, batch by batch.

        Raises:
            LedgerError: A row is not committed, was settled before, or used more than it was charged.
        """
        columns = self._segments.read(event, ["batch", "row", PURE])
        for batch, group in Places(columns["batch"], columns["row"]).groups():
            rows, spent = columns["row"][group], columns[PURE][group]
            every = np.concatenate([self._rows(seq, batch) for seq in self._contents.batches[batch].settled])
            committed, worst = self.states(batch)[rows] == State.COMMITTED, self._segments.read(batch, [PURE])[PURE]
            once = len(np.unique(every)) == len(every)
            if not once or not committed.all() or (spent < 0).any() or (spent > worst[rows]).any():
                _refuse(f"event {event} (SETTLE) settles rows of batch {batch} that it cannot settle")
            yield Refund(batch, rows, spent)

    def postprocessed(self, places: Places, chain: str) -> tuple[Mask, Bytes]:
        """Return which rows a chain of post-processing rewrote, and digests of the results, shape (rows, 32)."""
        events = {seq for batch in self._batches(places) for seq, name in batch.posts if name == chain}
        mask, digests = self._recorded(places, events, "digest")
        return mask, digests

    def _batches(self, places: Places) -> Iterator[Batch]:
        contents = self._contents.latest()
        return (contents.batches[batch] for batch in places.batches())

    def _recorded(self, places: Places, events: set[int], *names: str) -> tuple[npt.NDArray[Any], ...]:
        """Return which rows some events hold, and what columns of theirs hold of them."""
        outputs = [np.zeros(len(places.batch), np.bool_), *(_zeros(len(places.batch), name) for name in names)]
        keys, order = places.packed(), np.arange(len(places.batch))
        if (keys[1:] < keys[:-1]).any():
            order = np.argsort(keys)
            keys = keys[order]
        for seq in sorted(events) if len(keys) else ():
            columns = self._segments.read(seq, ["batch", "row", *names])
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
    raise LedgerError(f"{problem}: nothing is charged or published", "`dptext ledger verify` lists what differs")
