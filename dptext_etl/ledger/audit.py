"""Read the journal from its first event, and check every sealed row: roots, states, uniqueness, and caps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dptext_etl.accounting import MEASURES
from dptext_etl.errors import LedgerError, UnavailableLedgerError
from dptext_etl.guarantee import PURE
from dptext_etl.ledger.caps import LARGEST
from dptext_etl.ledger.contents import COUNTS, MALFORMED
from dptext_etl.ledger.holdings import MOVES, Database, Places
from dptext_etl.ledger.storage.hashed_ids import SATURATED, HashedIds, Index, Values, concatenated
from dptext_etl.ledger.storage.journal import Entry, IdRange, ScannedRows, id_ranges
from dptext_etl.ledger.storage.segments import LAYOUTS, Column, root
from dptext_etl.ledger.types import I64, U8, Event, State, VerifyReport

Charges = tuple[HashedIds, I64, Values]
"""Units, the numbers of the events that charged them, and amounts, shape (components, charges)."""


class SealedEvent(NamedTuple):
    seq: int
    kind: Event
    facts: dict[str, Any]
    columns: dict[str, Column]


class Rebuilt:
    """The contents of a ledger, the state of every row, and problems."""

    def __init__(self, db: Database) -> None:
        self._db, self.contents = db, db.contents
        self.problems: list[str] = []
        self.events: Counter[str] = Counter()
        self.blobs: dict[int, set[str]] = {}
        self.states: dict[int, U8] = {}
        self.aborted: dict[int, list[tuple[int, I64]]] = {}
        self.settled: dict[int, list[tuple[int, I64, I64]]] = {}
        self.rewritten: dict[tuple[int, str], list[I64]] = {}
        for entry in db.journal.entries():
            self.events[entry.kind] += 1
            for problem in self.contents.take(entry):
                self.note(problem)
            try:
                self._check_rows(entry)
            except UnavailableLedgerError:
                raise
            except LedgerError as error:
                self.note(error.message)
            except MALFORMED as exc:
                self.note(f"event {entry.seq} ({entry.kind}): it cannot be read ({type(exc).__name__})")
        self._compare_blobs()

    def note(self, problem: str) -> None:
        """Add a problem, unless it is there."""
        if problem not in self.problems:
            self.problems.append(problem)

    def _problem(self, event: SealedEvent, problem: str) -> None:
        self.note(f"batch {event.seq} ({event.kind}): {problem}")

    def _check_rows(self, entry: Entry) -> None:
        kind = Event(entry.kind)
        if kind not in LAYOUTS:
            return
        facts = entry.facts
        if kind == Event.RESERVE:
            self.states[entry.seq] = np.zeros(facts["rows"], np.uint8)
        self.blobs[entry.seq] = {name for name, rule in facts["columns"].items() if "bytes" in rule or "raw" in rule}
        columns = self._db.journal.read(entry.seq, [name for name, _ in LAYOUTS[kind]], facts)
        event = SealedEvent(entry.seq, kind, facts, columns)
        if root(kind, columns).hex() != facts["root"]:
            self._problem(event, "its Merkle root differs: a row was edited, added, removed or moved")
        if "batch" in columns and np.unique(columns["batch"]).tolist() != facts["batches"]:
            self._problem(event, "it names other batches than its rows do")
        if kind in self._HANDLERS:
            self._HANDLERS[kind](self, event)

    def _groups(self, event: SealedEvent) -> Iterator[tuple[int, I64, Index]]:
        """Iterate over the batches whose rows an event names: number, rows, and their places in the event."""
        key = event.facts["release"], event.facts["nonce"]
        for at, group in Places(event.columns["batch"], event.columns["row"]).groups():
            batch, rows = self.contents.batches.get(at), event.columns["row"][group]
            if batch is None or batch.key != key or int(rows.max()) >= batch.rows:
                self._problem(event, f"it speaks of rows that batch {at} did not reserve")
            else:
                yield at, rows, group

    def _reserve(self, event: SealedEvent) -> None:
        columns, canary = event.columns, event.columns["canary"] == 1
        if columns["unit"][canary].any() or (columns["canary"] > 1).any():
            self._problem(event, "a canary row has a subject")
        if int(canary.sum()) != event.facts["canaries"]:
            self._problem(event, "it states another number of canary rows")

    def _move(self, event: SealedEvent) -> None:
        (before, after), expired = MOVES[event.kind], 0
        for at, rows, group in self._groups(event):
            states = self.states[at]
            if len(np.unique(rows)) < len(rows) or not np.isin(states[rows], before).all():
                self._problem(event, f"rows of batch {at} are not in a state from which this event can move them")
            if event.kind in {Event.COMMIT, Event.DIVERGED}:
                reserved = self._db.journal.read(at, ["n_worst"])["n_worst"][rows]
                if (event.columns["positions"][group] > reserved).any():
                    self._problem(event, f"more positions than batch {at} reserved")
            if event.kind == Event.COMMIT:
                expired += int((states[rows] == State.EXPIRED).sum())
            states[rows] = after
            if event.kind == Event.ABORT:
                self.aborted.setdefault(at, []).append((event.seq, rows))
        if expired != event.facts.get("expired", 0):
            self._problem(event, "it states another number of expired rows")

    def _settle(self, event: SealedEvent) -> None:
        """Follow what committed rows gave back: each row once, and no more than was reserved."""
        for at, rows, group in self._groups(event):
            spent = event.columns[PURE][group]
            before = [row for _, earlier, _ in self.settled.get(at, []) for row in earlier.tolist()]
            worst = self._db.journal.read(at, [PURE])[PURE][rows]
            committed = (self.states[at][rows] == State.COMMITTED).all()
            if len({*before, *rows.tolist()}) < len(before) + len(rows) or not committed or (spent > worst).any():
                self._problem(event, f"rows of batch {at} are not in a state in which this event can settle them")
            self.settled.setdefault(at, []).append((event.seq, rows, spent))

    def _postprocess(self, event: SealedEvent) -> None:
        """Follow what post-processing made of committed rows: each row once under a chain, at no cost."""
        for at, rows, _ in self._groups(event):
            rewritten = self.rewritten.setdefault((at, event.facts["chain"]), [])
            every = np.concatenate([*rewritten, rows])
            if len(np.unique(every)) < len(every) or not (self.states[at][rows] == State.COMMITTED).all():
                self._problem(event, f"rows of batch {at} are not in a state in which this event can rewrite them")
            rewritten.append(rows)

    def _compare_blobs(self) -> None:
        """Name the events that lack a blob, and blobs that belong to no event."""
        stored: dict[int, set[str]] = {}
        for seq, name in self._db.store.rows("select seq, name from segment"):
            stored.setdefault(seq, set()).add(name)
        for seq in sorted({*self.blobs, *stored}):
            if self.blobs.get(seq, set()) != stored.get(seq, set()):
                self.note(f"blobs of batch {seq}: they differ from the journal")

    _HANDLERS: ClassVar[dict[Event, Callable[[Rebuilt, SealedEvent], None]]] = {
        Event.RESERVE: _reserve,
        Event.COMMIT: _move,
        Event.DIVERGED: _move,
        Event.EXPIRE: _move,
        Event.ABORT: _move,
        Event.SETTLE: _settle,
        Event.POST: _postprocess,
    }


def verify(db: Database) -> VerifyReport:
    """Check the chain, roots, states, uniqueness, and caps.

    The report names the batch of every row that was edited, removed, reordered or inserted. If someone rewrites the
    whole ledger consistently, only an anchor that was kept elsewhere shows it.
    """
    db = Database(db.store, None)  # use nothing that was read before
    rebuilt = Rebuilt(db)
    contents = rebuilt.contents
    for (release, _), batches in sorted(contents.of_release.items()):
        for within in id_ranges(_rows(rebuilt, batches)):
            for key, what in (("record", "a record"), ("idem_key", "an identity")):
                # Add a problem for every id that occurs twice; rows that were aborted, or released again, do not count
                ids, of = list[HashedIds](), [np.zeros(0, np.int64)]
                for item in _scan(db, within, [seq for seq in batches if not contents.batches[seq].again], key, []):
                    alive = rebuilt.states[item.batch][item.rows] != State.ABORTED
                    ids.append(item.ids.take(alive))
                    of.append(np.full(ids[-1].size, item.batch, np.int64))
                record_ids, seqs = concatenated(ids), np.concatenate(of)
                order = record_ids.order()
                repeated = np.delete(order, record_ids.take(order).starts())
                for seq in np.unique(seqs[repeated]).tolist():
                    rebuilt.note(f"batch {seq} (RESERVE): {what} occurs twice in {contents.releases[release]}")
    # Judge each charge of a capped scope by the cap of its time, and by its components
    for number, history in contents.caps.items():
        ends = [seq for seq, _, _ in history[1:]] + [np.iinfo(np.int64).max]
        for measure in dict.fromkeys(name for _, name, _ in history):
            pairs = zip(history, ends, strict=True)
            spans = [(since, until, limits) for (since, name, limits), until in pairs if name == measure]
            batches = [seq for seq in contents.of_scope.get(number, ()) if seq < spans[-1][1]]
            for within in id_ranges(_rows(rebuilt, batches)):
                of_range = charges(db, rebuilt, within, batches, MEASURES[measure])
                _check_caps(rebuilt, of_range, np.array(batches, np.int64), spans)
    counts = {name: sum(tally[name] for tally in contents.tallies.values()) for name in COUNTS}
    pending = counts["records"] - counts["committed"] - counts["expired"] - counts["aborted"]
    rewritten = sum(len(rows) for lists in rebuilt.rewritten.values() for rows in lists)
    counts = {"events": rebuilt.events.total(), "batches": len(rebuilt.blobs), **counts, "pending": pending}
    return VerifyReport(rebuilt.problems, counts | ({"rewritten": rewritten} if rewritten else {}))


def charges(db: Database, rebuilt: Rebuilt, within: IdRange, batches: list[int], names: tuple[str, ...]) -> Charges:
    """Return units, events and amounts of a range of units; amounts that were given back are negative."""
    ids, when, amounts = [], [np.zeros(0, np.int64)], [np.zeros((len(names), 0), np.int64)]
    for item in _scan(db, within, batches, "unit", ["canary", *names]):
        real = item.columns["canary"] == 0
        taken = np.stack([item.columns[name] for name in names])
        if (taken[:, real] >= LARGEST).any():
            rebuilt.note(f"batch {item.batch} (RESERVE): a charge is infinite on the cap's measure")
            taken = np.minimum(taken, LARGEST)
        changes = [(item.batch, item.rows, taken)]
        changes += [(event, rows, -taken) for event, rows in rebuilt.aborted.get(item.batch, [])]
        for event, rows, spent in rebuilt.settled.get(item.batch, []) if names == (PURE,) else []:
            left = np.zeros(int(item.rows.max(initial=0)) + 1, np.int64)
            left[rows[rows < len(left)]] = spent[rows < len(left)]
            changes.append((event, rows, left[item.rows][None] - taken))
        for event, rows, change in changes:
            picked = real & np.isin(item.rows, rows)
            ids.append(item.ids.take(picked))
            when.append(np.full(int(picked.sum()), event, np.int64))
            amounts.append(change[:, picked])
    return concatenated(ids), np.concatenate(when), np.concatenate(amounts, axis=1)


def _check_caps(rebuilt: Rebuilt, charges: Charges, batches: I64, caps: list[tuple[int, int, list[int]]]) -> None:
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
            rebuilt.note(f"batch {seq} (RESERVE): {count:,} charges exceed the cap that was in force")


def _rows(rebuilt: Rebuilt, batches: list[int]) -> int:
    return sum(rebuilt.contents.batches[seq].rows for seq in batches)


def _scan(db: Database, within: IdRange, batches: list[int], key: str, names: list[str]) -> Iterator[ScannedRows]:
    for batch in batches:
        try:
            yield from db.journal.scan([batch], key, names, within)
        except UnavailableLedgerError:
            raise
        except (LedgerError, KeyError, ValueError, TypeError):
            continue  # the batch was named when its root was checked
