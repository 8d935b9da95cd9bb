"""Append events to the journal and chain them by hashes (docs/spec/privacy.md#lanes).

The body of an event is canonical JSON and holds the Merkle root of the batch, if there is one. A writer that is alone
writes to lane 0; concurrent writers write to lanes of their own. In a ledger that has one lane, the hash of an
event is SHA-256(tag || hash of the event before || body). In one that has several, the body names the lane and the last
event of every lane that its writer saw, its own one included, and the hash is over their hashes. So an edited,
removed, moved or inserted row breaks a chain or a root. Chains do not show that someone rewrote all of them; an
anchor that was kept elsewhere does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from dptext_etl.artifacts import canon
from dptext_etl.ledger.storage.store import Store
from dptext_etl.ledger.terms import Anchor, Event

LANES = 8
"""How many writers may write in parallel; lane 0 comes next to these. It never changes: numbers rely on it."""
BESIDE = (Event.RESERVE, Event.REPLAY, Event.COMMIT, Event.DIVERGED, Event.SETTLE, Event.POST)
"""Events that writers may append in parallel; before every other event all writers are done."""
HEAD = "head"
"""The name of the head of lane 0 in the table `meta`; those of the others are "head/1" to "head/8"."""
_TAG = b"dptext/ledger/event/v1\0"
_TAG_OF_LANES = b"dptext/ledger/event/v2\0"
_TAG_OF_HEADS = b"dptext/ledger/heads/v1\0"
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


class Head(NamedTuple):
    """The last event of a lane."""

    seq: int
    hash: bytes


def genesis(ledger_id: str) -> bytes:
    """Return the hash that stands before the first event of a ledger."""
    return hashlib.sha256(_GENESIS + ledger_id.encode()).digest()


def link(before: bytes, body: str) -> bytes:
    """Return the hash of an event in a ledger of one lane."""
    return hashlib.sha256(_TAG + before + body.encode()).digest()


def link_lanes(start: bytes, seen: Iterable[bytes], body: str) -> bytes:
    """Return the hash of an event in a ledger of several lanes."""
    return hashlib.sha256(b"".join((_TAG_OF_LANES, start, *seen, body.encode()))).digest()


def over(hashes: list[bytes]) -> bytes:
    """Return one hash over the heads of all lanes, in the order of their numbers: that of the only one, if it is."""
    return hashes[0] if len(hashes) == 1 else hashlib.sha256(b"".join((_TAG_OF_HEADS, *hashes))).digest()


class Journal:
    """Append events to one store, within its transactions, and read them."""

    def __init__(self, store: Store, ledger_id: str, writer: str) -> None:
        self._store = store
        self._ledger_id = ledger_id
        self._genesis = genesis(ledger_id)
        self._writer = writer

    def heads(self) -> dict[int, Head]:
        """Return the last event of every lane that has any, by lane in ascending order."""
        found = self._store.rows("select name, value from meta where name=? or name like ?", (HEAD, f"{HEAD}/%"))
        return dict(sorted((lane_of(name), parse_head(value)) for name, value in found))

    def anchor(self) -> Anchor:
        """Return the heads of all lanes as an anchor: number 0 and the genesis hash for an empty ledger."""
        heads = sorted(self.heads().values()) or [Head(0, self._genesis)]
        others = tuple(head.seq for head in heads[:-1])
        return Anchor(self._ledger_id, heads[-1].seq, over([head.hash for head in heads]).hex(), others)

    def holds(self, anchor: Anchor) -> bool:
        """Return whether the journal holds all heads of an anchor."""
        hashes = [self.hash_of(seq) for seq in (*anchor.others, anchor.seq)]
        found = [known for known in hashes if known is not None]
        return len(found) == len(hashes) and over(found) == bytes.fromhex(anchor.hash)

    def hash_of(self, seq: int) -> bytes | None:
        """Return the hash of an event, the genesis hash for 0, or None if there is no such event."""
        found = self._store.row("select hash from event where seq=?", (seq,))
        return (None if seq else self._genesis) if found is None else found[0]

    def append(self, kind: Event, **facts: Any) -> int:
        """Append one event to the lane of the running transaction, and return its number."""
        if kind not in BESIDE:
            self._store.require_alone()
        lane, heads = self._store.lane, self.heads()
        seq = _next(max((head.seq for head in heads.values()), default=0), lane)
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        said = {"seq": seq, "event": kind.value, "ts": now, "writer": self._writer, **facts}
        if lane or heads.keys() - {0}:
            said |= {"lane": lane, "after": {str(other): head.seq for other, head in heads.items()}}
            body = canon(said).decode()
            sealed = link_lanes(self._genesis, (head.hash for head in heads.values()), body)
        else:
            body = canon(said).decode()
            sealed = link(heads[0].hash if heads else self._genesis, body)
        self._store.execute("insert into event values(?,?,?,?)", (seq, kind.value, body, sealed))
        name = f"{HEAD}/{lane}" if lane else HEAD
        self._store.execute("insert or replace into meta values(?,?)", (name, f"{seq}:{sealed.hex()}"))
        return seq

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


def _next(last: int, lane: int) -> int:
    """Return the number of the next event of a lane: after all that its writer saw, and no other lane's at the time."""
    return last + 1 + (lane - last - 1) % LANES if lane else last + 1


def lane_of(name: str) -> int:
    """Return the lane whose head a name in the table `meta` means."""
    return int(name.partition("/")[2] or 0)


def parse_head(written: str) -> Head:
    """Read a head from the table `meta`."""
    seq, _, sealed = written.partition(":")
    return Head(int(seq), bytes.fromhex(sealed))
