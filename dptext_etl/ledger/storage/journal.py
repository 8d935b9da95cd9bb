"""Append events to the journal, chain them by hashes, and read them (docs/spec/privacy.md#lanes).

The body of an event is canonical JSON and holds the Merkle root of the batch, if there is one. The hash of an event is
SHA-256(tag || hash of the event before || body). So an edited, removed, moved, or inserted event breaks the chain. The
chain does not show that someone rewrote all of it; an anchor that was kept elsewhere does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

from dptext_etl.artifacts import canon
from dptext_etl.ledger.storage.store import Store
from dptext_etl.ledger.types import DECISIONS, Anchor, Event

CONCURRENT_EVENTS = (Event.RESERVE, Event.REPLAY, Event.COMMIT, Event.DIVERGED, Event.SETTLE, Event.POST)
"""Events that writers append next to each other; every other event waits until all writers are done."""
APPEND = "append"  # the name of the lock for appending events; a transaction acquires it last
_TAG = b"dptext/ledger/event/v1\0"  # so that the hash of an event is the hash of nothing else
_GENESIS = b"dptext/ledger/genesis/v1\0"


class Entry(NamedTuple):
    seq: int
    kind: str
    body: str
    hash: bytes

    @property
    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(self.body)
        return facts


class Head(NamedTuple):
    seq: int
    hash: bytes


def genesis(ledger_id: str) -> bytes:
    return hashlib.sha256(_GENESIS + ledger_id.encode()).digest()


def event_hash(before: bytes, body: str) -> bytes:
    return hashlib.sha256(_TAG + before + body.encode()).digest()


class Journal:
    def __init__(self, store: Store, ledger_id: str, writer: str) -> None:
        self._store, self._ledger_id = store, ledger_id
        self.genesis = genesis(ledger_id)
        self._writer = writer
        self._rehearsed: list[Entry] | None = None  # events of a rehearsal, which the store never gets

    def anchor(self) -> Anchor:
        """Return the last event as an anchor: number 0 and the genesis hash for an empty ledger."""
        head = self.last()
        return Anchor(self._ledger_id, head.seq, head.hash.hex())

    def holds(self, anchor: Anchor) -> bool:
        return self.has_head(Head(anchor.seq, bytes.fromhex(anchor.hash)))

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        """Hold back all events of the block in memory, over one snapshot, and forget them at its end.

        Events are checked as in a transaction. No lock is held against writers, and no right to write is needed.
        """
        with self._store.snapshot():
            outer = self._rehearsed
            self._rehearsed = [] if outer is None else outer
            try:
                yield
            finally:
                self._rehearsed = outer

    def append(self, kind: Event, **facts: Any) -> int:
        """Append one event, and return its number.

        The lock is held until the transaction ends: numbers are in the order of commits, and readers see no gaps.
        """
        # Such an event binds every writer (releases, caps, freezes), so no other writer may be at work meanwhile.
        if kind not in CONCURRENT_EVENTS:
            self._store.require_exclusive()
        facts |= self._store.who() if kind in DECISIONS else {}
        if self._rehearsed is None:
            self._store.lock(APPEND)
        last = self.last()
        seq, now = last.seq + 1, datetime.now(UTC).isoformat(timespec="milliseconds")
        body = canon({"seq": seq, "event": kind.value, "ts": now, "writer": self._writer, **facts}).decode()
        entry = Entry(seq, kind.value, body, event_hash(last.hash, body))
        if self._rehearsed is None:
            self._store.execute("insert into event values(?,?,?,?)", entry)
        else:
            self._rehearsed.append(entry)
        return seq

    def last(self) -> Head:
        """Return the last event; number 0 and the genesis hash for an empty ledger."""
        if self._rehearsed:
            return Head(self._rehearsed[-1].seq, self._rehearsed[-1].hash)
        row = self._store.row("select seq, hash from event order by seq desc limit 1")
        return Head(0, self.genesis) if row is None else Head(row[0], bytes(row[1]))

    def has_head(self, head: Head) -> bool:
        """Return whether the event of a head is still there; so is the beginning of an empty ledger."""
        if not head.seq:
            return head.hash == self.genesis
        if any((entry.seq, entry.hash) == head for entry in self._rehearsed or ()):
            return True
        row = self._store.row("select hash from event where seq=?", (head.seq,))
        return row is not None and bytes(row[0]) == head.hash

    def entries(self, *kinds: Event, after: int | None = None) -> Iterator[Entry]:
        """Iterate over events in order: all, or only some kinds, and only those with larger numbers."""
        clauses = [f"kind in ({','.join('?' * len(kinds))})"] if kinds else []
        clauses += [] if after is None else ["seq>?"]
        where = f" where {' and '.join(clauses)}" if clauses else ""
        values = kinds if after is None else (*kinds, after)
        for row in self._store.execute(f"select seq, kind, body, hash from event{where} order by seq", values):  # noqa: S608
            yield Entry(*row)
        for entry in self._rehearsed or ():
            if (not kinds or entry.kind in kinds) and (after is None or entry.seq > after):
                yield entry

    def facts(self, seq: int) -> dict[str, Any]:
        """Return the body of one event; empty if there is no such event."""
        row = self._store.row("select body from event where seq=?", (seq,))
        return {} if row is None else json.loads(row[0])
