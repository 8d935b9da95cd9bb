"""Look up what the ledger holds of records and units: once for all that a run asks for, then only what is new.

The ledger stores no index. The batches of a release or a scope are gone through in the order in which they were sealed,
and each id is looked for among those that are asked for, which are sorted. So a plan takes one pass over the history of
its dataset and scope, and its memory follows from its own ids, about 80 bytes per record, not from the ledger.

A plan is never wrong, only late: it says up to which event it has read (`_as_of`), and `catch_up` reads what was
committed after that, whoever wrote it. Writers catch up once more when they hold their locks. A plan never takes for
granted what its own process wrote: a transaction may be rolled back, or its answer lost.

Specification: docs/spec/ledger-plan.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dptext_etl.guarantee import PURE
from dptext_etl.ledger.caps import LARGEST, Pinned
from dptext_etl.ledger.storage.hashed_ids import (
    HashedIds,
    Index,
    Values,
    WantedIds,
    concatenated,
    hashed_ids,
    plus,
    sums,
)
from dptext_etl.ledger.storage.records import Holdings, Places
from dptext_etl.ledger.types import I64, NEW, Event, Mask, ReleaseRef, State

if TYPE_CHECKING:
    from dptext_etl.ledger.database import Database

RECENT = 4
"""Batches whose plans are kept between their reservation and their commit: as many as are under way at a time."""
BLOCK = 1 << 17
"""Ids in a block, at least, but for the last one: many small batches are gone through together."""
KEPT = 1 << 23
"""Ids that are kept in memory, in all columns of a ledger: 200 MB. Later batches are read again for each plan."""
ACCEPTED_UNITS = "units/"
"""The prefix of names under which `meta` says up to which event the records of a dataset may have other units."""
REFUNDED = (PURE,)
"""The components of a cap of which committed rows may give a part back."""


class Block(NamedTuple):
    """Ids of consecutive batches, and their packed places in ascending order, shape (ids,)."""

    ids: HashedIds
    places: I64


class Keys:
    """The ids in a column of the batches of a release or a scope: read once, as far as they fit into memory."""

    def __init__(self) -> None:
        self._blocks: dict[tuple[str, str], list[Block]] = {}
        self._read: dict[tuple[str, str], int] = {}  # the last batch that is kept
        self._full = False

    def blocks(self, db: Database, column: str, where: str, after: int, upto: int) -> Iterator[Block]:
        """Iterate over the ids of the batches with numbers in (after, upto], in the order of their numbers."""
        key = column, where
        for block in self._blocks.get(key, ()):
            begin, end = np.searchsorted(block.places, [(after + 1) << 32, (upto + 1) << 32]).tolist()
            if begin < end:
                yield Block(block.ids.take(slice(begin, end)), block.places[begin:end])
        read, pending, size = self._read.get(key, 0), list[Block](), 0
        query = f"select seq from batch where {where} and seq>? and seq<=? order by seq"  # noqa: S608  (numbers)
        for (seq,) in db.store.rows(query, (max(read, after) if self._full else read, upto)):
            ids = hashed_ids(db.segments.read(seq, [column])[column])
            block = Block(ids, (np.int64(seq) << np.int64(32)) + np.arange(ids.size))
            self._keep(key, seq, block)
            if seq > after:
                pending.append(block)
                size += ids.size
            if size >= BLOCK:
                yield _joined(pending)
                pending, size = [], 0
        if pending:
            yield _joined(pending)

    def clear(self) -> None:
        self._blocks.clear()
        self._read.clear()
        self._full = False

    def _keep(self, key: tuple[str, str], seq: int, block: Block) -> None:
        kept = self._blocks.setdefault(key, [])
        self._full |= sum(len(item.places) for blocks in self._blocks.values() for item in blocks) > KEPT
        if self._full:
            return  # a batch that is left out ends what is kept of a column: it must have no gaps
        self._read[key] = seq
        if kept and len(kept[-1].places) + len(block.places) <= BLOCK:
            kept[-1] = _joined([kept[-1], block])
        else:
            kept.append(block)


class Held(NamedTuple):
    """What a release holds of the records of a plan, shape (records,): packed places, 0 for none, and identities.

    Memory that holds zeros only is not taken: a plan for new records is small.
    """

    places: I64
    idem_keys: HashedIds

    @classmethod
    def nothing(cls, size: int) -> Held:
        return cls(np.zeros(size, np.int64), HashedIds(np.zeros(size, np.uint64), np.zeros(size, np.uint64)))


class LedgerPlan:
    """What the ledger holds of some records of a dataset, and what some units have used of a cap.

    States are not part of it: they change without a new place, so every answer reads them.
    """

    def __init__(self, dataset: str, records: WantedIds, units: WantedIds) -> None:
        self.dataset, self.records, self.units = dataset, records, units
        self._start()

    def _start(self) -> None:
        self._as_of, self._hash = 0, b""
        self._held: dict[tuple[int, int], Held] = {}
        self._units: Held | None = None  # the unit that each record was charged to last, in any release of the dataset
        self._since = 0  # charges up to this event bind no record to a unit (`accept_units`)
        self._scope: tuple[int, tuple[str, ...]] = NEW, ()
        self.used = np.zeros((0, self.units.ids.size), np.int64)

    def catch_up(self, db: Database, refs: Sequence[ReleaseRef], pinned: Pinned | None = None) -> None:
        """Read what was committed since the last call, or everything, if something else is asked for than before."""
        seq, head = db.journal.last()
        releases = {(ref.id, ref.nonce) for ref in refs if ref.id != NEW}
        scope = self._scope if pinned is None else (pinned.id, pinned.components)
        bound = bool(self.records.ids.size) and db.scopes.per_subject(self.dataset)
        if self._as_of and self._is_outdated(db, releases - self._held.keys(), scope, bound=bound):
            self._start()
        size = self.records.ids.size
        self._held |= {release: Held.nothing(size) for release in releases - self._held.keys()}
        if bound and self._units is None:
            self._units, self._since = Held.nothing(size), int(db.store.meta(f"{ACCEPTED_UNITS}{self.dataset}") or 0)
        if scope != self._scope:
            self._scope, self.used = scope, np.zeros((len(scope[1]), self.units.ids.size), np.int64)
        if seq > self._as_of:
            self._take_records(db, seq)
            self._take_amounts(db, seq)
            self._as_of, self._hash = seq, head

    def _is_outdated(
        self, db: Database, releases: set[tuple[int, int]], scope: tuple[int, tuple[str, ...]], *, bound: bool
    ) -> bool:
        """Return whether the plan lacks something of the batches that it has read, or holds what no longer counts."""
        row = db.store.row("select hash from event where seq=?", (self._as_of,))
        if row is None or bytes(row[0]) != self._hash:  # a transaction was rolled back, or the ledger was restored
            db.keys.clear()
            return True
        taking_back = "select 1 from event where seq>? and kind in (?,?) limit 1"
        if db.store.row(taking_back, (self._as_of, *_TAKING_BACK)) is not None:
            return True
        lacking: list[tuple[str, tuple[object, ...]]] = [("release=? and nonce=?", release) for release in releases]
        if scope != self._scope:
            lacking.append(("scope=?", scope[:1]))
        if bound and self._units is None:
            lacking.append(("release in (select id from release where dataset=?)", (self.dataset,)))
        return any(
            db.store.row(f"select 1 from batch where seq<=? and {where} limit 1", (self._as_of, *values))  # noqa: S608
            for where, values in lacking
        )

    def _take_records(self, db: Database, upto: int) -> None:
        releases = set(self._held)
        if self._units is not None:
            releases |= {(ref.id, ref.nonce) for ref in db.releases.of_dataset(self.dataset)}
        for release, nonce in sorted(releases):
            held = self._held.get((release, nonce))
            for block in db.keys.blocks(db, "record", f"release={release} and nonce={nonce}", self._as_of, upto):
                rows, at = self.records.find(block.ids)
                places = block.places[rows]
                if (at[1:] == at[:-1]).any():  # given back or charged again, and reserved once more: the last one holds
                    order = np.lexsort((places, at))
                    order = order[np.append(at[order][1:] != at[order][:-1], True)]
                    at, places = at[order], places[order]
                if held is not None and len(at):
                    _put(held, at, places, hashed_ids(db.records.reserved(Places.unpack(places), "idem_key")))
                if self._units is not None:
                    self._bind(db, self._units, at, places)

    def _bind(self, db: Database, units: Held, at: Index, places: I64) -> None:
        """Note the units that records were charged to, unless it was given back, or a later charge is known."""
        binding = (places >> 32 > self._since) & (places > units.places[at])
        binding[binding] = db.records.states_of(Places.unpack(places[binding])) != State.ABORTED
        if binding.any():
            at, places = at[binding], places[binding]
            _put(units, at, places, hashed_ids(db.records.reserved(Places.unpack(places), "unit")))

    def _take_amounts(self, db: Database, upto: int) -> None:
        """Add up what units used: what was reserved and not given back, less what committed rows gave back."""
        number, names = self._scope
        if not names:
            return
        for block in db.keys.blocks(db, "unit", f"scope={number}", self._as_of, upto):
            rows, at = self.units.find(block.ids)
            places = Places.unpack(block.places[rows])
            amounts = np.stack([np.minimum(db.records.reserved(places, name), LARGEST) for name in names])
            self._add(at, np.where(db.records.states_of(places) == State.ABORTED, 0, amounts))
        for seq in db.journal.numbers(Event.SETTLE, self._as_of, upto) if names == REFUNDED else ():
            columns = db.segments.read(seq, ["batch", "row", PURE])
            for batch, group in Places(columns["batch"], columns["row"]).groups():
                if db.scopes.of_batch(batch).id == number:
                    charged, where = db.segments.read(batch, ["unit", PURE]), columns["row"][group]
                    rows, at = self.units.find(hashed_ids(charged["unit"][where]))
                    self._add(at, (columns[PURE][group] - charged[PURE][where])[None, rows])

    def _add(self, at: Index, amounts: Values) -> None:
        if len(at):
            starts = np.flatnonzero(np.append(True, at[1:] != at[:-1]))
            some = at[starts]
            self.used[:, some] = plus(self.used[:, some], sums(amounts, starts))

    def places_of(self, records: HashedIds, units: HashedIds) -> tuple[Index, Index] | None:
        """Return the places of records and units in this plan, or None if it lacks one of them."""
        at = self.records.places(records)
        of_units = None if at is None else self.units.places(units)
        return None if at is None or of_units is None else (at, of_units)

    def holdings(self, db: Database, ref: ReleaseRef, at: Index) -> Holdings:
        """Return what a release holds of the records at some places of this plan, shape (places,)."""
        held = self._held.get((ref.id, ref.nonce)) or Held.nothing(self.records.ids.size)
        places = Places.unpack(held.places[at])
        known, state = held.places[at] > 0, np.zeros(len(at), np.uint8)
        state[known] = db.records.states_of(places.take(known))
        known &= ~(known & (state == State.ABORTED))
        return Holdings(known, held.idem_keys.take(at), places, state)

    def places(self, ref: ReleaseRef, at: Index) -> I64:
        """Return the packed places of records in a release, shape (places,); 0 for those that it has never seen."""
        held = self._held.get((ref.id, ref.nonce))
        return np.zeros(len(at), np.int64) if held is None else held.places[at]

    def moved(self, at: Index, units: HashedIds) -> Mask:
        """Return which records were charged to another unit than these before, shape (places,)."""
        if self._units is None:
            return np.zeros(len(at), np.bool_)
        moved: Mask = (self._units.places[at] > 0) & ~self._units.idem_keys.take(at).equal(units)
        return moved


class Plans:
    """The plans of an open ledger: that of its run, if it has one, and those of the last batches."""

    def __init__(self) -> None:
        self.run: LedgerPlan | None = None
        self._recent: deque[LedgerPlan] = deque(maxlen=RECENT)

    def covering(
        self, dataset: str, records: HashedIds, order: Index | None = None, units: HashedIds | None = None
    ) -> tuple[LedgerPlan, Index, Index]:
        """Return a plan that covers records and units, their places in it, and those of the units.

        Args:
            dataset: The dataset of the records.
            records: Record ids, each once.
            order: Their ascending order, where the caller knows it.
            units: Units; an id of zeros, as canary rows have, has the place 0 and stands for no unit.
        """
        some = _NO_IDS if units is None else units
        real = (some.hi != 0) | (some.lo != 0)
        wanted = some.take(real)
        for plan in (*([] if self.run is None else [self.run]), *reversed(self._recent)):
            if plan.dataset == dataset and (found := plan.places_of(records, wanted)) is not None:
                break
        else:
            plan = LedgerPlan(dataset, WantedIds(records, order), WantedIds(wanted))
            self._recent.append(plan)
            found = plan.places_of(records, wanted)
        at, unit_at = found or (_NO_PLACES, _NO_PLACES), np.zeros(some.size, np.intp)
        unit_at[real] = at[1]
        return plan, at[0], unit_at


_NO_PLACES = np.zeros(0, np.intp)
_NO_IDS = concatenated(())
_TAKING_BACK = Event.ABORT, Event.UNITS
"""Events after which a plan is read anew: they undo what earlier events said."""


def _put(held: Held, at: Index, places: I64, ids: HashedIds) -> None:
    held.places[at] = places
    held.idem_keys.hi[at], held.idem_keys.lo[at] = ids


def _joined(blocks: Sequence[Block]) -> Block:
    return Block(concatenated(item.ids for item in blocks), np.concatenate([item.places for item in blocks]))
