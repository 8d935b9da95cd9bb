"""Read the journal from its first event, check chains and roots, and derive what the tables must hold."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dptext_etl.artifacts import canon
from dptext_etl.column import INFINITE
from dptext_etl.errors import DPTextError, UnavailableLedgerError
from dptext_etl.guarantee import PURE, GuaranteeClass
from dptext_etl.id_forms import IdForm
from dptext_etl.ledger.commit import PROVENANCES
from dptext_etl.ledger.database import Database
from dptext_etl.ledger.identities import form_name, names_of_units, refines
from dptext_etl.ledger.releases import COMMITMENTS
from dptext_etl.ledger.storage.hashed_ids import Index
from dptext_etl.ledger.storage.journal import ChainCheck, Entry, stored_heads
from dptext_etl.ledger.storage.records import POSTS, Places
from dptext_etl.ledger.storage.segments import LAYOUTS, Column, limits_of, root
from dptext_etl.ledger.types import ACCEPTED_UNITS, AGAIN, FORGOTTEN, GROUP, I64, OF, U8, UNIT, Event, State

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
    """What the tables of a ledger must hold by its journal, and the problems that were found."""

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
            self.problems.append(f"event {entry.seq} ({entry.kind}): it stands in another place than it says")
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
                self._problem(event, f"rows of batch {at} do not stand where they could be so moved")
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
                self._problem(event, f"rows of batch {at} do not stand where they could be so settled")
            self.settled.setdefault(at, []).append((event.seq, rows, spent))

    def _postprocess(self, event: SealedEvent) -> None:
        """Follow what post-processing made of committed rows: each row once under a chain, at no cost."""
        self._require_usable(event, event.facts["release"])
        provenances = [step["training_provenance"] for step in event.facts["steps"]]
        if event.facts["spend"] != 0 or not provenances or not set(provenances) <= {*PROVENANCES}:
            self._problem(event, "it says that post-processing costs something, or not what it learned from")
        for at, batch, rows, _ in self._groups(event):
            rewritten = self.rewritten.setdefault((at, event.facts["chain"]), [])
            every = np.concatenate([*rewritten, rows])
            if len(np.unique(every)) < len(every) or not (batch.states[rows] == State.COMMITTED).all():
                self._problem(event, f"rows of batch {at} do not stand where they could be so rewritten")
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
        """Return the rows of what was published of a release, by manifest."""
        return dict(value for key, value in self.publications.items() if key[:2] == (release, nonce))

    def _retire(self, event: SealedEvent) -> None:
        """Follow a version that took rows away: it replaces what was published, with no more rows."""
        facts = event.facts
        for release, nonce in facts["releases"]:
            known = self._published(release, nonce)
            if not facts["retired"] or not set(facts["retired"]) <= known.keys():
                self._problem(event, f"it retires what was not published of {self.name(release)}")
            elif facts["rows"] > max(known[digest] for digest in facts["retired"]):
                self._problem(event, f"more rows than were published of {self.name(release)}")
            self.publications[release, nonce, facts["version"]] = (facts["manifest"], facts["rows"])
        for release, nonce, digests in facts.get("others", ()):
            if not set(digests) <= self._published(release, nonce).keys():
                self._problem(event, f"it retires what was not published of {self.name(release)}")

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
