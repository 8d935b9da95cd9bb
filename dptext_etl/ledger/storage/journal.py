"""Append events to the journal, chain them by hashes, and check the chains (docs/spec/privacy.md#lanes).

The body of an event is canonical JSON and holds the Merkle root of the batch, if there is one. New events form one
chain: the hash of an event is SHA-256(tag || hash of the event before || body). Before version 0.3, writers of one
PostgreSQL ledger appended to several chains. There the body names the chain (`lane`) and the last event of every chain
that its writer saw (`after`), its own one included, and the hash is over their hashes; new events of such a ledger
follow all its chains. So an edited, removed, moved or inserted row breaks a chain or a root. Chains do not show that
someone rewrote all of them; an anchor that was kept elsewhere does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from dptext_etl.artifacts import canon
from dptext_etl.ledger.storage.store import Store
from dptext_etl.ledger.types import DECISIONS, Anchor, Event

CONCURRENT_EVENTS = (Event.RESERVE, Event.REPLAY, Event.COMMIT, Event.DIVERGED, Event.SETTLE, Event.POST)
"""Events that writers append next to each other; every other event waits until all writers are done."""
HEAD = "head"
"""The name of the head of chain 0 in the table `meta`; the chains of versions before 0.3 follow a slash."""
APPEND = "append"  # the name of the lock for appending events; a transaction acquires it last
_TAG = b"dptext/ledger/event/v1\0"
_TAG_OF_CHAINS = b"dptext/ledger/event/v2\0"
_TAG_OF_HEADS = b"dptext/ledger/heads/v1\0"
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
    """Return the hash of an event in a ledger with one chain."""
    return hashlib.sha256(_TAG + before + body.encode()).digest()


def event_hash_of_chains(start: bytes, heads: Iterable[bytes], body: str) -> bytes:
    """Return the hash of an event in a ledger with several chains, whose heads precede it."""
    return hashlib.sha256(b"".join((_TAG_OF_CHAINS, start, *heads, body.encode()))).digest()


def heads_hash(hashes: list[bytes]) -> bytes:
    """Return one hash over the heads of all chains in the order of their numbers; a single head is its own."""
    return hashes[0] if len(hashes) == 1 else hashlib.sha256(b"".join((_TAG_OF_HEADS, *hashes))).digest()


def _head_name(chain: int) -> str:
    return f"{HEAD}/{chain}" if chain else HEAD


class Journal:
    def __init__(self, store: Store, ledger_id: str, writer: str) -> None:
        self._store, self._ledger_id = store, ledger_id
        self._genesis = genesis(ledger_id)
        self._writer = writer

    def heads(self) -> dict[int, Head]:
        heads = {}
        for name, value in stored_heads(self._store).items():
            seq, _, digest = value.partition(":")
            heads[int(name.partition("/")[2] or 0)] = Head(int(seq), bytes.fromhex(digest))
        return dict(sorted(heads.items()))

    def anchor(self) -> Anchor:
        """Return the heads of all chains as an anchor: number 0 and the genesis hash for an empty ledger."""
        heads = sorted(self.heads().values()) or [Head(0, self._genesis)]
        others = tuple(head.seq for head in heads[:-1])
        return Anchor(self._ledger_id, heads[-1].seq, heads_hash([head.hash for head in heads]).hex(), others)

    def holds(self, anchor: Anchor) -> bool:
        hashes = []
        for seq in (*anchor.others, anchor.seq):
            row = self._store.row("select hash from event where seq=?", (seq,))
            if row is None and seq:
                return False
            hashes.append(self._genesis if row is None else row[0])
        return heads_hash(hashes) == bytes.fromhex(anchor.hash)

    def append(self, kind: Event, **facts: Any) -> int:
        """Append one event, and return its number.

        The lock is held until the transaction ends: numbers are in the order of commits, and readers see no gaps.
        """
        if kind not in CONCURRENT_EVENTS:
            self._store.require_exclusive()
        facts |= self._store.who() if kind in DECISIONS else {}
        self._store.lock(APPEND)
        heads = self.heads()
        seq = max((head.seq for head in heads.values()), default=0) + 1
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        facts = {"seq": seq, "event": kind.value, "ts": now, "writer": self._writer, **facts}
        if heads.keys() - {0}:  # chains of earlier versions, which this event follows
            facts |= {"lane": 0, "after": {str(chain): head.seq for chain, head in heads.items()}}
            body = canon(facts).decode()
            digest = event_hash_of_chains(self._genesis, (head.hash for head in heads.values()), body)
        else:
            body = canon(facts).decode()
            digest = event_hash(heads[0].hash if heads else self._genesis, body)
        self._store.execute("insert into event values(?,?,?,?)", (seq, kind.value, body, digest))
        self._store.set_meta(HEAD, f"{seq}:{digest.hex()}")
        return seq

    def last(self) -> Head:
        """Return the last event; number 0 and the genesis hash for an empty ledger."""
        row = self._store.row("select seq, hash from event order by seq desc limit 1")
        return Head(0, self._genesis) if row is None else Head(row[0], bytes(row[1]))

    def has_head(self, head: Head) -> bool:
        """Return whether the event of a head is still there; so is the beginning of an empty ledger."""
        row = self._store.row("select hash from event where seq=?", (head.seq,)) if head.seq else None
        return head.seq == 0 or (row is not None and bytes(row[0]) == head.hash)

    def has(self, kind: Event, after: int) -> bool:
        """Return whether an event of a kind has a larger number."""
        return self._store.row("select 1 from event where seq>? and kind=? limit 1", (after, kind)) is not None

    def numbers(self, kind: Event, after: int, upto: int) -> list[int]:
        """Return the numbers of the events of a kind in (after, upto]."""
        query = "select seq from event where seq>? and seq<=? and kind=? order by seq"
        return [seq for (seq,) in self._store.rows(query, (after, upto, kind))]

    def entries(self, *kinds: Event) -> Iterator[Entry]:
        """Iterate over events in order: all, or only some kinds."""
        where = f" where kind in ({','.join('?' * len(kinds))})" if kinds else ""
        for row in self._store.execute(f"select seq, kind, body, hash from event{where} order by seq", kinds):  # noqa: S608
            yield Entry(*row)

    def facts(self, seq: int) -> dict[str, Any]:
        """Return the body of one event; empty if there is no such event."""
        row = self._store.row("select body from event where seq=?", (seq,))
        return {} if row is None else json.loads(row[0])

    def listed(self, name: str) -> list[int]:
        """Return the numbers of events that the table `meta` lists under a name."""
        return [int(seq) for seq in (self._store.meta(name) or "").split()]

    def add_to_list(self, name: str, seq: int) -> None:
        self._store.set_meta(name, " ".join(map(str, [*self.listed(name), seq])))


def stored_heads(store: Store) -> dict[str, str]:
    """Return the heads as the table `meta` has them, "NUMBER:HASH" by name."""
    return dict(store.rows("select name, value from meta where name=? or name like ?", (HEAD, f"{HEAD}/%")))


class Link(NamedTuple):
    """An event in its chain, and the last event of every chain that precedes it, itself included."""

    chain: int
    hash: bytes
    after: Mapping[int, int]


class ChainCheck:
    """Check that every chain is unbroken, and that no event moved before or behind the events that its writer saw."""

    def __init__(self, ledger_id: str) -> None:
        self._genesis = genesis(ledger_id)
        self._last = 0
        self._links: dict[int, Link] = {}
        self._heads: dict[int, int] = {}

    def problems_of(self, entry: Entry) -> Iterator[str]:
        """Read the next event in the order of numbers, and return the problems of its place."""
        what = f"event {entry.seq} ({entry.kind})"
        try:
            facts = entry.facts
            chain, after = int(facts.get("lane", 0)), facts.get("after")
            after = None if after is None else {int(key): int(seq) for key, seq in after.items()}
        except (ValueError, TypeError, AttributeError, KeyError):
            chain, after = 0, None
        if chain == 0 and after is None:
            if self._heads.keys() - {0}:
                yield f"{what}: it does not name the chains before it"
            elif entry.seq != self._last + 1:
                yield f"events {self._last + 1} to {entry.seq - 1} are missing"
            before = self._heads.get(0)
            if event_hash(self._genesis if before is None else self._links[before].hash, entry.body) != entry.hash:
                yield f"{what}: the chain is broken here"
            after = dict(self._heads)
        else:
            after = after or {}
            yield from self._problems_of_chains(entry, what, chain, after)
        self._heads[chain] = self._last = entry.seq
        self._links[entry.seq] = Link(chain, entry.hash, {**after, chain: entry.seq})

    def _problems_of_chains(self, entry: Entry, what: str, chain: int, after: dict[int, int]) -> Iterator[str]:
        valid = {other: seq for other, seq in after.items() if seq in self._links and self._links[seq].chain == other}
        for other in after.keys() - valid.keys():
            yield f"{what}: it follows event {after[other]} of chain {other}, which is missing"
        for other in {chain, 0} if chain else {*self._heads, 0}:
            if after.get(other) != self._heads.get(other) and after.get(other) == valid.get(other):
                why = "and not the event that is there before it: events were added, moved, or written twice"
                yield f"{what}: it follows event {after.get(other, 0)} of chain {other}, {why}"
        ends = [self._links[seq].after for seq in valid.values()]
        if any(seq > after.get(other, 0) for each in ends for other, seq in each.items()):
            yield f"{what}: it follows events that come after others which it does not follow"
        hashes = (self._links[after[other]].hash for other in sorted(after))
        if len(valid) < len(after) or event_hash_of_chains(self._genesis, hashes, entry.body) != entry.hash:
            yield f"{what}: the chain is broken here"

    def problems_of_heads(self, stored: Mapping[str, str]) -> Iterator[str]:
        """Compare the ends of the chains with the heads that the ledger stores."""
        heads = {_head_name(chain): f"{seq}:{self._links[seq].hash.hex()}" for chain, seq in self._heads.items()}
        for name in sorted({*heads, *stored}):
            if heads.get(name) != stored.get(name):
                seq = int(heads.get(name, "0").partition(":")[0])
                where = "the journal" if name == HEAD else f"chain {name.partition('/')[2]} of the journal"
                yield f"{where} ends at event {seq}, which is not the head that the ledger remembers"
