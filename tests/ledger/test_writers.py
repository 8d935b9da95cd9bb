"""Concurrent writers in PostgreSQL: who waits for whom, the charges, and the order of their events.

Specification: docs/spec/ledger-plan.md#locks.
"""

import json
import threading
import time

import pytest

from dptext_etl.errors import InputError, LedgerError
from dptext_etl.ledger import CommitOutcome, Outcome, Scope
from dptext_etl.ledger.charges import scope_lock
from dptext_etl.policy import Cap

from ..ledger_kit import binaries, digest


@pytest.fixture
def new_place(postgres):
    return lambda name: postgres.url()


@pytest.fixture
def two(kit, new_kit):
    """Two writers of one ledger whose scope and releases are pinned."""
    kit.reserve(["a0"], ["zoe"], 1, cap=9)
    return kit, new_kit(kit.place)


def events(kit):
    return [json.loads(body) for (body,) in kit.db.store.rows("select body from event order by seq")]


def until_waiting(kit, sessions=1):
    """Return once this number of sessions wait for a turn."""
    waiting = "select count(*) from pg_locks where locktype='advisory' and not granted"
    until = time.monotonic() + 600
    while kit.db.store.rows(waiting)[0][0] < sessions:
        assert time.monotonic() < until, "no one waits"
        time.sleep(0.01)


def before_its_turn(kit, monkeypatch, what):
    """Do something once, after a writer has read ahead, before its first turn."""
    store = kit.db.store
    real, todo = store.lock, [what]

    def lock(*names):
        if todo and store.shared:
            todo.pop()()
        real(*names)

    monkeypatch.setattr(store, "lock", lock)


def test_writers_form_one_chain_in_the_order_of_their_commits(two):
    one, other = two
    one.reserve(["a"], cap=9)
    other.reserve(["b"], cap=9)
    one.commit(["a"])
    other.ledger.losses.freeze("others", "by hand", alone=True)
    found = events(one)
    assert [facts["seq"] for facts in found] == list(range(1, len(found) + 1))
    assert [facts["event"] for facts in found[-4:]] == ["RESERVE", "RESERVE", "COMMIT", "FREEZE"]
    assert not any("lane" in facts or "after" in facts for facts in found)
    one.sound()


def test_an_event_gets_its_number_once_the_one_before_is_committed(two):
    """So readers never see a number and later one that is smaller: plans go by the last number."""
    one, other = two
    elsewhere, done = other.ref(dataset="letters"), []
    other.reserve(["x"], cap=9, refs=[elsewhere])
    waiting = threading.Thread(target=lambda: done.append(other.reserve(["y"], cap=9, refs=[elsewhere])))
    with one.db.store.transaction(shared=True):
        one.reserve(["b"], cap=9, refs=[one.ref()])
        last = events(one)[-1]["seq"]
        waiting.start()
        until_waiting(one)
        assert done == []
    waiting.join()
    assert done == [[Outcome.RESERVED]]
    assert [facts["seq"] for facts in events(one)[-2:]] == [last, last + 1]
    one.sound()


def test_other_scopes_do_not_wait_and_the_same_scope_does(two):
    one, other = two
    elsewhere, ref, done = other.ref(dataset="letters"), one.ref(), []
    other.reserve(["x"], cap=9, refs=[elsewhere])
    db = one.db
    with db.store.transaction(shared=True):
        db.store.lock(scope_lock(db.scopes.find(Scope("reviews", "2026"))))
        assert other.reserve(["y"], cap=9, refs=[elsewhere]) == [Outcome.RESERVED]
        assert other.commit(["x", "y"], ref=elsewhere) == [0, 0]
        assert other.commit(["a0"], ref=ref) == [CommitOutcome.COMMITTED], "a commit takes nothing from a cap"
        waiting = threading.Thread(target=lambda: done.append(other.reserve(["b"], cap=9, refs=[ref])))
        waiting.start()
        until_waiting(one)
        assert done == []
    waiting.join()
    assert done == [[Outcome.RESERVED]]
    one.sound()


def test_a_cap_is_changed_by_nobody_while_others_write(two, new_kit):
    one, other = two
    done, waiting = [], []
    with one.db.store.transaction(shared=True):
        for change in (
            lambda: other.ledger.set_cap(Scope("reviews", "2026"), Cap(epsilon=3, period="2026")),
            lambda: new_kit(one.place).ledger.losses.freeze("letters", "by hand", alone=True),
        ):
            waiting.append(threading.Thread(target=lambda change=change: done.append(change())))
            waiting[-1].start()
            until_waiting(one, len(waiting))
        assert done == []
    for thread in waiting:
        thread.join()
    assert len(done) == 2
    one.sound()


def test_the_last_budget_is_spent_once_though_both_read_it_ahead(two, monkeypatch):
    one, other = two
    before_its_turn(one, monkeypatch, lambda: other.reserve(["b", "c"], ["ann", "bob"], 5, cap=9))
    people = ["ann", "bob", "eve"]
    assert one.reserve(["d", "e", "f"], people, 5, cap=9) == [Outcome.OVER_CAP, Outcome.OVER_CAP, Outcome.RESERVED]
    assert one.used(*people) == [5, 5, 5]
    one.sound()


def test_a_record_is_charged_once_though_both_read_it_ahead_as_new(two, monkeypatch):
    one, other = two
    before_its_turn(one, monkeypatch, lambda: other.reserve(["b", "c"], cap=9, texts=["text", "changed"]))
    assert one.reserve(["a", "b", "c"], cap=9) == [Outcome.RESERVED, Outcome.PENDING, Outcome.CHANGED]
    assert one.used("of-a", "of-b", "of-c") == [1, 1, 1]
    rows = one.db.store.rows
    assert rows("select 1 from segment where seq < 0") == [], "what was sent in vain is gone"
    before_its_turn(one, monkeypatch, lambda: other.reserve(["d"], cap=9))
    assert one.reserve(["d"], cap=9) == [Outcome.PENDING]
    assert rows("select 1 from segment where seq < 0") == []
    one.sound()


def test_a_release_with_a_bound_stays_below_it(two, monkeypatch):
    one, other = two
    ref = one.ref(release="bounded", configuration={"n_rec": 3})
    one.reserve(["a"], cap=9, refs=[ref])
    before_its_turn(one, monkeypatch, lambda: other.reserve(["b"], cap=9, refs=[ref]))
    with pytest.raises(InputError, match=r"would hold 4 records .* n_rec = 3"):
        one.reserve(["c", "d"], cap=9, refs=[ref])
    assert one.ledger.records(ref) == 2
    one.sound()


@pytest.mark.parametrize(("output", "said"), [("out", CommitOutcome.ALREADY), ("other", CommitOutcome.DIVERGED)])
def test_the_first_commit_is_the_release(two, monkeypatch, output, said):
    one, other = two
    one.reserve(["a", "b"], cap=9)
    before_its_turn(one, monkeypatch, lambda: other.commit(["a"], outputs=output))
    assert one.commit(["a", "b"]) == [said, CommitOutcome.COMMITTED]
    counts = one.sound()
    assert (counts["committed"], counts["diverged"]) == (2, int(said is CommitOutcome.DIVERGED))


def test_what_was_given_back_meanwhile_is_not_committed(two, monkeypatch):
    one, other = two
    ref = one.ref()
    one.reserve(["a"], cap=9, refs=[ref])
    store, todo = one.db.store, [lambda: other.ledger.abort("job", compute_never_started=True)]
    real = store.write

    def write(rows, work):
        todo.pop()()
        return real(rows, work)

    monkeypatch.setattr(store, "write", write)
    with pytest.raises(LedgerError, match="1 record was never reserved"):
        one.commit(["a"], ref=ref)
    one.sound()


def test_given_back_budget_is_spent_once(two, monkeypatch):
    """A settlement and a reservation in one scope wait for each other."""
    one, other = two
    ref = one.ref(release="refunded", refundable=True)
    one.reserve(["a"], ["ann"], 9, cap=9, refs=[ref])
    before_its_turn(other, monkeypatch, lambda: one.commit(["a"], ref=ref, spent=[4_000_000]))
    assert other.reserve(["b", "c"], ["ann", "ann"], 5, cap=9, refs=[ref]) == [Outcome.RESERVED, Outcome.OVER_CAP]
    assert one.used("ann") == [9]
    one.sound()


@pytest.mark.thorough
def test_writers_in_crossing_scopes_and_releases_do_not_deadlock(two):
    """They lock scopes and releases, then states, then the journal, each in one order, and settle their spends."""
    one, _ = two
    groups = [[kit.ref(name, dataset="letters", refundable=True) for name in ("text", "title")] for kit in two]
    for at, kit in enumerate(two):
        for dataset in ("letters", "notes")[:: 1 - 2 * at]:
            kit.reserve([f"{dataset}-first"], ["ann"], 1, cap=900, refs=[kit.ref(dataset=dataset, refundable=True)])
    failed, start = [], threading.Barrier(2)

    def write(at):
        kit, refs = two[at], groups[at][:: 1 - 2 * at]
        notes = kit.ref(dataset="notes", refundable=True)
        start.wait()
        try:
            for turn in range(4):
                names = [f"{at}-{turn}-{row}" for row in range(3)]
                for some in ([refs, [notes]], [[notes], refs])[(at + turn) % 2]:
                    kit.reserve(names, ["ann", "bob", "eve"], 2, cap=900, refs=some, job=f"{at}")
                    for ref in some:
                        kit.commit(names, ref=ref, spent=[1_000_000] * 3, job=f"{at}")
        except LedgerError as error:
            failed.append(error)

    writers = [threading.Thread(target=write, args=(at,)) for at in (0, 1)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert failed == []
    assert one.used("ann", scope=Scope("letters", "2026")) == [2 * 4 * 2 + 1]
    assert one.used("ann", scope=Scope("notes", "2026")) == [2 * 4 + 1]
    one.sound()


def test_locks_are_taken_in_one_order(two, monkeypatch):
    """Scopes and releases, then states, and last the journal: for reservations, commits, and post-processing."""
    one, _ = two
    ref, store = one.ref(release="r2", refundable=True), one.db.store
    real, taken = store.lock, []
    monkeypatch.setattr(store, "lock", lambda *names: taken.extend(name for name in names) or real(*names))
    order = ["scope", "release", "states", "append"]
    one.reserve(["a", "b"], cap=9, refs=[ref])
    one.commit(["a", "b"], ref=ref, spent=[500_000] * 2)
    step = {"name": "rewrite", "cfg": "c", "model_hash": "m", "training_provenance": "public"}
    one.ledger.post("job", ref, "ab" * 32, [step], one.ids("a"), binaries([digest("a", "better")]))
    turns = [name.partition("/")[0] for name in taken]
    assert turns == [*order, "scope", "states", "append", "append", "states", "append"]
