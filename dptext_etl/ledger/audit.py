"""Read the journal from its first event, derive the contents of the tables, and compare."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dptext_etl.accounting import MEASURES
from dptext_etl.artifacts import canon
from dptext_etl.column import INFINITE
from dptext_etl.errors import DPTextError, LedgerError, UnavailableLedgerError
from dptext_etl.guarantee import PURE, GuaranteeClass
from dptext_etl.id_forms import IdForm
from dptext_etl.ledger.caps import LARGEST
from dptext_etl.ledger.charges import PROVENANCES
from dptext_etl.ledger.people import PINNED_FORMS, form_name, names_of_units, refines
from dptext_etl.ledger.plan import Database
from dptext_etl.ledger.releases import COMMITMENTS, PINNED_NAMES
from dptext_etl.ledger.storage.hashed_ids import SATURATED, HashedIds, Index, Values, concatenated
from dptext_etl.ledger.storage.journal import ChainCheck, Entry, stored_heads
from dptext_etl.ledger.storage.segments import (
    LAYOUTS,
    POSTS,
    Column,
    IdRange,
    Places,
    ScannedRows,
    id_ranges,
    limits_of,
    read_limits,
    root,
)
from dptext_etl.ledger.types import (
    ACCEPTED_UNITS,
    AGAIN,
    FORGOTTEN,
    GROUP,
    I64,
    OF,
    U8,
    UNIT,
    Event,
    State,
    VerifyReport,
)
from dptext_etl.ledger.views import COUNTS

_MOVES: dict[Event, tuple[tuple[State, ...], State, str]] = {
    Event.COMMIT: ((State.RESERVED, State.EXPIRED), State.COMMITTED, "committed"),
    Event.EXPIRE: ((State.RESERVED,), State.EXPIRED, "expired"),
    Event.ABORT: ((State.RESERVED,), State.ABORTED, "aborted"),
    Event.DIVERGED: ((State.COMMITTED,), State.COMMITTED, "diverged"),
}
"""The states that an event moves rows from, the state that it moves them to, and what counts them."""
_MALFORMED = (DPTextError, KeyError, ValueError, TypeError, IndexError, AttributeError, OverflowError)


@dataclass
class SealedBatch:
    release: int
    nonce: int
    scope: int
    job: str
    states: U8
    attached: bool = False

    def holds(self, facts: dict[str, Any], rows: I64) -> bool:
        """Return whether these rows belong to the batch and to the release that an event names."""
        return (self.release, self.nonce) == (facts["release"], facts["nonce"]) and int(rows.max()) < len(self.states)


class SealedEvent(NamedTuple):
    seq: int
    kind: Event
    facts: dict[str, Any]
    columns: dict[str, Column]

    def __str__(self) -> str:
        return f"{'batch' if self.kind in LAYOUTS else 'event'} {self.seq} ({self.kind})"


class Replay:
    """The contents that the tables of a ledger must have by its journal, and problems."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.problems: list[str] = []
        self.events: Counter[str] = Counter()
        self.blobs: dict[int, set[str]] = {}
        self.releases: dict[int, dict[str, Any]] = {}
        self.revoked: dict[tuple[str, str], int] = {}
        self.frozen: dict[str, bool] = {}
        self.frozen_groups: dict[str, list[str]] = {}
        self.meta: dict[str, str] = {}
        self.scopes: dict[int, tuple[str, str, str]] = {}
        self.caps: dict[int, list[tuple[int, str, list[int]]]] = {}
        self.members: set[tuple[int, str]] = set()
        self.batches: dict[int, SealedBatch] = {}
        self.again: set[int] = set()
        self.aborted: dict[int, list[tuple[int, I64]]] = {}
        self.settled: dict[int, list[tuple[int, I64, I64]]] = {}
        self.commit_parts: set[tuple[int, int]] = set()
        self.tallies: dict[tuple[int, int], Counter[str]] = {}
        self.publications: dict[tuple[int, int, str], tuple[str, int]] = {}
        self.rewritten: dict[tuple[int, str], list[I64]] = {}
        self.tables: dict[tuple[int, int], str] = {}
        chains = ChainCheck(db.ledger_id)
        for entry in db.journal.entries():
            self.problems.extend(chains.problems_of(entry))
            try:
                self._apply(entry)
            except UnavailableLedgerError:
                raise
            except _MALFORMED as exc:
                self.problems.append(f"event {entry.seq} ({entry.kind}): it cannot be read ({type(exc).__name__})")
        self.problems.extend(chains.problems_of_heads(stored_heads(db.store)))

    def note(self, problem: str) -> None:
        """Add a problem, unless it is there."""
        if problem not in self.problems:
            self.problems.append(problem)

    def name(self, release: int) -> str:
        facts = self.releases.get(release)
        if facts is None:
            return f"release {release}"
        return f"{facts['dataset']}.{facts['column']}, release {facts['release']!r}"

    def _apply(self, entry: Entry) -> None:
        facts = entry.facts
        if (facts["seq"], facts["event"]) != (entry.seq, entry.kind):
            self.problems.append(f"event {entry.seq} ({entry.kind}): it is in another place than it states")
        kind = Event(entry.kind)
        self.events[kind] += 1
        event = SealedEvent(entry.seq, kind, facts, {})
        if kind in LAYOUTS:
            self.blobs[entry.seq] = {
                name for name, rule in facts["columns"].items() if "bytes" in rule or "raw" in rule
            }
            names = [name for name, _ in LAYOUTS[kind]]
            event = event._replace(columns=self._db.segments.read(entry.seq, names, facts, as_sealed=True))
            if root(kind, event.columns).hex() != facts["root"]:
                self.problems.append(f"{event}: its Merkle root differs: a row was edited, added, removed or moved")
        self._HANDLERS[kind](self, event)

    def _problem(self, event: SealedEvent, problem: str) -> None:
        self.problems.append(f"{event}: {problem}")

    def _require_usable(self, event: SealedEvent, release: int) -> None:
        """Add a problem if the event falls under a revoked name or in a frozen dataset."""
        facts = self.releases[release]
        if facts["dataset"] in self.frozen:
            self._problem(event, f"the dataset {facts['dataset']} was frozen before")
        if (facts["dataset"], facts["release"]) in self.revoked:
            self._problem(event, f"{self.name(release)} was revoked before")

    def _tally(self, event: SealedEvent) -> Counter[str]:
        return self.tallies.setdefault((event.facts["release"], event.facts["nonce"]), Counter())

    def _list(self, name: str, seq: int) -> None:
        self.meta[name] = f"{self.meta[name]} {seq}" if name in self.meta else str(seq)

    def _groups(self, event: SealedEvent) -> Iterator[tuple[int, SealedBatch, I64, Index]]:
        """Iterate over the batches whose rows an event names: number, batch, rows, and their places in the event."""
        for at, group in Places(event.columns["batch"], event.columns["row"]).groups():
            batch, rows = self.batches.get(at), event.columns["row"][group]
            if batch is None or not batch.holds(event.facts, rows):
                self._problem(event, f"it speaks of rows that batch {at} did not reserve")
            else:
                yield at, batch, rows, group

    def _release(self, event: SealedEvent) -> None:
        self.releases[event.facts["release_id"]] = event.facts
        if "commitment" in event.facts:
            self.meta[f"{COMMITMENTS}{event.facts['release_id']}"] = event.facts["commitment"]

    def _revoke(self, event: SealedEvent) -> None:
        self.revoked.setdefault((event.facts["dataset"], event.facts["release"]), event.seq)

    def _freeze(self, event: SealedEvent) -> None:
        self.frozen[event.facts["dataset"]] = True
        self.frozen_groups[event.facts["dataset"]] = event.facts.get("groups", [])

    def _thaw(self, event: SealedEvent) -> None:
        del self.frozen[event.facts["dataset"]]
        del self.frozen_groups[event.facts["dataset"]]

    def _scope(self, event: SealedEvent) -> None:
        facts = event.facts
        self.scopes[facts["scope"]] = (facts["name"], facts["period"], facts["unit"])
        self.members.add((facts["scope"], facts["dataset"]))

    def _cap_set(self, event: SealedEvent) -> None:
        self._scope(event)
        cap = (event.seq, event.facts["measure"], limits_of(event.facts))
        self.caps.setdefault(event.facts["scope"], []).append(cap)

    def _units(self, event: SealedEvent) -> None:
        """Follow an acceptance of other units: columns and forms of units are pinned anew after it."""
        self.meta[f"{ACCEPTED_UNITS}{event.facts['dataset']}"] = str(event.seq)
        for name in names_of_units(event.facts["dataset"], event.facts["scopes"]):
            self.meta.pop(name, None)

    def _id_form(self, event: SealedEvent) -> None:
        """Follow a pinned form: it is pinned once; only a composite without fields gets them later."""
        name, form = form_name(event.facts["place"]), event.facts["form"]
        before = self.meta.get(name)
        if before is not None and not refines(IdForm.parse(json.loads(before)), IdForm.parse(form)):
            self._problem(event, "it changes the pinned form of ids")
        self.meta[name] = canon(form).decode()

    def _reserve(self, event: SealedEvent) -> None:
        facts, columns = event.facts, event.columns
        self._require_usable(event, facts["release"])
        if any(facts["name"] == f"{GROUP}{group}" for groups in self.frozen_groups.values() for group in groups):
            self._problem(event, f"the {facts['name']} was frozen before")
        self._scope(event)
        names = (facts["release"], facts["nonce"], facts["scope"], facts["job"])
        self.batches[event.seq] = SealedBatch(*names, np.zeros(facts["rows"], np.uint8))
        if facts.get(AGAIN):
            self.again.add(event.seq)
        canary = columns["canary"] == 1
        if columns["unit"][canary].any() or (columns["canary"] > 1).any():
            self._problem(event, "a canary row has a subject")
        tally, largest = self._tally(event), int(columns[PURE].max())
        tally["records"] += facts["rows"]
        tally["canaries"] += int(canary.sum())
        tally["infinite"] |= largest == INFINITE
        tally["max_pure"] = max(tally["max_pure"], largest)

    def _replay(self, event: SealedEvent) -> None:
        for at in event.facts["attached"]:
            self.batches[at].attached = True

    def _move(self, event: SealedEvent) -> None:
        before, after, counted = _MOVES[event.kind]
        computed = event.kind in (Event.COMMIT, Event.DIVERGED)
        if computed:
            self._require_usable(event, event.facts["release"])
        tally = self._tally(event)
        for at, batch, rows, group in self._groups(event):
            if len(np.unique(rows)) < len(rows) or not np.isin(batch.states[rows], before).all():
                self._problem(event, f"rows of batch {at} are not in a state from which this event can move them")
            if computed:
                reserved = self._db.segments.read(at, ["n_worst"])["n_worst"][rows]
                if (event.columns["positions"][group] > reserved).any():
                    self._problem(event, f"more positions than batch {at} reserved")
            if event.kind is not Event.DIVERGED:
                tally["expired"] -= int((batch.states[rows] == State.EXPIRED).sum())
                batch.states[rows] = after
            if event.kind is Event.COMMIT:
                self.commit_parts.add((at, event.seq))
            if event.kind is Event.ABORT:
                self.aborted.setdefault(at, []).append((event.seq, rows))
        tally[counted] += event.facts["rows"]

    def _settle(self, event: SealedEvent) -> None:
        """Follow what committed rows gave back: each row once, and no more than was reserved."""
        self._require_usable(event, event.facts["release"])
        for at, batch, rows, group in self._groups(event):
            spent = event.columns[PURE][group]
            before = [row for _, earlier, _ in self.settled.get(at, []) for row in earlier.tolist()]
            worst = self._db.segments.read(at, [PURE])[PURE][rows]
            committed = (batch.states[rows] == State.COMMITTED).all()
            if len({*before, *rows.tolist()}) < len(before) + len(rows) or not committed or (spent > worst).any():
                self._problem(event, f"rows of batch {at} are not in a state in which this event can settle them")
            self.settled.setdefault(at, []).append((event.seq, rows, spent))

    def _postprocess(self, event: SealedEvent) -> None:
        """Follow what post-processing made of committed rows: each row once under a chain, at no cost."""
        self._require_usable(event, event.facts["release"])
        provenances = [step["training_provenance"] for step in event.facts["steps"]]
        if event.facts["spend"] != 0 or not provenances or not set(provenances) <= {*PROVENANCES}:
            self._problem(event, "post-processing has a cost in it, or does not state its training data")
        for at, batch, rows, _ in self._groups(event):
            rewritten = self.rewritten.setdefault((at, event.facts["chain"]), [])
            every = np.concatenate([*rewritten, rows])
            if len(np.unique(every)) < len(every) or not (batch.states[rows] == State.COMMITTED).all():
                self._problem(event, f"rows of batch {at} are not in a state in which this event can rewrite them")
            rewritten.append(rows)
            self._list(f"{POSTS}{at}", event.seq)

    def _publish(self, event: SealedEvent) -> None:
        facts = event.facts
        for release, nonce in facts["releases"]:
            self._require_usable(event, release)
            if not self.releases[release]["publishable"]:
                self._problem(event, f"{self.name(release)} is not publishable")
            central = self.releases[release]["facts"]["class"] == GuaranteeClass.CENTRAL_ZCDP
            committed = self.tallies.get((release, nonce), Counter())["committed"]
            if facts["rows"] > committed and not (central and committed):
                self._problem(event, f"more rows than commits in {self.name(release)}")
            self.publications[release, nonce, facts["version"]] = (facts["manifest"], facts["rows"])

    def _published(self, release: int, nonce: int) -> dict[str, int]:
        """Return the published rows of a release, by manifest."""
        return dict(value for key, value in self.publications.items() if key[:2] == (release, nonce))

    def _retire(self, event: SealedEvent) -> None:
        """Follow a version that removed rows: it replaces published versions, with no more rows."""
        facts = event.facts
        for release, nonce in facts["releases"]:
            row_counts = self._published(release, nonce)
            if not facts["retired"] or not set(facts["retired"]) <= row_counts.keys():
                self._problem(event, f"it retires a version that was not published of {self.name(release)}")
            elif facts["rows"] > max(row_counts[digest] for digest in facts["retired"]):
                self._problem(event, f"more rows than were published of {self.name(release)}")
            self.publications[release, nonce, facts["version"]] = (facts["manifest"], facts["rows"])
        for release, nonce, digests in facts.get("others", ()):
            if not set(digests) <= self._published(release, nonce).keys():
                self._problem(event, f"it retires a version that was not published of {self.name(release)}")

    def _forget(self, event: SealedEvent) -> None:
        if event.facts.get(OF, UNIT) != UNIT:
            self._problem(event, "it names neither records nor units")
        self._list(f"{FORGOTTEN}{event.facts['dataset']}", event.seq)

    def _pin(self, event: SealedEvent) -> None:
        self._require_usable(event, event.facts["release"])
        key, digest = (event.facts["release"], event.facts["nonce"]), event.facts["digest"]
        if self.tables.setdefault(key, digest) != digest:
            self._problem(event, f"it pins another table of {self.name(key[0])}")

    def _key(self, event: SealedEvent) -> None:
        name, committed = f"{COMMITMENTS}{event.facts['release']}", event.facts["commitment"]
        if self.releases[event.facts["release"]] and self.meta.setdefault(name, committed) != committed:
            self._problem(event, "it commits a release to another noise key")

    _HANDLERS: ClassVar[dict[Event, Callable[[Replay, SealedEvent], None]]] = {
        Event.RELEASE: _release,
        Event.BURN: _revoke,
        Event.FREEZE: _freeze,
        Event.THAW: _thaw,
        Event.CAP_SET: _cap_set,
        Event.RESERVE: _reserve,
        Event.REPLAY: _replay,
        Event.COMMIT: _move,
        Event.DIVERGED: _move,
        Event.SETTLE: _settle,
        Event.EXPIRE: _move,
        Event.ABORT: _move,
        Event.PUBLISH: _publish,
        Event.RETIRE: _retire,
        Event.ID_FORM: _id_form,
        Event.POST: _postprocess,
        Event.UNITS: _units,
        Event.FORGET: _forget,
        Event.READMIT: _forget,
        Event.PIN: _pin,
        Event.KEY: _key,
    }


_META = (
    (PINNED_FORMS, "pinned"),
    (ACCEPTED_UNITS, "accepted"),
    (FORGOTTEN, "forgotten"),
    (POSTS, "post-processing"),
    (COMMITMENTS, "committed to"),
)
Charges = tuple[HashedIds, I64, Values]
"""Units, the numbers of the events that charged them, and amounts, shape (components, charges)."""


def verify(db: Database) -> VerifyReport:
    """Check chains, roots, states, counts, uniqueness, and caps.

    The report names the batch of every row that was edited, removed, reordered or inserted. If someone rewrites the
    whole ledger consistently, only an anchor that was kept elsewhere shows it.
    """
    db = Database(db.store, None)  # use nothing that was read before
    replay = Replay(db)
    _compare_tables(db, replay)
    for release, nonce in sorted({(batch.release, batch.nonce) for batch in replay.batches.values()}):
        batches = [seq for seq, batch in replay.batches.items() if (batch.release, batch.nonce) == (release, nonce)]
        for within in id_ranges(_rows(replay, batches)):
            for key, what in (("record", "a record"), ("idem_key", "an identity")):
                # Add a problem for every id that occurs twice; rows that were aborted, or released again, do not count
                ids, of = list[HashedIds](), [np.zeros(0, np.int64)]
                for item in _scan(db, within, [seq for seq in batches if seq not in replay.again], key, []):
                    alive = replay.batches[item.batch].states[item.rows] != State.ABORTED
                    ids.append(item.ids.take(alive))
                    of.append(np.full(ids[-1].size, item.batch, np.int64))
                record_ids, seqs = concatenated(ids), np.concatenate(of)
                order = record_ids.order()
                repeated = np.delete(order, record_ids.take(order).starts())
                for seq in np.unique(seqs[repeated]).tolist():
                    replay.note(
                        f"batch {seq} (RESERVE): {what} occurs twice in {replay.name(replay.batches[seq].release)}"
                    )
    _check_balances(db, replay)
    tallies = replay.tallies.values()
    counts = {name: sum(tally[name] for tally in tallies) for name in COUNTS}
    pending = counts["records"] - counts["committed"] - counts["expired"] - counts["aborted"]
    rewritten = sum(len(rows) for lists in replay.rewritten.values() for rows in lists)
    counts = {"events": replay.events.total(), "batches": len(replay.blobs), **counts, "pending": pending}
    return VerifyReport(replay.problems, counts | ({"rewritten": rewritten} if rewritten else {}))


def _compare_tables(db: Database, replay: Replay) -> None:
    rows, derived, stored = db.store.rows, dict[str, dict[Any, Any]](), dict[str, dict[Any, Any]]()
    derived["release"] = {
        number: (
            *(facts[name] for name in PINNED_NAMES),
            facts["publishable"],
            canon(facts["facts"]).decode(),
            replay.revoked.get((facts["dataset"], facts["release"])),
        )
        for number, facts in replay.releases.items()
    }
    query = "select id, dataset, col, release, cfg, id_type, publishable, facts, burnt from release"
    stored["release"] = {row[0]: (*row[1:6], bool(row[6]), *row[7:]) for row in rows(query)}
    derived["frozen dataset"] = replay.frozen
    stored["frozen dataset"] = dict.fromkeys((name for (name,) in rows("select dataset from frozen")), True)
    derived["revoked name"] = replay.revoked
    stored["revoked name"] = {row[:2]: row[2] for row in rows("select dataset, release, seq from burnt")}
    for prefix, what in _META:
        derived[what] = {name: value for name, value in replay.meta.items() if name.startswith(prefix)}
        stored[what] = db.store.metas(prefix)
    derived["publication"] = replay.publications
    query = "select release, nonce, version, manifest, rows from publication"
    stored["publication"] = {row[:3]: row[3:] for row in rows(query)}
    derived["counts of release"] = {
        key: (*(tally[name] for name in COUNTS), None if tally["infinite"] else tally["max_pure"])
        for key, tally in replay.tallies.items()
    }
    query = f"select release, nonce, {', '.join(COUNTS)}, max_pure from tally"  # noqa: S608
    stored["counts of release"] = {row[:2]: row[2:] for row in rows(query)}
    derived["batch"] = {
        seq: (
            *(batch.release, batch.nonce, batch.scope, batch.job, len(batch.states)),
            *(int((batch.states == State.RESERVED).sum()), batch.attached, batch.states.tobytes()),
        )
        for seq, batch in replay.batches.items()
    }
    query = "select seq, release, nonce, scope, job, rows, open, attached, state from batch"
    stored["batch"] = {row[0]: (*row[1:7], bool(row[7]), row[8]) for row in rows(query)}
    derived["digests of batch"] = dict.fromkeys(replay.commit_parts, True)
    stored["digests of batch"] = dict.fromkeys(rows("select batch, seq from commit_part"), True)
    derived["blobs of batch"] = replay.blobs
    query = f"select seq from event where kind in ({','.join('?' * len(LAYOUTS))})"  # noqa: S608
    sealed: dict[int, set[str]] = {seq: set() for (seq,) in rows(query, LAYOUTS)}
    for seq, name in rows("select seq, name from segment"):
        sealed.setdefault(seq, set()).add(name)
    stored["blobs of batch"] = sealed
    for what, wanted in derived.items():
        _compare(replay.problems, what, wanted, stored[what])
    _compare_scopes(db, replay)


def _compare(problems: list[str], what: str, derived: dict[Any, Any], stored: dict[Any, Any]) -> None:
    for key in sorted({*derived, *stored}, key=str):
        name = " ".join(str(part) for part in key) if isinstance(key, tuple) else key
        if key not in stored:
            problems.append(f"{what} {name}: the journal has it, but the table of the ledger does not")
        elif key not in derived:
            problems.append(f"{what} {name}: the table of the ledger has it, but the journal does not")
        elif derived[key] != stored[key]:
            problems.append(f"{what} {name}: it differs from the journal")


def _compare_scopes(db: Database, replay: Replay) -> None:
    stored = {row[0]: row[1:] for row in db.store.rows("select id, name, period, unit, measure, limits from scope")}
    for number, (*names, measure, limits) in stored.items():
        history = replay.caps.get(number)
        last = (None, []) if history is None else (history[-1][1], list(history[-1][2]))
        derived = replay.scopes.get(number, tuple(names))
        if tuple(names) != derived or (measure, list(read_limits(measure, limits))) != last:
            replay.problems.append(f"scope {number}: its cap or unit differs from the journal")
    members = set(db.store.rows("select scope, dataset from member"))
    for number, dataset in replay.members:
        if number not in stored or (number, dataset) not in members:
            replay.problems.append(f"scope {number}: the journal has it, but the table of the ledger does not")


def _check_balances(db: Database, replay: Replay) -> None:
    """Judge each charge of a capped scope by the cap of its time, and by its components."""
    for number, history in replay.caps.items():
        ends = [seq for seq, _, _ in history[1:]] + [np.iinfo(np.int64).max]
        for measure in dict.fromkeys(name for _, name, _ in history):
            pairs = zip(history, ends, strict=True)
            mine = [(since, until, limits) for (since, name, limits), until in pairs if name == measure]
            batches = [seq for seq, batch in replay.batches.items() if batch.scope == number and seq < mine[-1][1]]
            for within in id_ranges(_rows(replay, batches)):
                of_range = charges(db, replay, within, batches, MEASURES[measure])
                _check_caps(replay, of_range, np.array(batches, np.int64), mine)


def charges(db: Database, replay: Replay, within: IdRange, batches: list[int], names: tuple[str, ...]) -> Charges:
    """Return units, events and amounts of a range of units; amounts that were given back are negative."""
    ids, when, amounts = [], [np.zeros(0, np.int64)], [np.zeros((len(names), 0), np.int64)]
    for item in _scan(db, within, batches, "unit", ["canary", *names]):
        mine = item.columns["canary"] == 0
        taken = np.stack([item.columns[name] for name in names])
        if (taken[:, mine] >= LARGEST).any():
            replay.note(f"batch {item.batch} (RESERVE): a charge is infinite on the cap's measure")
            taken = np.minimum(taken, LARGEST)
        changes = [(item.batch, item.rows, taken)]
        changes += [(event, rows, -taken) for event, rows in replay.aborted.get(item.batch, [])]
        for event, rows, spent in replay.settled.get(item.batch, []) if names == (PURE,) else []:
            left = np.zeros(int(item.rows.max(initial=0)) + 1, np.int64)
            left[rows[rows < len(left)]] = spent[rows < len(left)]
            changes.append((event, rows, left[item.rows][None] - taken))
        for event, rows, change in changes:
            picked = mine & np.isin(item.rows, rows)
            ids.append(item.ids.take(picked))
            when.append(np.full(int(picked.sum()), event, np.int64))
            amounts.append(change[:, picked])
    return concatenated(ids), np.concatenate(when), np.concatenate(amounts, axis=1)


def _check_caps(replay: Replay, charges: Charges, batches: I64, caps: list[tuple[int, int, list[int]]]) -> None:
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
            replay.note(f"batch {seq} (RESERVE): {count:,} charges exceed the cap that was in force")


def _rows(replay: Replay, batches: list[int]) -> int:
    return sum(len(replay.batches[seq].states) for seq in batches)


def _scan(db: Database, within: IdRange, batches: list[int], key: str, names: list[str]) -> Iterator[ScannedRows]:
    for batch in batches:
        try:
            yield from db.segments.scan([batch], key, names, within)
        except UnavailableLedgerError:
            raise
        except (LedgerError, KeyError, ValueError, TypeError):
            continue  # the batch was named when its root was checked
