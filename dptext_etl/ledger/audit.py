"""Read the journal from its first event, and check every sealed row: roots, states, uniqueness, and caps.

`Contents` checks every event as it does for each call, and `Records` the rows that an event names. This module checks
the rest: that is too slow for a call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from dptext_etl.accounting import MEASURES
from dptext_etl.errors import LedgerError, UnavailableLedgerError
from dptext_etl.guarantee import PURE
from dptext_etl.ledger.caps import LARGEST
from dptext_etl.ledger.contents import COUNTED, COUNTS, MALFORMED
from dptext_etl.ledger.holdings import Database, Places
from dptext_etl.ledger.storage.hashed_ids import SATURATED, HashedIds, Index, Values, concatenated
from dptext_etl.ledger.storage.journal import LAYOUTS, Entry, IdRange, ScannedRows, id_ranges, root
from dptext_etl.ledger.types import I64, U8, Event, State, VerifyReport

Charges = tuple[HashedIds, I64, Values]
"""Units, the numbers of the events that charged them, and amounts, shape (components, charges)."""


class Verification:
    """The contents of a ledger, the state of every row, and problems."""

    def __init__(self, db: Database) -> None:
        self._db, self.contents = db, db.contents
        self.problems = dict[str, None]()  # each once, in their order
        self.events: Counter[str] = Counter()
        self.blobs: dict[int, set[str]] = {}
        self.rewritten = 0
        self.aborted: dict[int, list[tuple[int, Index]]] = {}
        self.settled: dict[int, list[tuple[int, Index, I64]]] = {}
        for entry in db.journal.entries():
            self.events[entry.kind] += 1
            self.problems |= dict.fromkeys(self.contents.take(entry))
            with self._noting(f"event {entry.seq} ({entry.kind})"):
                self._check_rows(entry)
        # Name the events that lack a blob, and blobs that belong to no event
        stored: dict[int, set[str]] = {}
        for seq, name in db.store.rows("select seq, name from segment"):
            stored.setdefault(seq, set()).add(name)
        for seq in sorted({*self.blobs, *stored}):
            if self.blobs.get(seq, set()) != stored.get(seq, set()):
                self.note(f"blobs of batch {seq}: they differ from the journal")
        self.states = {seq: self._states(seq) for seq in self.contents.batches}
        for seq in self.contents.settlements:
            with self._noting(f"event {seq} (SETTLE)"):
                for batch, rows, spent in db.records.refunds(seq):
                    self.settled.setdefault(batch, []).append((seq, rows, spent))
        # Compare the states of rows with the counts of their release, which events state
        for key, batches in self.contents.of_release.items():
            counts = np.bincount(np.concatenate([self.states[seq] for seq in batches]), minlength=len(State))
            stated = self.contents.count(key)
            if any(counts[State[name.upper()]] != stated[name] for name in COUNTED.values() if name != "diverged"):
                release = self.contents.releases[key[0]]
                self.note(f"{release}: its events state other counts than the states of its rows")

    def note(self, problem: str) -> None:
        self.problems[problem] = None

    @contextmanager
    def _noting(self, event: str) -> Iterator[None]:
        """Add the error of a block to the problems."""
        try:
            yield
        except UnavailableLedgerError:
            raise
        except LedgerError as error:
            self.note(error.message)
        except MALFORMED as exc:
            self.note(f"{event}: it cannot be read ({type(exc).__name__})")

    def _check_rows(self, entry: Entry) -> None:
        kind, facts = Event(entry.kind), entry.facts
        if kind not in LAYOUTS:
            return
        name = f"batch {entry.seq} ({kind})"
        self.blobs[entry.seq] = {name for name, rule in facts["columns"].items() if "bytes" in rule or "raw" in rule}
        columns = self._db.journal.read(entry.seq, [name for name, _ in LAYOUTS[kind]], facts)
        if root(kind, columns).hex() != facts["root"]:
            self.note(f"{name}: its Merkle root differs: a row was edited, added, removed or moved")
        if "batch" in columns and np.unique(columns["batch"]).tolist() != facts["batches"]:
            self.note(f"{name}: it names other batches than its rows do")
        if kind == Event.RESERVE:
            canary = columns["canary"] == 1
            if columns["unit"][canary].any() or (columns["canary"] > 1).any():
                self.note(f"{name}: a canary row has a subject")
            if int(canary.sum()) != facts["canaries"]:
                self.note(f"{name}: it states another number of canary rows")
        elif kind in {Event.COMMIT, Event.DIVERGED}:
            reserved = self._db.records.reserved(Places(columns["batch"], columns["row"]), "n_worst")
            if (columns["positions"] > reserved).any():
                self.note(f"{name}: more positions than were reserved")

    def _states(self, seq: int) -> U8:
        """Return the states of a batch, and check that each row was committed and rewritten once under a chain."""
        batch, records = self.contents.batches[seq], self._db.records
        states = np.zeros(batch.rows, np.uint8)
        with self._noting(f"batch {seq} (RESERVE)"):
            states = records.states(seq)
            ends = [at for at, kind, _ in batch.moves if kind == Event.ABORT]
            self.aborted[seq] = [(event, records.rows(event, seq)) for event in ends]
            for chain in dict.fromkeys(name for _, name in batch.posts):
                rows = np.concatenate([records.rows(event, seq) for event, name in batch.posts if name == chain])
                self.rewritten += len(rows)
                if len(np.unique(rows)) < len(rows) or not (states[rows] == State.COMMITTED).all():
                    last = max(event for event, name in batch.posts if name == chain)
                    problem = f"rows of batch {seq} are not in a state in which this event can rewrite them"
                    self.note(f"batch {last} (POST): {problem}")
        return states


def verify(db: Database) -> VerifyReport:
    """Check the chain, roots, states, uniqueness, and caps.

    The report names the batch of every row that was edited, removed, reordered or inserted. If someone rewrites the
    whole ledger consistently, only an anchor that was kept elsewhere shows it.
    """
    db = Database(db.store, None)  # use nothing that was read before
    ledger = Verification(db)
    contents = ledger.contents
    for (release, _), batches in sorted(contents.of_release.items()):
        for within in id_ranges(_rows(ledger, batches)):
            for key, what in (("record", "a record"), ("idem_key", "an identity")):
                # Add a problem for every id that occurs twice; rows that were aborted, or released again, do not count
                ids, of = list[HashedIds](), [np.zeros(0, np.int64)]
                for item in _scan(db, within, [seq for seq in batches if not contents.batches[seq].again], key, []):
                    alive = ledger.states[item.batch][item.rows] != State.ABORTED
                    ids.append(item.ids.take(alive))
                    of.append(np.full(ids[-1].size, item.batch, np.int64))
                record_ids, seqs = concatenated(ids), np.concatenate(of)
                order = record_ids.order()
                repeated = np.delete(order, record_ids.take(order).starts())
                for seq in np.unique(seqs[repeated]).tolist():
                    ledger.note(f"batch {seq} (RESERVE): {what} occurs twice in {contents.releases[release]}")
    # Judge each charge of a capped scope by the cap of its time, and by its components
    for number, history in contents.caps.items():
        ends = [seq for seq, _, _ in history[1:]] + [np.iinfo(np.int64).max]
        for measure in dict.fromkeys(name for _, name, _ in history):
            pairs = zip(history, ends, strict=True)
            spans = [(since, until, limits) for (since, name, limits), until in pairs if name == measure]
            batches = [seq for seq in contents.of_scope.get(number, ()) if seq < spans[-1][1]]
            for within in id_ranges(_rows(ledger, batches)):
                of_range = charges(db, ledger, within, batches, MEASURES[measure])
                _check_caps(ledger, of_range, np.array(batches, np.int64), spans)
    counts = {name: sum(tally[name] for tally in contents.tallies.values()) for name in COUNTS}
    pending = counts["records"] - counts["committed"] - counts["expired"] - counts["aborted"]
    counts = {"events": ledger.events.total(), "batches": len(ledger.blobs), **counts, "pending": pending}
    return VerifyReport([*ledger.problems], counts | ({"rewritten": ledger.rewritten} if ledger.rewritten else {}))


def charges(db: Database, ledger: Verification, within: IdRange, batches: list[int], names: tuple[str, ...]) -> Charges:
    """Return units, events and amounts of a range of units; amounts that were given back are negative."""
    ids, when, amounts = [], [np.zeros(0, np.int64)], [np.zeros((len(names), 0), np.int64)]
    for item in _scan(db, within, batches, "unit", ["canary", *names]):
        real = item.columns["canary"] == 0
        taken = np.stack([item.columns[name] for name in names])
        if (taken[:, real] >= LARGEST).any():
            ledger.note(f"batch {item.batch} (RESERVE): a charge is infinite on the cap's measure")
            taken = np.minimum(taken, LARGEST)
        changes = [(item.batch, item.rows, taken)]
        changes += [(event, rows, -taken) for event, rows in ledger.aborted.get(item.batch, ())]
        for event, rows, spent in ledger.settled.get(item.batch, ()) if names == (PURE,) else ():
            left = np.zeros(int(item.rows.max(initial=0)) + 1, np.int64)
            left[rows[rows < len(left)]] = spent[rows < len(left)]
            changes.append((event, rows, left[item.rows][None] - taken))
        for event, rows, change in changes:
            picked = real & np.isin(item.rows, rows)
            ids.append(item.ids.take(picked))
            when.append(np.full(int(picked.sum()), event, np.int64))
            amounts.append(change[:, picked])
    return concatenated(ids), np.concatenate(when), np.concatenate(amounts, axis=1)


def _check_caps(ledger: Verification, charges: Charges, batches: I64, caps: list[tuple[int, int, list[int]]]) -> None:
    """Add a problem for every charge after which its unit was over the cap that was in force.

    Only batches charge. A refund may be 0, and its unit may be over a cap that was set after the charge.
    """
    units, when, amounts = charges
    order: Index = np.lexsort((when, units.lo, units.hi))
    starts = units.take(order).starts()
    if not len(starts):
        return
    event, amounts = when[order], amounts[:, order]
    longest = int(np.diff(starts, append=len(order)).max())
    if longest * max(int(amounts.max()), -int(amounts.min())) >= SATURATED:
        amounts = amounts.astype(object)  # no sum wraps
    sums = np.cumsum(amounts, axis=1)
    sums -= np.repeat(sums[:, starts] - amounts[:, starts], np.diff(np.append(starts, len(order))), axis=1)
    for since, until, limits in caps:
        charged = (event > since) & (event < until) & np.isin(event, batches)
        over = charged & (sums > np.array(limits, np.int64)[:, None]).any(axis=0)
        for seq, count in zip(*(item.tolist() for item in np.unique(event[over], return_counts=True)), strict=True):
            ledger.note(f"batch {seq} (RESERVE): {count:,} charges exceed the cap that was in force")


def _rows(ledger: Verification, batches: list[int]) -> int:
    return sum(ledger.contents.batches[seq].rows for seq in batches)


def _scan(db: Database, within: IdRange, batches: list[int], key: str, names: list[str]) -> Iterator[ScannedRows]:
    for batch in batches:
        try:
            yield from db.journal.scan([batch], key, names, within)
        except UnavailableLedgerError:
            raise
        except (LedgerError, KeyError, ValueError, TypeError):
            continue  # the batch was named when its root was checked
