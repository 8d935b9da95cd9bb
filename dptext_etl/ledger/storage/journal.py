"""The journal: every event, in order, chained by hashes (docs/spec/privacy.md#segments).

The hash of an event is SHA-256(tag || hash of the event before || body); its body is canonical JSON that holds the
Merkle root of the batch, if there is one. Whoever edits, removes, reorders or inserts a row breaks the chain or a root;
whoever rewrites the whole chain is caught by a head that was stored elsewhere, not by the chain.
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
    """One event as it stands in the journal."""

    seq: int
    kind: str
    body: str
    hash: bytes

    @property
    def facts(self) -> dict[str, Any]:
        """What the event says."""
        facts: dict[str, Any] = json.loads(self.body)
        return facts


def genesis(ledger_id: str) -> bytes:
    """Return what stands before the first event of a ledger."""
    return hashlib.sha256(_GENESIS + ledger_id.encode()).digest()


def link(before: bytes, body: str) -> bytes:
    """Return the hash of an event."""
    return hashlib.sha256(_TAG + before + body.encode()).digest()


class Journal:
    """Appends to the journal of one store, within its transactions."""

    def __init__(self, store: Store, ledger_id: str, writer: str) -> None:
        self._store = store
        self._genesis = genesis(ledger_id)
        self._writer = writer

    def head(self) -> tuple[int, bytes]:
        """Return number and hash of the last event; 0 and the genesis hash of an empty ledger."""
        found = self._store.row("select seq, hash from event order by seq desc limit 1")
        return (0, self._genesis) if found is None else (found[0], found[1])

    def hash_of(self, seq: int) -> bytes | None:
        """Return the hash of an event, that of an empty ledger for 0, or None if there is no such event."""
        found = self._store.row("select hash from event where seq=?", (seq,))
        return (None if seq else self._genesis) if found is None else found[0]

    def append(self, kind: Event, **facts: Any) -> int:
        """Write one event and return its number."""
        last, before = self.head()
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        body = canon({"seq": last + 1, "event": kind.value, "ts": now, "writer": self._writer, **facts}).decode()
        sealed = link(before, body)
        self._store.execute("insert into event values(?,?,?,?)", (last + 1, kind.value, body, sealed))
        self._store.execute("insert or replace into meta values('head',?)", (f"{last + 1}:{sealed.hex()}",))
        return last + 1

    def entries(self, *kinds: Event) -> Iterator[Entry]:
        """Iterate over events in order, all or those of some kinds."""
        chosen = f" where kind in ({','.join('?' * len(kinds))})" if kinds else ""
        cursor = self._store.execute(f"select seq, kind, body, hash from event{chosen} order by seq", kinds)  # noqa: S608
        for row in cursor:
            yield Entry(*row)

    def facts(self, seq: int) -> dict[str, Any]:
        """Return what one event says."""
        found = self._store.row("select body from event where seq=?", (seq,))
        return {} if found is None else json.loads(found[0])
