"""Runs that are merged between the writes of several writers: no one waits, and no answer changes.

Specification: docs/spec/privacy.md#concurrency.
"""

import pyarrow as pa
import pytest

from dptext_etl.errors import LockedLedgerError
from dptext_etl.ledger import Outcome, Scope
from dptext_etl.ledger import ledger as module
from dptext_etl.ledger.storage import sorted_runs

from .conftest import binaries, digest
from .test_chains import before_its_turn, in_chain

NEW = [Outcome.RESERVED]


@pytest.fixture
def new_place(postgres):
    return lambda name: postgres.url()


@pytest.fixture
def two(kit, new_kit, monkeypatch):
    """Two writers of one ledger in which three runs are many."""
    monkeypatch.setattr(sorted_runs, "FANOUT", 3)
    kit.reserve(["a0"], ["zoe"], 1, cap=9)
    other = new_kit(kit.place)
    in_chain(kit, 3)
    in_chain(other, 5)
    return kit, other


def maps(kit):
    """The balances of the scope and the record index of the release, each with its turn."""
    db, ref = kit.db, kit.ref()
    pinned = db.scopes.find(Scope("reviews", "2026"))
    index = db.records.index(ref.id, ref.nonce)
    return [(db.scopes.balances(pinned), db.scopes.lock_name(pinned)), (index, db.records.lock_name(ref))]


def tidy(kit):
    """Nothing lies about that belongs to no run, and everything adds up."""
    store = kit.db.store
    assert store.rows("select 1 from run_part where run not in (select id from run)") == []
    assert store.rows("select 1 from segment where seq < 0") == []
    return kit.sound()


def at_turn(kit, monkeypatch, turn, what):
    """Do something once, before a writer takes a turn."""
    store, todo = kit.db.store, [what]
    real = store.lock

    def taken(*names):
        if todo and store.chain and turn in names:
            todo.pop()()
        real(*names)

    monkeypatch.setattr(store, "lock", taken)


def unmerged(monkeypatch):
    monkeypatch.setattr(module, "merge_after_write", lambda *args: None)


def test_runs_stay_few_and_answers_stay_the_same(two):
    one, other = two
    for at in range(9):
        assert (one, other)[at % 2].reserve([f"r{at}"], ["ann"], 1, cap=9) == NEW
        assert [runs.mergeable() for runs, _ in maps(one)] == [[], []]
    assert one.used("ann", "zoe") == [9, 1]
    assert other.reserve(["over"], ["ann"], 1, cap=9) == [Outcome.OVER_CAP]
    assert one.commit([f"r{at}" for at in range(9)]) == [0] * 9
    assert tidy(one)["committed"] == 9


@pytest.mark.parametrize("at", [0, 1])
def test_while_one_merges_the_other_charges(two, monkeypatch, at):
    one, other = two
    with monkeypatch.context() as patched:
        unmerged(patched)
        for record in ("a", "b", "c"):
            one.reserve([record], ["ann"], 1, cap=9)
    runs, turn = maps(one)[at]
    done = []
    at_turn(one, monkeypatch, turn, lambda: done.append(other.reserve(["d"], ["ann"], 1, cap=9)))
    runs.merge_concurrently(turn)
    assert done == [NEW]
    assert one.used("ann") == [4]
    assert other.reserve(["a", "b", "c", "d"], ["ann"] * 4, 1, cap=9) == [Outcome.PENDING] * 4
    assert tidy(one)["records"] == 5


def test_what_was_prefetched_may_be_merged_meanwhile(two, monkeypatch):
    one, other = two
    one.reserve(["a", "b"], ["ann", "ann"], [2, 3], cap=9)

    def meanwhile():
        other.reserve(["c"], ["ann"], 3, cap=9)
        assert all(len(runs.runs()) == 1 for runs, _ in maps(other)), "what the first one knew is gone"

    before_its_turn(one, monkeypatch, meanwhile)
    said = one.reserve(["d", "e", "b", "f"], ["ann", "eve", "ann", "ann"], [2, 9, 3, 1], cap=9)
    assert said == [Outcome.OVER_CAP, Outcome.RESERVED, Outcome.PENDING, Outcome.RESERVED]
    assert one.used("ann", "eve") == [9, 9]
    tidy(one)


def test_runs_are_merged_once_though_an_older_version_merges_them_in_its_turn(two, monkeypatch):
    one, other = two
    unmerged(monkeypatch)
    for record in ("a", "b"):
        one.reserve([record], ["ann"], 1, cap=9)
    for at in (0, 1):
        runs, turn = maps(one)[at]

        def older(at=at):
            theirs, their_turn = maps(other)[at]
            store = other.db.store
            with store.transaction(shared=True):
                store.lock(their_turn)
                theirs.replace(theirs.mergeable()[0], theirs.merged(theirs.mergeable()[0]))

        with monkeypatch.context() as patched:
            at_turn(one, patched, turn, older)
            runs.merge_concurrently(turn)
        assert len(runs.runs()) == 1
    assert one.used("ann") == [2]
    tidy(one)


def test_two_do_not_merge_the_same(two, monkeypatch):
    one, other = two
    with monkeypatch.context() as patched:
        unmerged(patched)
        for record in ("a", "b"):
            one.reserve([record], ["ann"], 1, cap=9)
    (runs, turn), _ = maps(one)
    theirs, _ = maps(other)[0]
    real, asked = theirs.merged, []
    monkeypatch.setattr(theirs, "merged", lambda runs: asked.append(runs) or real(runs))
    at_turn(one, monkeypatch, turn, lambda: theirs.merge_concurrently(turn))
    runs.merge_concurrently(turn)
    assert (len(runs.runs()), asked) == (1, [])
    tidy(one)


def test_a_charge_is_said_to_be_done_though_merging_fails(two, monkeypatch):
    one, _ = two

    def locked(*args):
        raise LockedLedgerError("the ledger is locked")

    monkeypatch.setattr(sorted_runs.SortedRuns, "merge_concurrently", locked)
    assert one.reserve(["a"], ["ann"], 1, cap=9) == NEW
    assert one.used("ann") == [1]


def test_who_reads_the_index_beside_others_holds_what_a_merge_waits_for(two, monkeypatch):
    """Post-processing looks records up in its transaction: no run may vanish there."""
    one, _ = two
    ref, db, done = one.ref(), one.db, []
    one.commit(["a0"])
    for part, name in ((db.store, "lock"), (db.records, "look_up")):
        real = getattr(part, name)
        monkeypatch.setattr(part, name, lambda *args, name=name, real=real: done.extend([name, *args]) or real(*args))
    step = {"name": "rewrite", "cfg": "c", "model_hash": "m", "training_provenance": "public"}
    texts = binaries([digest("a0", "better")])
    assert one.ledger.post("job", ref, "ab" * 32, [step], pa.array(["a0"]), texts).tolist() == [0]
    assert done.index(db.records.lock_name(ref)) < done.index("look_up")
    tidy(one)


def test_what_the_one_before_wrote_is_looked_at_twice(two, monkeypatch):
    """A writer that does not know of the queue writes between the last look and the turn; it is noticed there."""
    one, other = two
    (_, turn), _ = maps(one)
    theirs = other.db.store
    real = theirs.lock
    monkeypatch.setattr(theirs, "lock", lambda *names: real(*(name for name in names if not name.startswith("next/"))))
    at_turn(one, monkeypatch, turn, lambda: other.reserve(["b", "c"], ["ann", "bob"], 5, cap=9))
    people = ["ann", "bob", "eve", "ann"]
    said = one.reserve(["d", "e", "f", "b"], people, 5, cap=9)
    assert said == [Outcome.OVER_CAP, Outcome.OVER_CAP, Outcome.RESERVED, Outcome.PENDING]
    assert one.used("ann", "bob", "eve") == [5, 5, 5]
    tidy(one)
