"""Derive the contents of a ledger from its journal: releases, scopes and caps, batches, publications, forgotten people.

A ledger stores its journal and sealed segments, and nothing else. Each process reads the bodies of all events once, and
then newer ones. It checks their hash chain, and that each event may follow those before it. So no row of another table
can say that a scope was charged less. The cost grows with the number of batches, not of records; segments are read
when their rows are needed (docs/spec/ledger-plan.md#source).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

from dptext_etl.accounting import MEASURES
from dptext_etl.errors import DPTextError, FrozenLedgerError, LedgerError
from dptext_etl.guarantee import GuaranteeClass
from dptext_etl.ledger.storage.journal import EDITED, LAYOUTS, Entry, Head, Journal, event_hash
from dptext_etl.ledger.storage.store import Store
from dptext_etl.ledger.types import AGAIN, ALL, GROUP, OF, UNIT, Event, ReleaseRef, Scope, Unit

MALFORMED = (DPTextError, KeyError, ValueError, TypeError, IndexError, AttributeError, OverflowError)
"""Errors of reading an event that no version of the library wrote."""
PROVENANCES = ("public", "disjoint-records")  # training data that a free post-processing may use
COUNTED = {
    Event.COMMIT: "committed",
    Event.EXPIRE: "expired",
    Event.ABORT: "aborted",
    Event.DIVERGED: "diverged",
}
COUNTS = ("records", "canaries", *COUNTED.values())
"""The counts of a release."""
NEW_NAME = "use a new `release` name, which is charged in full"
Facts = Mapping[str, Any]
Key = tuple[int, int]
"""The number of a release, and a nonce."""


class Pinned(NamedTuple):
    """A scope as the ledger holds it. Measure and limits are empty while no cap is set."""

    id: int
    unit: Unit
    measure: str | None
    limits: tuple[int, ...]
    name: str = ""
    period: str = ""

    @property
    def components(self) -> tuple[str, ...]:
        """The components that the cap adds up; none without a cap."""
        return () if self.measure is None else MEASURES[self.measure]


@dataclass
class Release:
    """A release name of a column, and its pinned configuration."""

    id: int
    dataset: str
    column: str
    release: str
    cfg: str
    id_type: str
    publishable: bool
    facts: dict[str, Any]
    commitment: str  # to the noise key

    def __str__(self) -> str:
        return f"{self.dataset}.{self.column}, release {self.release!r}"

    def ref(self, nonce: int) -> ReleaseRef:
        return ReleaseRef(self.id, self.dataset, self.column, self.release, self.cfg, nonce)


class Move(NamedTuple):
    """An event that moved rows of a batch to another state."""

    seq: int
    kind: Event
    whole: bool  # it moved all rows of the batch


@dataclass
class Batch:
    """A sealed batch, and the events that name its rows, in their order."""

    seq: int
    key: Key
    scope: int
    job: str
    ts: str
    rows: int
    again: bool  # its texts replace earlier ones of their records
    attached: bool = False  # another job relies on its reservations
    moves: list[Move] = field(default_factory=list)
    settled: list[int] = field(default_factory=list)
    posts: list[tuple[int, str]] = field(default_factory=list)  # events and chains of post-processing


class Publication(NamedTuple):
    manifest: str
    rows: int
    seq: int
    ts: str


class Contents:
    """The contents of a ledger, by its journal. Only the holder of the store's lock reads or writes it."""

    def __init__(self, store: Store, journal: Journal) -> None:
        self._store, self._journal = store, journal
        self.generation = 0  # counts how often the journal was read from its first event
        self._clear()

    def _clear(self) -> None:
        self.generation += 1
        self.head = Head(0, self._journal.genesis)  # the last event that was read
        self.releases: dict[int, Release] = {}  # releases by number
        self.scopes: dict[int, Pinned] = {}  # scopes by number
        # datasets that were charged in a scope or got its cap, by the scope's number
        self.members: dict[int, set[str]] = {}
        # caps of a scope in their order: event, measure, and limits
        self.caps: dict[int, list[tuple[int, str, list[int]]]] = {}
        self.batches: dict[int, Batch] = {}  # batches by number, in ascending order
        self.of_release: dict[Key, list[int]] = {}  # numbers of batches by release and nonce
        self.of_scope: dict[int, list[int]] = {}  # numbers of batches by scope
        self.tallies: dict[Key, Counter[str]] = {}  # counts by release and nonce
        self.settlements: list[int] = []  # numbers of the events that settle rows
        self.last_abort = 0  # number of the last event that gave reservations back
        self.frozen: dict[str, Facts] = {}  # frozen datasets, each with the facts of its last FREEZE event
        self.freezes: list[tuple[int, Facts]] = []  # numbers and facts of all FREEZE events
        self.thaws: list[Facts] = []  # facts of all THAW events
        self.revoked: dict[tuple[str, str], int] = {}  # events by dataset and revoked name
        self.forms: dict[tuple[str, ...], Any] = {}  # pinned forms of ids and names of their columns, by place
        self.accepted: dict[str, int] = {}  # events up to which batches of a dataset bind no unit
        self.forgets: dict[str, list[int]] = {}  # numbers of the events that name forgotten people, by dataset
        self.pins: dict[Key, tuple[int, str, str]] = {}  # events and digests of pinned tables
        self.published: list[Facts] = []  # facts of all events that record a version
        self.publications: dict[Key, dict[str, Publication]] = {}  # versions by release and nonce
        # keyed hashes of the sinks in which a manifest was recorded, by its digest
        self.sinks: dict[str, set[str]] = {}

    def latest(self) -> Self:
        """Read newer events, and return the contents; refuse a journal that this library did not write."""
        with self._store.snapshot():
            if self._journal.last() == self.head:
                return self
            if not self._journal.has_head(self.head):  # a transaction was rolled back, or the ledger was restored
                self._clear()
            for entry in self._journal.entries(after=self.head.seq):
                for problem in self.take(entry):
                    self._clear()
                    raise LedgerError(f"{problem}: nothing is charged or published", EDITED)
        return self

    def take(self, entry: Entry) -> list[str]:
        """Read the next event, and return the problems with it in words."""
        what = f"{'batch' if entry.kind in LAYOUTS else 'event'} {entry.seq} ({entry.kind})"
        problems = []
        if entry.seq != self.head.seq + 1:
            problems.append(f"events {self.head.seq + 1} to {entry.seq - 1} are missing")
        if event_hash(self.head.hash, entry.body) != entry.hash:
            problems.append(f"{what}: the chain is broken here")
        self.head = Head(entry.seq, bytes(entry.hash))
        try:
            facts = entry.facts
            if (facts["seq"], facts["event"]) != (entry.seq, entry.kind):
                problems.append(f"{what}: it is in another place than it states")
            handler = self._HANDLERS[Event(entry.kind)]
            problems.extend(
                f"{what}: {problem}" for problem in handler(self, entry.seq, Event(entry.kind), facts) or ()
            )
        except LedgerError as exc:
            problems.append(f"{what}: {exc.message}")
        except MALFORMED as exc:
            problems.append(f"{what}: it cannot be read ({type(exc).__name__})")
        return problems

    def refuse_frozen(self, dataset: str, group: str | None = None) -> None:
        """Refuse a dataset that is frozen, or a group that froze with one: some of its charges may be forgotten."""
        if dataset in self.frozen:
            hint = "`dptext ledger thaw` revokes its release names and charges possibly lost amounts"
            raise FrozenLedgerError(f"the dataset {dataset} is frozen: {self.frozen[dataset]['reason']}", hint)
        for name, facts in sorted(self.frozen.items()):
            if group in facts.get("groups", ()):
                msg = f"the group {group} is frozen with the dataset {name}: {facts['reason']}"
                raise FrozenLedgerError(msg, f"`dptext ledger thaw {name}` settles it for all datasets of the group")

    def refuse_revoked(self, dataset: str, release: str) -> None:
        if (dataset, release) in self.revoked:
            msg = f"release {release!r} of {dataset} is revoked: nothing further happens under this name"
            raise LedgerError(msg, f"if a gate fired, fix the cause; then {NEW_NAME}")

    def require_usable(self, ref: ReleaseRef) -> None:
        """Refuse a release that is frozen or revoked, or that this ledger does not know."""
        pinned = self.releases.get(ref.id)
        if pinned is None or pinned.ref(ref.nonce) != ref:
            raise LedgerError(f"{ref} is not registered in this ledger", "call ledger.releases.register first")
        self.refuse_frozen(ref.dataset)
        self.refuse_revoked(ref.dataset, ref.release)

    def find(self, name: str, period: str) -> Pinned | None:
        return next((item for item in self.scopes.values() if (item.name, item.period) == (name, period)), None)

    def scopes_of(self, dataset: str) -> list[Pinned]:
        """Return the scopes of a dataset, in the order of their numbers."""
        return [self.scopes[number] for number, datasets in sorted(self.members.items()) if dataset in datasets]

    def other_group(self, scope: Scope) -> Pinned | None:
        """Return another scope in which spends of a dataset add up in the same period, or None."""
        others = (item for item in self.scopes_of(scope.dataset) if item.period == scope.period)
        return next((item for item in others if item.name != scope.name), None)

    def capped(self, dataset: str) -> Pinned | None:
        """Return a scope of a dataset that has a cap, or None."""
        return next((item for item in self.scopes_of(dataset) if item.measure is not None), None)

    def named_period(self, scope: Scope) -> Pinned | None:
        """Return the newest scope with a named period and a cap that a charge in the period of all time would pass."""
        for number, item in sorted(self.scopes.items(), reverse=True) if scope.period == ALL else ():
            shared = scope.dataset in self.members[number] or item.name == scope.name
            if item.period != ALL and item.measure is not None and shared:
                return item
        return None

    def releases_of(self, dataset: str) -> list[Release]:
        return [item for item in self.releases.values() if item.dataset == dataset]

    def batches_of(self, dataset: str) -> list[Batch]:
        return [item for item in self.batches.values() if self.releases[item.key[0]].dataset == dataset]

    def _unusable(self, release: int) -> Iterator[str]:
        """Say whether an event falls under a revoked name or in a frozen dataset."""
        pinned = self.releases[release]
        if pinned.dataset in self.frozen:
            yield f"the dataset {pinned.dataset} was frozen before"
        if (pinned.dataset, pinned.release) in self.revoked:
            yield f"{pinned} was revoked before"

    def count(self, key: Key) -> Counter[str]:
        """Return the counts of a release and nonce."""
        return self.tallies.get(key, Counter())

    def _named(self, facts: Facts) -> Iterator[Batch]:
        """Iterate over the batches of a release that an event names; refuse others."""
        key = facts["release"], facts["nonce"]
        for seq in facts["batches"]:
            batch = self.batches.get(seq)
            if batch is None or batch.key != key:
                raise LedgerError(f"it speaks of rows that batch {seq} did not reserve")
            yield batch

    def _release(self, _seq: int, _kind: Event, facts: Facts) -> Iterator[str]:
        names = facts["dataset"], facts["column"], facts["release"]
        if facts["release_id"] != len(self.releases) + 1 or any(
            (item.dataset, item.column, item.release) == names for item in self.releases.values()
        ):
            yield "it pins a release name again, or under a number that is not the next one"
        if "commitment" not in facts:
            yield "its release is not committed to a noise key"
        self.releases[facts["release_id"]] = Release(
            facts["release_id"],
            *names,
            cfg=facts["cfg"],
            id_type=facts["id_type"],
            publishable=bool(facts["publishable"]),
            facts=facts["facts"],
            commitment=facts.get("commitment", ""),
        )

    def _pin(self, seq: int, _kind: Event, facts: Facts) -> Iterator[str]:
        yield from self._unusable(facts["release"])
        now = facts["digest"], facts.get("sums", "")
        pin = self.pins.setdefault((facts["release"], facts["nonce"]), (seq, *now))
        if pin[1:] != now:
            yield f"it pins another table of {self.releases[facts['release']]}"

    def _revoke(self, seq: int, _kind: Event, facts: Facts) -> None:
        self.revoked.setdefault((facts["dataset"], facts["release"]), seq)

    def _freeze(self, seq: int, _kind: Event, facts: Facts) -> None:
        self.frozen[facts["dataset"]] = facts
        self.freezes.append((seq, facts))

    def _thaw(self, _seq: int, _kind: Event, facts: Facts) -> Iterator[str]:
        if self.frozen.pop(facts["dataset"], None) is None:
            yield "it thaws a dataset that is not frozen"
        self.thaws.append(facts)

    def _scope(self, facts: Facts) -> Iterator[str]:
        """Follow an event that names a scope: the first one opens it."""
        number, names = facts["scope"], (facts["unit"], facts["name"], facts["period"])
        if number not in self.scopes:
            if number != len(self.scopes) + 1 or self.find(*names[1:]) is not None:
                yield "it opens a scope again, or under a number that is not the next one"
            self.scopes[number], self.members[number] = Pinned(number, names[0], None, (), *names[1:]), set()
        pinned = self.scopes[number]
        if (pinned.unit, pinned.name, pinned.period) != names:
            yield f"scope {number} has another name, period, or unit"
        scope = Scope.named(facts["name"], facts["dataset"], facts["period"], facts["unit"])
        if scope.name != facts["name"] or self.other_group(scope) is not None:
            yield "spends of its dataset add up elsewhere"
        self.members[number].add(facts["dataset"])

    def _cap_set(self, seq: int, _kind: Event, facts: Facts) -> Iterator[str]:
        yield from self._scope(facts)
        number, limits = facts["scope"], [int(limit) for limit in facts["limits"]]
        pinned = self.scopes[number]._replace(measure=facts["measure"], limits=tuple(limits))
        if len(limits) != len(pinned.components):
            yield "its number of limits does not fit its measure"
        self.scopes[number] = pinned
        self.caps.setdefault(number, []).append((seq, facts["measure"], limits))

    def _reserve(self, seq: int, _kind: Event, facts: Facts) -> Iterator[str]:
        key = facts["release"], facts["nonce"]
        yield from self._unusable(facts["release"])
        if self.releases[facts["release"]].dataset != facts["dataset"]:
            yield "its release is of another dataset"
        if any(facts["name"] == f"{GROUP}{group}" for item in self.frozen.values() for group in item.get("groups", ())):
            yield f"the {facts['name']} was frozen before"
        yield from self._scope(facts)
        if self.scopes[facts["scope"]].measure is None and self.capped(facts["dataset"]) is not None:
            yield "it charges a dataset with a cap in a scope without one"
        if self.named_period(Scope.named(*(facts[key] for key in ("name", "dataset", "period", "unit")))) is not None:
            yield f"it charges the period {ALL}, and named ones have caps"
        self.batches[seq] = Batch(
            seq, key, facts["scope"], facts["job"], facts["ts"], facts["rows"], bool(facts.get(AGAIN))
        )
        self.of_release.setdefault(key, []).append(seq)
        self.of_scope.setdefault(facts["scope"], []).append(seq)
        self.tallies.setdefault(key, Counter()).update(records=facts["rows"], canaries=facts["canaries"])

    def _replay(self, _seq: int, _kind: Event, facts: Facts) -> None:
        for at in facts["attached"]:
            self.batches[at].attached = True

    def _move(self, seq: int, kind: Event, facts: Facts) -> Iterator[str]:
        if kind in {Event.COMMIT, Event.DIVERGED}:
            yield from self._unusable(facts["release"])
        for batch in self._named(facts):
            whole = facts["rows"] == batch.rows and facts["columns"]["row"].get("from") == 0
            batch.moves.append(Move(seq, kind, whole and len(facts["batches"]) == 1))
        if kind == Event.ABORT:
            self.last_abort = seq
        tally = self.tallies.setdefault((facts["release"], facts["nonce"]), Counter())
        tally[COUNTED[kind]] += facts["rows"]
        tally["expired"] -= facts.get("expired", 0)

    def _settle(self, seq: int, _kind: Event, facts: Facts) -> Iterator[str]:
        yield from self._unusable(facts["release"])
        if not self.releases[facts["release"]].facts.get("expost"):
            yield f"{self.releases[facts['release']]} is not refundable"
        for batch in self._named(facts):
            batch.settled.append(seq)
        self.settlements.append(seq)

    def _postprocess(self, seq: int, _kind: Event, facts: Facts) -> Iterator[str]:
        yield from self._unusable(facts["release"])
        provenances = {step["training_provenance"] for step in facts["steps"]}
        if facts["spend"] != 0 or not provenances or not provenances <= {*PROVENANCES}:
            yield "post-processing has a cost in it, or does not state its training data"
        for batch in self._named(facts):
            batch.posts.append((seq, facts["chain"]))

    def _publish(self, seq: int, _kind: Event, facts: Facts) -> Iterator[str]:
        for release, nonce in facts["releases"]:
            yield from self._unusable(release)
            pinned, committed = self.releases[release], self.count((release, nonce))["committed"]
            if not pinned.publishable:
                yield f"{pinned} is not publishable"
            central = pinned.facts["class"] == GuaranteeClass.CENTRAL_ZCDP
            if facts["rows"] > committed and not (central and committed):
                yield f"more rows than commits in {pinned}"
        self._record(seq, facts)

    def _retire(self, seq: int, _kind: Event, facts: Facts) -> Iterator[str]:
        """Follow a version that removed rows: it replaces published versions, with no more rows."""
        for release, nonce in facts["releases"]:
            rows = {item.manifest: item.rows for item in self.publications.get((release, nonce), {}).values()}
            if not facts["retired"] or not set(facts["retired"]) <= rows.keys():
                yield f"it retires a version that was not published of {self.releases[release]}"
            elif facts["rows"] > max(rows[digest] for digest in facts["retired"]):
                yield f"more rows than were published of {self.releases[release]}"
        for release, nonce, digests in facts.get("others", ()):
            rows = {item.manifest: item.rows for item in self.publications.get((release, nonce), {}).values()}
            if not set(digests) <= rows.keys():
                yield f"it retires a version that was not published of {self.releases[release]}"
        self._record(seq, facts)

    def _record(self, seq: int, facts: Facts) -> None:
        version = Publication(facts["manifest"], facts["rows"], seq, facts["ts"])
        for release, nonce in facts["releases"]:
            self.publications.setdefault((release, nonce), {}).setdefault(facts["version"], version)
        self.published.append(facts)
        self.sinks.setdefault(facts["manifest"], set()).add(facts["sink"])

    def _units(self, seq: int, _kind: Event, facts: Facts) -> None:
        """Follow an acceptance of other units: columns and forms of units are pinned anew after it."""
        self.accepted[facts["dataset"]] = seq
        for scope in facts["scopes"]:
            for role in ("record", "subject"):
                self.forms.pop(("name", scope, facts["dataset"], role), None)
                self.forms.pop(("scope", scope, role), None)

    def _id_form(self, _seq: int, _kind: Event, facts: Facts) -> Iterator[str]:
        place = tuple(facts["place"])
        if place in self.forms:
            yield "it changes the pinned form of ids"
        self.forms[place] = facts["form"]

    def _forget(self, seq: int, _kind: Event, facts: Facts) -> Iterator[str]:
        if facts.get(OF, UNIT) != UNIT:
            yield "it names neither records nor units"
        self.forgets.setdefault(facts["dataset"], []).append(seq)

    _HANDLERS: ClassVar[dict[Event, Callable[[Contents, int, Event, Facts], Iterator[str] | None]]] = {
        Event.RELEASE: _release,
        Event.PIN: _pin,
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
    }
