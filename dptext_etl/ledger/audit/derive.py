"""Read the journal from its first event, check chain and roots, and derive what the tables must hold."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dptext_etl.artifacts import canon
from dptext_etl.column import INFINITE
from dptext_etl.errors import DPTextError
from dptext_etl.guarantee import PURE, GuaranteeClass
from dptext_etl.id_forms import IdForm
from dptext_etl.ledger.audit.chains import Chains
from dptext_etl.ledger.audit.derived import Derived, SealedBatch
from dptext_etl.ledger.operations import forms
from dptext_etl.ledger.operations.attribution import ACCEPTED
from dptext_etl.ledger.operations.book import Book
from dptext_etl.ledger.operations.erasure import FORGOTTEN
from dptext_etl.ledger.operations.post import PROVENANCES
from dptext_etl.ledger.storage.columns import Column
from dptext_etl.ledger.storage.journal import HEAD, Entry
from dptext_etl.ledger.storage.records import Places
from dptext_etl.ledger.storage.segments import LAYOUTS, root
from dptext_etl.ledger.storage.units import limits_of
from dptext_etl.ledger.terms import AGAIN, GROUP, Event, State

_TO = {Event.COMMIT: State.COMMITTED, Event.EXPIRE: State.EXPIRED, Event.ABORT: State.ABORTED}
_FROM = {
    Event.COMMIT: (State.RESERVED, State.EXPIRED),
    Event.EXPIRE: (State.RESERVED,),
    Event.ABORT: (State.RESERVED,),
    Event.DIVERGED: (State.COMMITTED,),
}
_COUNTED = {
    Event.COMMIT: "committed",
    Event.EXPIRE: "expired",
    Event.ABORT: "aborted",
    Event.DIVERGED: "diverged",
}


def derive(book: Book) -> Derived:
    """Check the chains and every sealed batch, and follow the events in order."""
    derived, chains = Derived(), Chains(book.ledger_id)
    for entry in book.journal.entries():
        derived.problems.extend(chains.follow(entry))
        try:
            _follow(book, derived, entry)
        except (DPTextError, KeyError, ValueError, TypeError, IndexError, AttributeError, OverflowError) as exc:
            derived.problems.append(f"event {entry.seq} ({entry.kind}): it cannot be read ({type(exc).__name__})")
    stored = book.store.rows("select name, value from meta where name=? or name like ?", (HEAD, f"{HEAD}/%"))
    derived.problems.extend(chains.ends(dict(stored)))
    return derived


def _follow(book: Book, derived: Derived, entry: Entry) -> None:
    facts = entry.facts
    if (facts["seq"], facts["event"]) != (entry.seq, entry.kind):
        derived.problems.append(f"event {entry.seq} ({entry.kind}): it stands in another place than it says")
    kind = Event(entry.kind)
    derived.events[kind] += 1
    columns = _sealed(book, derived, entry.seq, kind, facts) if kind in LAYOUTS else {}
    _STEPS[kind](Happening(book, derived, entry.seq, kind, facts, columns))


def _sealed(book: Book, derived: Derived, seq: int, kind: Event, facts: dict[str, Any]) -> dict[str, Column]:
    layout = LAYOUTS[kind]
    derived.sealed[seq] = {name for name, rule in facts["columns"].items() if "bytes" in rule or "raw" in rule}
    columns = book.segments.read(seq, facts, [name for name, _ in layout], sealed=True)
    if root(layout, columns).hex() != facts["root"]:
        said = "its Merkle root differs: a row was edited, added, removed or moved"
        derived.problems.append(f"batch {seq} ({kind}): {said}")
    return columns


class Happening(NamedTuple):
    """One event, its sealed columns, and the state that it changes."""

    book: Book
    derived: Derived
    seq: int
    kind: Event
    facts: dict[str, Any]
    columns: dict[str, Column]

    def problem(self, said: str) -> None:
        """Add a problem of this event."""
        what = "batch" if self.kind in LAYOUTS else "event"
        self.derived.problems.append(f"{what} {self.seq} ({self.kind}): {said}")

    def require_usable(self, release: int) -> None:
        """Add a problem if the event falls under a revoked name or in a frozen dataset."""
        facts = self.derived.releases[release]
        if facts["dataset"] in self.derived.frozen:
            self.problem(f"the dataset {facts['dataset']} was frozen before")
        if (facts["dataset"], facts["release"]) in self.derived.revoked:
            self.problem(f"{self.derived.name(release)} was revoked before")


def _release(event: Happening) -> None:
    event.derived.releases[event.facts["release_id"]] = event.facts


def _revoke(event: Happening) -> None:
    event.derived.revoked.setdefault((event.facts["dataset"], event.facts["release"]), event.seq)


def _freeze(event: Happening) -> None:
    event.derived.frozen[event.facts["dataset"]] = event.seq
    event.derived.frozen_groups[event.facts["dataset"]] = event.facts.get("groups", [])


def _thaw(event: Happening) -> None:
    del event.derived.frozen[event.facts["dataset"]]
    del event.derived.frozen_groups[event.facts["dataset"]]


def _cap_set(event: Happening) -> None:
    _scope(event)
    cap = (event.seq, event.facts["measure"], limits_of(event.facts))
    event.derived.caps.setdefault(event.facts["scope"], []).append(cap)


def _scope(event: Happening) -> None:
    facts = event.facts
    event.derived.scopes[facts["scope"]] = (facts["name"], facts["period"], facts["unit"])
    event.derived.members.add((facts["scope"], facts["dataset"]))


def _units(event: Happening) -> None:
    """Follow an acceptance of other units: columns and forms of units are pinned anew after it."""
    facts = event.facts
    event.derived.accepted[f"{ACCEPTED}{facts['dataset']}"] = str(event.seq)
    for place in forms.places_of_units(facts["dataset"], facts["scopes"]):
        event.derived.forms.pop(forms.name(place), None)


def _id_form(event: Happening) -> None:
    """Follow a pinned form: it is pinned once; only a composite without fields gets them later."""
    place, form = forms.name(event.facts["place"]), event.facts["form"]
    before = event.derived.forms.get(place)
    if before is not None and not forms.refines(IdForm.parse(json.loads(before)), IdForm.parse(form)):
        event.problem("it changes the pinned form of ids")
    event.derived.forms[place] = canon(form).decode()


def _reserve(event: Happening) -> None:
    facts, columns = event.facts, event.columns
    event.require_usable(facts["release"])
    if any(facts["name"] == f"{GROUP}{group}" for groups in event.derived.frozen_groups.values() for group in groups):
        event.problem(f"the {facts['name']} was frozen before")
    _scope(event)
    states = np.zeros(facts["rows"], np.uint8)
    names = (facts["release"], facts["nonce"], facts["scope"], facts["job"])
    event.derived.batches[event.seq] = SealedBatch(*names, states)
    if facts.get(AGAIN):
        event.derived.again.add(event.seq)
    canary = columns["canary"] == 1
    if columns["unit"][canary].any() or (columns["canary"] > 1).any():
        event.problem("a canary row has a subject")
    tally = event.derived.tally(facts)
    tally["records"] += facts["rows"]
    tally["canaries"] += int(canary.sum())
    most = int(columns[PURE].max())
    tally["endless"] |= most == INFINITE
    tally["max_pure"] = max(tally["max_pure"], most)


def _outputs(event: Happening) -> None:
    event.require_usable(event.facts["release"])
    _move(event)


def _move(event: Happening) -> None:
    tally = event.derived.tally(event.facts)
    for at, mine in Places(event.columns["batch"], event.columns["row"]).groups():
        batch = event.derived.batches.get(at)
        rows = event.columns["row"][mine]
        if batch is None or not batch.holds(event.facts, rows):
            event.problem(f"it speaks of rows that batch {at} did not reserve")
            continue
        if len(np.unique(rows)) < len(rows) or not np.isin(batch.states[rows], _FROM[event.kind]).all():
            event.problem(f"rows of batch {at} do not stand where they could be so moved")
        if event.kind in (Event.COMMIT, Event.DIVERGED):
            reserved = event.book.segments.read(at, event.book.journal.facts(at), ["n_worst"])["n_worst"][rows]
            if (event.columns["positions"][mine] > reserved).any():
                event.problem(f"more positions than batch {at} reserved")
        if event.kind in _TO:
            tally["expired"] -= int((batch.states[rows] == State.EXPIRED).sum())
            batch.states[rows] = _TO[event.kind]
        if event.kind is Event.COMMIT:
            event.derived.commit_parts.add((at, event.seq))
        if event.kind is Event.ABORT:
            event.derived.aborted.setdefault(at, []).append((event.seq, rows))
    tally[_COUNTED[event.kind]] += event.facts["rows"]


def _settle(event: Happening) -> None:
    """Follow what committed rows gave back: each row once, and no more than was reserved."""
    event.require_usable(event.facts["release"])
    for at, mine in Places(event.columns["batch"], event.columns["row"]).groups():
        rows, spent = event.columns["row"][mine], event.columns[PURE][mine]
        batch = event.derived.batches.get(at)
        if batch is None or not batch.holds(event.facts, rows):
            event.problem(f"it speaks of rows that batch {at} did not reserve")
            continue
        before = [row for _, earlier, _ in event.derived.settled.get(at, []) for row in earlier.tolist()]
        worst = event.book.segments.read(at, event.book.journal.facts(at), [PURE])[PURE][rows]
        committed = (batch.states[rows] == State.COMMITTED).all()
        if len({*before, *rows.tolist()}) < len(before) + len(rows) or not committed or (spent > worst).any():
            event.problem(f"rows of batch {at} do not stand where they could be so settled")
        event.derived.settled.setdefault(at, []).append((event.seq, rows, spent))


def _post(event: Happening) -> None:
    """Follow what post-processing made of committed rows: each row once under a chain, at no cost."""
    event.require_usable(event.facts["release"])
    provenances = [step["training_provenance"] for step in event.facts["steps"]]
    if event.facts["spend"] != 0 or not provenances or not set(provenances) <= {*PROVENANCES}:
        event.problem("it says that post-processing costs something, or not what it learned from")
    for at, mine in Places(event.columns["batch"], event.columns["row"]).groups():
        batch, rows = event.derived.batches.get(at), event.columns["row"][mine]
        if batch is None or not batch.holds(event.facts, rows):
            event.problem(f"it speaks of rows that batch {at} did not reserve")
            continue
        held = event.derived.rewritten.setdefault((at, event.facts["chain"]), [])
        every = np.concatenate([*held, rows])
        if len(np.unique(every)) < len(every) or not (batch.states[rows] == State.COMMITTED).all():
            event.problem(f"rows of batch {at} do not stand where they could be so rewritten")
        held.append(rows)
        event.derived.posts.setdefault(at, []).append(event.seq)


def _replay(event: Happening) -> None:
    for at in event.facts["attached"]:
        event.derived.batches[at].attached = True


def _publish(event: Happening) -> None:
    facts, derived = event.facts, event.derived
    for release, nonce in facts["releases"]:
        event.require_usable(release)
        if not derived.releases[release]["publishable"]:
            event.problem(f"{derived.name(release)} is not publishable")
        central = derived.releases[release]["facts"]["class"] == GuaranteeClass.CENTRAL_ZCDP
        most = derived.tallies.get((release, nonce), Counter())["committed"]
        if facts["rows"] > most and not (central and most):
            event.problem(f"more rows than commits in {derived.name(release)}")
        derived.publications[release, nonce, facts["version"]] = (facts["manifest"], facts["rows"])


def _retire(event: Happening) -> None:
    """Follow a version that took rows away: it replaces what was published, with no more rows."""
    facts, derived = event.facts, event.derived
    for release, nonce in facts["releases"]:
        mine = (name for name in derived.publications if name[:2] == (release, nonce))
        known = dict(derived.publications[name] for name in mine)
        if not facts["retired"] or not set(facts["retired"]) <= known.keys():
            event.problem(f"it retires what was not published of {derived.name(release)}")
        elif facts["rows"] > max(known[digest] for digest in facts["retired"]):
            event.problem(f"more rows than were published of {derived.name(release)}")
        derived.publications[release, nonce, facts["version"]] = (facts["manifest"], facts["rows"])
    for release, nonce, digests in facts.get("others", ()):
        theirs = {held[0] for name, held in derived.publications.items() if name[:2] == (release, nonce)}
        if not set(digests) <= theirs:
            event.problem(f"it retires what was not published of {derived.name(release)}")


def _forget(event: Happening) -> None:
    event.derived.forgotten.setdefault(f"{FORGOTTEN}{event.facts['dataset']}", []).append(event.seq)


def _pin(event: Happening) -> None:
    event.require_usable(event.facts["release"])
    name, digest = (event.facts["release"], event.facts["nonce"]), event.facts["digest"]
    if event.derived.tables.setdefault(name, digest) != digest:
        event.problem(f"it pins another table of {event.derived.name(name[0])}")


Step = Callable[[Happening], None]
_STEPS: dict[Event, Step] = {
    Event.RELEASE: _release,
    Event.BURN: _revoke,
    Event.FREEZE: _freeze,
    Event.THAW: _thaw,
    Event.CAP_SET: _cap_set,
    Event.RESERVE: _reserve,
    Event.REPLAY: _replay,
    Event.COMMIT: _outputs,
    Event.DIVERGED: _outputs,
    Event.SETTLE: _settle,
    Event.EXPIRE: _move,
    Event.ABORT: _move,
    Event.PUBLISH: _publish,
    Event.RETIRE: _retire,
    Event.ID_FORM: _id_form,
    Event.POST: _post,
    Event.UNITS: _units,
    Event.FORGET: _forget,
    Event.READMIT: _forget,
    Event.PIN: _pin,
}
