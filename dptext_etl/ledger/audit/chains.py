"""Check the chains of the journal: every lane is whole, and no event moved before or behind what its writer saw.

Specification: docs/spec/privacy.md#lanes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dptext_etl.ledger.storage.journal import HEAD, Entry, genesis, link, link_lanes


class Link(NamedTuple):
    """An event in its chain.

    Attributes:
        lane: Its lane.
        hash: Its hash.
        seen: The last event of every lane that it stands behind, itself included, by lane.
    """

    lane: int
    hash: bytes
    seen: Mapping[int, int]


class Chains:
    """Follow the events of a journal in the order of their numbers."""

    def __init__(self, ledger_id: str) -> None:
        self._genesis = genesis(ledger_id)
        self._last = 0
        self._links: dict[int, Link] = {}
        self._heads: dict[int, int] = {}

    def follow(self, entry: Entry) -> Iterator[str]:
        """Take the next event, and say what is wrong with its place."""
        what = f"event {entry.seq} ({entry.kind})"
        try:
            lane, after = _named(entry)
        except (ValueError, TypeError, AttributeError, KeyError):
            lane, after = 0, None
        if lane == 0 and after is None:
            yield from self._follow_alone(entry, what)
        else:
            yield from self._follow_beside(entry, what, lane, after or {})
        self._last = entry.seq

    def _follow_alone(self, entry: Entry, what: str) -> Iterator[str]:
        """Follow an event that names no lane: it stands behind all others, each number by one higher."""
        if self._heads.keys() - {0}:
            yield f"{what}: it does not name the lanes before it"
        elif entry.seq != self._last + 1:
            yield f"events {self._last + 1} to {entry.seq - 1} are missing"
        before = self._heads.get(0)
        if link(self._genesis if before is None else self._links[before].hash, entry.body) != entry.hash:
            yield f"{what}: the chain is broken here"
        self._take(entry, 0, dict(self._heads))

    def _follow_beside(self, entry: Entry, what: str, lane: int, after: dict[int, int]) -> Iterator[str]:
        known = {other: seq for other, seq in after.items() if seq in self._links and self._links[seq].lane == other}
        for other in after.keys() - known.keys():
            yield f"{what}: it follows event {after[other]} of lane {other}, which is missing"
        for other in {lane, 0} if lane else {*self._heads, 0}:
            if after.get(other) != self._heads.get(other) and after.get(other) == known.get(other):
                said = "and not what stands there before it: events were added, moved, or written twice"
                yield f"{what}: it follows event {after.get(other, 0)} of lane {other}, {said}"
        seen = [self._links[seq].seen for seq in known.values()]
        if any(seq > after.get(other, 0) for each in seen for other, seq in each.items()):
            yield f"{what}: it follows events that stand behind others which it does not follow"
        if len(known) < len(after) or (
            link_lanes(self._genesis, (self._links[after[other]].hash for other in sorted(after)), entry.body)
            != entry.hash
        ):
            yield f"{what}: the chain is broken here"
        self._take(entry, lane, after)

    def _take(self, entry: Entry, lane: int, after: dict[int, int]) -> None:
        self._heads[lane] = entry.seq
        self._links[entry.seq] = Link(lane, entry.hash, {**after, lane: entry.seq})

    def ends(self, stored: Mapping[str, str]) -> Iterator[str]:
        """Compare the ends of the lanes with the heads that the ledger remembers."""
        heads = {name(lane): f"{seq}:{self._links[seq].hash.hex()}" for lane, seq in self._heads.items()}
        for which in sorted({*heads, *stored}):
            if heads.get(which) != stored.get(which):
                seq = int(heads.get(which, "0").partition(":")[0])
                where = "the journal" if which == HEAD else f"lane {which.partition('/')[2]} of the journal"
                yield f"{where} ends at event {seq}, which is not the head that the ledger remembers"


def name(lane: int) -> str:
    """Return the name of the head of a lane in the table `meta`."""
    return f"{HEAD}/{lane}" if lane else HEAD


def _named(entry: Entry) -> tuple[int, dict[int, int] | None]:
    """Return the lane of an event and the events that it follows, as its body names them."""
    facts: dict[str, Any] = entry.facts
    after = facts.get("after")
    return int(facts.get("lane", 0)), None if after is None else {int(key): int(seq) for key, seq in after.items()}
