"""The ledger against a model: random interleavings of writers, retries, crashes, expiry and abortion.

Specification: docs/spec/privacy.md#ledger-model-test.
"""

import itertools
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dptext_etl.errors import LedgerError
from dptext_etl.ledger import CommitOutcome, Outcome, Scope, State
from dptext_etl.ledger.storage import sorted_runs

from ..examples import examples
from .conftest import Kit

RECORDS = {f"r{i}": f"s{i % 3}" for i in range(7)}
CAP = 6
SCOPE = Scope("reviews", "2026")
writers = st.sampled_from(["one", "two"])
records = st.lists(st.sampled_from(sorted(RECORDS)), min_size=1, max_size=7, unique=True)
columns = st.sampled_from([("review",), ("title",), ("review", "title")])
texts = st.sampled_from(["text", "text", "text", "changed"])
outputs = st.sampled_from(["out", "out", "other"])
releases = st.sampled_from(["x", "y"])


@dataclass
class Entry:
    """What the model knows of a record in a release of a column."""

    text: str
    epsilon: int
    batch: list
    state: State = State.RESERVED
    output: str | None = None


class Interleavings(RuleBasedStateMachine):
    """Two handles on one file; what one writes the other must respect."""

    def place(self):
        return self.folder / "ledger.db"

    @initialize()
    def start(self):
        self.folder = Path(tempfile.mkdtemp())
        place = self.place()
        self.kits = {name: Kit(place) for name in ("one", "two")}
        self.held = {}
        self.batches = []
        self.used = dict.fromkeys(RECORDS.values(), 0)

    @rule(writer=writers, names=records, release=releases, where=columns, text=texts, epsilon=st.integers(0, 4))
    def reserve(self, writer, names, release, where, text, epsilon):
        expected = [self._judged(writer, name, release, where, text, epsilon) for name in names]
        kit = self.kits[writer]
        refs = [kit.ref(column, release) for column in where]
        people = [RECORDS[name] for name in names]
        assert kit.reserve(names, people, epsilon, CAP, text, refs, writer) == expected

    def _judged(self, writer, name, release, where, text, epsilon):
        """Predict the outcome of one record, and do in the model what the ledger must do."""
        held = {column: self.held.get((release, column, name)) for column in where}
        alive = {column: entry for column, entry in held.items() if entry and entry.state != State.ABORTED}
        if any(entry.text != text for entry in alive.values()):
            return Outcome.CHANGED
        fresh = [column for column in where if column not in alive]
        if self.used[RECORDS[name]] + epsilon * len(fresh) > CAP and fresh:
            return Outcome.OVER_CAP
        for entry in alive.values():
            if entry.state != State.COMMITTED and entry.batch[0] != writer:
                entry.batch[1] = True
        for column in fresh:
            batch = self._batch(writer, release, column)
            self.held[release, column, name] = Entry(text, epsilon, batch)
            self.used[RECORDS[name]] += epsilon
        if fresh:
            return Outcome.RESERVED
        done = all(entry.state == State.COMMITTED for entry in alive.values())
        return Outcome.COMMITTED if done else Outcome.PENDING

    def _batch(self, writer, release, column):
        """Return the batch of the call that is being made: owner, whether another job goes by it."""
        key = (self._call, release, column)
        if key not in self._made:
            self._made[key] = [writer, False]
            self.batches.append(self._made[key])
        return self._made[key]

    @invariant()
    def next_call(self):
        self._call = getattr(self, "_call", 0) + 1
        self._made = {}

    @rule(
        writer=writers,
        names=records,
        release=releases,
        column=st.sampled_from(["review", "title"]),
        text=texts,
        out=outputs,
    )
    def commit(self, writer, names, release, column, text, out):
        kit = self.kits[writer]
        ref = kit.ref(column, release)
        entries = [self.held.get((release, column, name)) for name in names]
        if any(entry is None or entry.state == State.ABORTED or entry.text != text for entry in entries):
            try:
                kit.commit(names, text, ref, out, writer)
            except LedgerError as exc:
                assert "nothing was committed" in str(exc)  # noqa: PT017
                return
            raise AssertionError("what was not reserved was committed")
        expected = []
        for entry in entries:
            if entry.state != State.COMMITTED:
                entry.state, entry.output = State.COMMITTED, out
                expected.append(CommitOutcome.COMMITTED)
            else:
                expected.append(CommitOutcome.ALREADY if entry.output == out else CommitOutcome.DIVERGED)
        assert kit.commit(names, text, ref, out, writer) == expected

    @rule(writer=writers)
    def expire(self, writer):
        mine = [e for e in self.held.values() if e.batch[0] == writer and e.state == State.RESERVED]
        assert self.kits[writer].ledger.expire(writer) == len(mine)
        for entry in mine:
            entry.state = State.EXPIRED

    @rule(writer=writers)
    def abort(self, writer):
        mine = [entry for entry in self.held.values() if entry.batch[0] == writer]
        refused = any(e.state == State.COMMITTED for e in mine) or any(b[1] for b in self.batches if b[0] == writer)
        ledger = self.kits[writer].ledger
        try:
            given = ledger.abort(writer, compute_never_started=True)
        except LedgerError:
            assert refused
            return
        assert not refused
        open_ones = [
            (key, entry) for key, entry in self.held.items() if entry in mine and entry.state == State.RESERVED
        ]
        assert given == len(open_ones)
        for (_, _, name), entry in open_ones:
            entry.state = State.ABORTED
            self.used[RECORDS[name]] -= entry.epsilon

    @rule(writer=writers, names=records, after=st.integers(1, 12), reopen=st.booleans())
    def crash(self, writer, names, after, reopen):
        """Die in the middle of a transaction: nothing of it may be seen."""
        kit = self.kits[writer]
        refs = [kit.ref("review", "crash"), kit.ref("title", "crash")]
        store, left = kit.db.store, after
        real, write, durable = store.execute, store.write, []

        def written(*args):
            done = write(*args)
            durable.append(True)
            return done

        def dying(*args):
            nonlocal left
            left -= 1
            if not left:
                raise KeyboardInterrupt
            return real(*args)

        store.execute, store.write = dying, written
        try:
            kit.reserve(names, [RECORDS[name] for name in names], 1, CAP, "text", refs, writer)
        except KeyboardInterrupt:
            pass
        finally:
            store.execute, store.write = real, write
        if durable:  # it may still have died as it merged runs, after the charge
            for name in names:
                if self.used[RECORDS[name]] + 2 <= CAP and ("crash", "review", name) not in self.held:
                    self._judged(writer, name, "crash", ("review", "title"), "text", 1)
        if reopen:
            kit.reopen()

    @precondition(lambda self: hasattr(self, "kits"))
    @invariant()
    def balances_are_exact_and_within_the_cap(self):
        for kit in self.kits.values():
            assert dict(zip(self.used, kit.used(*self.used), strict=True)) == self.used
        assert max(self.used.values()) <= CAP

    @rule()
    def verify(self):
        self.kits["two"].sound()

    def teardown(self):
        if not hasattr(self, "kits"):
            return
        kit = self.kits["one"]
        counts = kit.sound()
        states = [entry.state for entry in self.held.values()]
        assert counts["committed"] == states.count(State.COMMITTED)
        assert counts["expired"] == states.count(State.EXPIRED)
        for release, column, name in [key for key, entry in self.held.items() if entry.state == State.COMMITTED][:3]:
            assert kit.ledger.committed(kit.ref(column, release), pa.array([name])).mask.tolist() == [True]
        db = kit.db
        blobs = db.store.rows("select seq, name, data from segment order by seq desc limit 1")
        for seq, name, data in blobs:
            edited = bytes([data[0] ^ 1, *data[1:]])
            db.store.execute("update segment set data=? where seq=? and name=?", (edited, seq, name))
            assert any(f"batch {seq}" in problem for problem in kit.ledger.verify().problems)
        for each in self.kits.values():
            each.ledger.close()
        shutil.rmtree(self.folder)


Interleavings.TestCase.settings = examples(25, stateful_step_count=30)
test_interleavings = Interleavings.TestCase


def test_interleavings_in_postgresql(postgres, monkeypatch):
    """Concurrent writers, who merge runs all the time; what one prefetches, the other may overtake."""
    monkeypatch.setattr(sorted_runs, "FANOUT", 2)
    monkeypatch.setattr(sorted_runs, "PART_KEYS", 4)

    class OnServer(Interleavings):
        def place(self):
            return postgres.url()

        @rule(data=st.data(), writer=writers)
        def overtake(self, data, writer):
            """Let the other writer reserve or commit between what one prefetches and its turn."""
            other = "two" if writer == "one" else "one"
            asked = [data.draw(st.tuples(records, releases, columns, texts, st.integers(0, 4))) for _ in range(2)]
            commits = data.draw(st.none() | st.tuples(records, releases, st.sampled_from(["review", "title"]), outputs))
            for kit in self.kits.values():
                for column, release in itertools.product(["review", "title"], ["x", "y"]):
                    kit.ref(column, release)  # a name is pinned alone, and both are to go in parallel
            store = self.kits[writer].db.store
            real, todo = store.lock, [True]

            def turn(*names):
                if todo and store.chain:
                    todo.pop()
                    meanwhile()
                real(*names)

            def meanwhile():
                self.reserve(other, *asked[0])
                self.next_call()
                if commits is not None:
                    names, release, column, out = commits
                    self.commit(other, names, release, column, "text", out)

            names, release, where, text, epsilon = asked[1]
            kit, people = self.kits[writer], [RECORDS[name] for name in names]
            refs = [kit.ref(column, release) for column in where]
            store.lock = turn
            try:
                said = kit.reserve(names, people, epsilon, CAP, text, refs, writer)
            finally:
                store.lock = real
            assert said == [self._judged(writer, name, release, where, text, epsilon) for name in names]

    run_state_machine_as_test(OnServer, settings=examples(5, stateful_step_count=30))
