"""The answers of a ledger from a full scan of its journal: plain numbers, and nothing of `ledger.plan`."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dptext_etl.accounting import MEASURES
from dptext_etl.guarantee import MICRO, PURE
from dptext_etl.ledger import Charge, CommitOutcome, Outcome, Scope, State
from dptext_etl.ledger.storage.journal import LAYOUTS
from dptext_etl.policy import Cap

from ..ledger_kit import binaries, digest

ROOM = 7
YEAR = {"period": "2026"}
LATE = Scope("free", "2026")
"""A scope that is charged without a cap, until it gets one."""
SCOPES = {
    Scope("reviews", "2026"): Cap(epsilon=ROOM, **YEAR),
    Scope("reviews", "2027"): Cap(measure="zcdp", rho=ROOM, period="2027"),
    Scope("left", "2026", "both"): Cap(measure="approx", epsilon=ROOM + 2, delta=ROOM / 1e6, group="both", **YEAR),
    Scope("right", "2026", "both"): None,  # its group has one
    Scope("rows", "2026", unit="record"): Cap(epsilon=4, **YEAR),
    Scope("rows", "2027"): Cap(epsilon=ROOM, period="2027"),
    LATE: None,
}
FAILURES = {  # the beginning of a statement, and whether it is done before the transaction breaks off
    "as the plan catches up": ("select seq, kind, body", True),
    "before rows": ("insert into segment", False),
    "before the first event": ("insert into event", False),
    "after the first event": ("insert into event", True),
    "after rows": ("insert into segment", True),
    "before the end": ("commit", False),
    "lost answer": ("commit", True),
}
PEOPLE = ("ann", "bob", "zoe")
DELTA = 10**9
"""The delta of a word in its steps."""
INFINITE = (Scope("reviews", "2027"),)
"""Where charges are infinite in a component that the cap does not count."""
REFUNDABLE = {"reviews", "rows", "free"}
"""Datasets whose releases give unused budget back."""


@dataclass
class Row:
    """A reserved row, and what became of it."""

    at: tuple[int, int]
    release: tuple[int, int]
    dataset: str
    scope: int
    record: bytes
    unit: bytes
    key: bytes
    canary: bool
    words: int
    spends: dict[str, int]
    state: State = State.RESERVED
    digest: bytes | None = None
    positions: int = 0
    settled: int | None = None


class Scan:
    """The state that follows from the events of a journal, one after the other."""

    def __init__(self, db, cache):
        self.id_key = db.id_key
        self.rows, self.newest, self.jobs, self.attached = {}, defaultdict(dict), {}, set()
        self.accepted, self.gone, self.gone_units, self.readmitted = {}, set(), {}, {}
        self.frozen, self.thawed, self.burnt = set(), set(), set()
        self.scopes, self.caps, self.of_subjects, self.head = {}, {}, set(), b""
        for entry in db.journal.entries():
            if entry.hash not in cache:
                names = [name for name, _ in LAYOUTS.get(entry.kind, ())]
                cache[entry.hash] = entry.facts, db.journal.read(entry.seq, names) if names else {}
            self.head = entry.hash
            self._take(entry.seq, entry.kind, *cache[entry.hash])

    def _take(self, seq, kind, facts, columns):
        dataset = facts.get("dataset")
        if kind in {"RESERVE", "CAP_SET"}:
            self.scopes[facts["name"], facts["period"]] = facts["scope"]
            if facts["unit"] == "subject":
                self.of_subjects.add(dataset)
        if kind == "CAP_SET":
            self.caps[facts["scope"]] = facts["measure"], facts["limits"]
        elif kind == "RESERVE":
            self._reserved(seq, facts, columns)
        elif kind == "REPLAY":
            self.attached.update(facts["attached"])
        elif kind == "UNITS":
            self.accepted[dataset] = seq
        elif kind in {"FORGET", "READMIT"}:
            for name in (row.tobytes() for row in columns["record"]):
                self._forgotten(seq, (dataset, name), forgets=kind == "FORGET", unit="of" in facts)
        elif kind == "FREEZE":
            self.frozen.add(dataset)
        elif kind == "THAW":
            self.frozen.discard(dataset)
            self.thawed.add(dataset)
        elif kind == "BURN":
            self.burnt.add((dataset, facts["release"]))
        for index, at in enumerate(zip(columns.get("batch", ()), columns.get("row", ()), strict=True)):
            row = self.rows[int(at[0]), int(at[1])]
            if kind == "SETTLE":
                row.settled = int(columns[PURE][index])
            elif kind == "COMMIT":
                row.state, row.digest = State.COMMITTED, columns["digest"][index].tobytes()
                row.positions = int(columns["positions"][index])
            elif kind in {"EXPIRE", "ABORT"}:
                row.state = State.EXPIRED if kind == "EXPIRE" else State.ABORTED

    def _reserved(self, seq, facts, columns):
        release = facts["release"], facts["nonce"]
        self.jobs[seq] = facts["job"], facts.get("again", 0)
        for index in range(facts["rows"]):
            hashes = (columns[name][index].tobytes() for name in ("record", "unit", "idem_key"))
            marks = bool(columns["canary"][index]), int(columns["n_worst"][index])
            spends = {name: int(columns[name][index]) for names in MEASURES.values() for name in names}
            row = Row((seq, index), release, facts["dataset"], facts["scope"], *hashes, *marks, spends)
            self.rows[row.at] = self.newest[release][row.record] = row

    def _forgotten(self, seq, name, *, forgets, unit):
        if unit and forgets:
            self.gone_units[name] = seq
        elif unit:
            del self.gone_units[name]
        elif forgets:
            self.gone.add(name)
        else:
            self.gone.remove(name)
            self.readmitted[name] = seq

    def held(self, release, record):
        """The row that a release holds of a record, or None: the newest one, unless it was given back."""
        row = self.newest[release].get(record)
        return None if row is None or row.state == State.ABORTED else row

    def is_forgotten(self, dataset, record, unit=b""):
        since = self.gone_units.get((dataset, unit), 0)
        return (dataset, record) in self.gone or since > self.readmitted.get((dataset, record), 0)

    def charged_to(self, dataset, units):
        return {row.record for row in self.rows.values() if row.dataset == dataset and row.unit in units}

    def number(self, scope):
        return self.scopes.get((scope.name, scope.period))

    def cap(self, scope):
        """The components of the cap of a scope, and their limits."""
        measure, limits = self.caps.get(self.number(scope), (None, []))
        return MEASURES.get(measure, ()), limits

    def used(self, scope):
        """The use of each unit, by tracked component of a scope."""
        names, totals = self.cap(scope)[0] or (PURE,), {}
        for row in self.rows.values():
            if row.scope == self.number(scope) and row.state != State.ABORTED and not row.canary:
                amounts = [row.spends[name] for name in names]
                if row.settled is not None and names == (PURE,):
                    amounts = [row.settled]
                add(totals, row.unit, amounts)
        return totals

    def is_moved(self, dataset, refs, record, unit):
        """Whether a record was charged to another unit: a release that is asked for decides, then the newest one."""
        releases = [(ref.id, ref.nonce) for ref in refs]
        if dataset in self.of_subjects:
            others = {row.release for row in self.rows.values() if row.dataset == dataset}
            releases += sorted(others - set(releases), reverse=True)
        rows = (self.held(release, record) for release in releases)
        since = self.accepted.get(dataset, 0)
        return next((row.unit != unit for row in rows if row is not None and row.at[0] > since), False)

    def hashes(self, ids, canary=None):
        return [row.tobytes() for row in self.id_key.records(pa.array(ids, pa.string()), canary).hashes]

    def subjects(self, people, canary=None):
        return [row.tobytes() for row in self.id_key.subjects(pa.array(people, pa.string()), canary)]

    def units(self, request):
        if request.scope.unit == "subject":
            return self.subjects(request.people, request.canary)
        hashes = self.hashes(request.ids, request.canary)
        return [bytes(32) if mark else each for each, mark in zip(hashes, request.canary, strict=True)]

    def judge(self, request, *, capped=True):
        """The expected answer: per row the outcome, which columns charge it, whether it moved; None refuses.

        With what units have used of the scope then.
        """
        scope, refs, charges = request.scope, request.refs, request.charges()
        if scope.dataset in self.frozen or any((ref.dataset, ref.release) in self.burnt for ref in refs):
            return None
        names, limits = self.cap(scope)
        if request.cap is not None:
            if scope.dataset in self.thawed:
                return None
            names, limits = (PURE,), [int(request.cap.epsilon * MICRO)]
        used, answers = self.used(scope), []
        records, units = self.hashes(request.ids, request.canary), self.units(request)
        for at, (record, unit, mark) in enumerate(zip(records, units, request.canary.tolist(), strict=True)):
            rows = [self.held((ref.id, ref.nonce), record) for ref in refs]
            changed = [row is not None and row.key != keys[at] for row, keys in zip(rows, request.keys, strict=True)]
            new = [row is None or (other and request.again) for row, other in zip(rows, changed, strict=True)]
            ends = [row is not None and row.state == State.COMMITTED for row in rows]
            outcome = Outcome.RESERVED if any(new) else Outcome.COMMITTED if all(ends) else Outcome.PENDING
            if any(changed):
                outcome = Outcome.AGAIN if request.again else Outcome.CHANGED
            if self.is_forgotten(scope.dataset, record, unit):
                outcome = Outcome.FORGOTTEN
            if outcome in {Outcome.RESERVED, Outcome.AGAIN} and capped and not mark:
                before = dict(used)
                for charge, is_new in zip(charges, new, strict=True):
                    amounts = [int(charge.spends[name][at]) for name in names or (PURE,) if name in charge.spends]
                    add(used, unit, [amount * is_new for amount in amounts])
                if any(total > limit for total, limit in zip(used[unit], limits, strict=False)):
                    outcome, used = Outcome.OVER_CAP, before
            is_charged = outcome in {Outcome.RESERVED, Outcome.AGAIN}
            moved = not mark and self.is_moved(scope.dataset, refs, record, unit)
            done = all(end or not other for end, other in zip(ends, changed, strict=True))
            answers.append((outcome, [is_new and is_charged for is_new in new], moved, done))
        over = request.refuse and any(outcome == Outcome.OVER_CAP for outcome, *_ in answers)
        if capped and (over or any(moved for *_, moved, _ in answers)):
            return None
        return answers, used

    def judge_commit(self, results):
        """The outcome of each row, or None where a scan says that the commit is refused."""
        ref, ids, identities, digests, given = results
        records, said = self.hashes(ids, given["canary"]), []
        if ref.dataset in self.frozen or (ref.dataset, ref.release) in self.burnt:
            return None
        for at, record in enumerate(records):
            row = self.held((ref.id, ref.nonce), record)
            if row is None or row.key != identities[at] or self.is_forgotten(ref.dataset, record):
                return None
            if given["positions"][at] > row.words:
                return None
            if row.state == State.COMMITTED:
                said.append(CommitOutcome.ALREADY if row.digest == digests[at] else CommitOutcome.DIVERGED)
                continue
            if "spent" in given and (ref.dataset not in REFUNDABLE or given["spent"][at] > row.spends[PURE]):
                return None
            said.append(CommitOutcome.COMMITTED)
        return said


def add(totals, unit, amounts):
    totals[unit] = [have + more for have, more in zip(totals.get(unit, [0] * len(amounts)), amounts, strict=True)]


@dataclass
class Request:
    """A call of `reserve`, with hashes, and identities by column for a scan."""

    job: str
    scope: Scope
    cap: Cap | None
    rows: list
    people: list
    columns: tuple
    refs: list
    words: list
    texts: list
    again: bool
    refuse: bool
    sealed: bool

    def __post_init__(self):
        self.ids, self.canary = [name for name, _ in self.rows], np.array([mark for _, mark in self.rows])
        pairs = list(zip(self.rows, self.texts, strict=True))
        self.keys = [[digest(ref.release, ref.column, ref.nonce, *pair) for pair in pairs] for ref in self.refs]

    def charges(self):
        words = np.array(self.words, np.int64)
        spends = dict.fromkeys(("eps_tight", "eps_approx", "rho"), words * MICRO) | {"delta": words * DELTA}
        if self.scope not in INFINITE:
            spends[PURE] = words * MICRO
        return [Charge(ref, binaries(keys), words, spends) for ref, keys in zip(self.refs, self.keys, strict=True)]


def all_units(scan, scope):
    if scope.unit == "record":
        names = list("abcdef")
        return pa.array(names), scan.hashes(names)
    return pa.array(PEOPLE), scan.subjects(PEOPLE)


def lost_in_all(words):
    return {PURE: words, "rho": words, "eps_approx": words, "delta": words / 1e6}


def with_equal_halves(hashed, *asked):
    """Hash ids so that all of them share their first eight bytes with many others."""
    rows = hashed(*asked).copy()
    rows[:, :7], rows[:, 7] = 0, rows[:, 7] % 2
    return rows
