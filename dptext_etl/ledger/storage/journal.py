"""Append events to the journal and chain them by hashes (docs/spec/privacy.md#segments).

The hash of an event is SHA-256(tag || hash of the event before || body). The body is canonical JSON and holds the
Merkle root of the batch, if there is one. So an edited, removed, moved or inserted row breaks the chain or a root. The
chain does not show that somebody rewrote all of it; an anchor that was kept elsewhere does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from dptext_etl.artifacts import canon
from dptext_etl.ledger.storage.store import Store
from dptext_etl.ledger.terms import Event

_TAG = b"dptext/ledger/event/v1\0"
_GENESIS = b"dptext/ledger/genesis/v1\0"


class Entry(NamedTuple):
    """One event of the journal."""

    seq: int
    kind: str
    body: str
    hash: bytes

    @property
    def facts(self) -> dict[str, Any]:
        """The body of the event, as data."""
        facts: dict[str, Any] = json.loads(self.body)
        return facts


def genesis(ledger_id: str) -> bytes:
    """Return the hash that stands before the first event of a ledger."""
    return hashlib.sha256(_GENESIS + ledger_id.encode()).digest()


def link(before: bytes, body: str) -> bytes:
    """Return the hash of an event."""
    return hashlib.sha256(_TAG + before + body.encode()).digest()


class Journal:
    """Append events to one store, within its transactions, and read them.

    Args:
        store: The store of the ledger.
        ledger_id: The name of the ledger.
        writer: A random name of this process; every event holds it.
    """

    def __init__(self, store: Store, ledger_id: str, writer: str) -> None:
        self._store = store
        self._genesis = genesis(ledger_id)
        self._writer = writer

    def head(self) -> tuple[int, bytes]:
        """Return number and hash of the last event: 0 and the genesis hash for an empty ledger."""
        found = self._store.row("select seq, hash from event order by seq desc limit 1")
        return (0, self._genesis) if found is None else (found[0], found[1])

    def hash_of(self, seq: int) -> bytes | None:
        """Return the hash of an event, the genesis hash for 0, or None if there is no such event."""
        found = self._store.row("select hash from event where seq=?", (seq,))
        return (None if seq else self._genesis) if found is None else found[0]

    def append(self, kind: Event, **facts: Any) -> int:
        """Append one event and return its number."""
        last, before = self.head()
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        body = canon({"seq": last + 1, "event": kind.value, "ts": now, "writer": self._writer, **facts}).decode()
        sealed = link(before, body)
        self._store.execute("insert into event values(?,?,?,?)", (last + 1, kind.value, body, sealed))
        self._store.execute("insert or replace into meta values('head',?)", (f"{last + 1}:{sealed.hex()}",))
        return last + 1

    def entries(self, *kinds: Event) -> Iterator[Entry]:
        """Iterate over events in order: all, or those of some kinds."""
        chosen = f" where kind in ({','.join('?' * len(kinds))})" if kinds else ""
        cursor = self._store.execute(f"select seq, kind, body, hash from event{chosen} order by seq", kinds)  # noqa: S608
        for row in cursor:
            yield Entry(*row)

    def facts(self, seq: int) -> dict[str, Any]:
        """Return the body of one event; empty if there is no such event."""
        found = self._store.row("select body from event where seq=?", (seq,))
        return {} if found is None else json.loads(found[0])
