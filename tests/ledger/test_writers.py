"""Concurrent writers in PostgreSQL: who waits for whom, what is charged, and what an anchor holds.

Specification: docs/spec/privacy.md#lanes.
"""

import json
import threading
import time
from contextlib import suppress

import pytest

from dptext_etl.errors import InputError, LedgerError
from dptext_etl.ledger import Anchor, CommitOutcome, Outcome, Scope
from dptext_etl.ledger.storage.journal import CHAINS, CONCURRENT_EVENTS
from dptext_etl.policy import Cap

from .conftest import Kit


@pytest.fixture
def new_place(postgres):
    return lambda name: postgres.url()


@pytest.fixture
def two(kit, new_kit):
    """Two writers of one ledger whose scope and releases are pinned."""
    kit.reserve(["a0"], ["zoe"], 1, cap=9)
    other = new_kit(kit.place)
    in_chain(kit, 3)
    in_chain(other, 5)
    return kit, other


def in_chain(kit, lane):
    kit.db.store._last_chain = lane


def events(kit, lane=None):
    found = [json.loads(body) for (body,) in kit.db.store.rows("select body from event order by seq")]
    return found if lane is None else [facts for facts in found if facts.get("lane", 0) == lane]


def until_waiting(kit, sessions=1):
    """Return once so many sessions wait for a turn."""
    waiting = "select count(*) from pg_locks where locktype='advisory' and not granted"
    until = time.monotonic() + 600
    while kit.db.store.rows(waiting)[0][0] < sessions:
        assert time.monotonic() < until, "no one waits"
        time.sleep(0.01)


def before_its_turn(kit, monkeypatch, what):
    """Do something once, between what a writer prefetches and its first turn."""
    store = kit.db.store
    real, todo = store.lock, [what]

    def lock(*names):
        if todo and store.chain:
            todo.pop()()
        real(*names)

    monkeypatch.setattr(store, "lock", lock)


def test_each_writer_has_a_lane_and_names_what_it_saw(two):
    one, other = two
    alone = events(one)
    assert all("lane" not in facts and facts["seq"] == at + 1 for at, facts in enumerate(alone)), "as ever, until then"
    one.reserve(["a"], cap=9)
    other.reserve(["b"], cap=9)
    one.commit(["a"])
    lanes = events(one)[len(alone) :]
    assert [(facts["event"], facts["lane"]) for facts in lanes] == [("RESERVE", 3), ("RESERVE", 5), ("COMMIT", 3)]
    first, second, third = (facts["seq"] for facts in lanes)
    assert [facts["after"] for facts in lanes] == [
        {"0": len(alone)},
        {"0": len(alone), "3": first},
        {"0": len(alone), "3": first, "5": second},
    ]
    assert [seq % CHAINS for seq in (first, second, third)] == [3, 5, 3]
    one.ledger.freeze("others", "by hand", alone=True)
    last = events(one)[-1]
    assert (last["lane"], last["after"]) == (0, {"0": len(alone), "3": third, "5": second})
    assert {facts["event"] for facts in events(one) if facts.get("lane")} <= set(CONCURRENT_EVENTS)
    one.sound()


def test_other_scopes_do_not_wait_and_the_same_scope_does(two):
    one, other = two
    elsewhere, ref, done = other.ref(dataset="letters"), one.ref(), []
    other.reserve(["x"], cap=9, refs=[elsewhere])
    db = one.db
    with db.store.transaction(shared=True):
        db.store.lock(db.scopes.lock_name(db.scopes.find(Scope("reviews", "2026"))))
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
            lambda: new_kit(one.place).ledger.freeze("letters", "by hand", alone=True),
        ):
            waiting.append(threading.Thread(target=lambda change=change: done.append(change())))
            waiting[-1].start()
            until_waiting(one, len(waiting))
        assert done == []
    for thread in waiting:
        thread.join()
    assert len(done) == 2
    one.sound()


def test_the_last_budget_is_spent_once_though_both_prefetch_it(two, monkeypatch):
    one, other = two
    before_its_turn(one, monkeypatch, lambda: other.reserve(["b", "c"], ["ann", "bob"], 5, cap=9))
    people = ["ann", "bob", "eve"]
    assert one.reserve(["d", "e", "f"], people, 5, cap=9) == [Outcome.OVER_CAP, Outcome.OVER_CAP, Outcome.RESERVED]
    assert one.used(*people) == [5, 5, 5]
    one.sound()


def test_a_record_is_charged_once_though_both_prefetch_it_as_new(two, monkeypatch):
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


def test_an_anchor_holds_the_heads_of_all_lanes(two):
    one, other = two
    old = one.ledger.anchor()
    assert old.others == ()
    one.reserve(["a"], cap=9)
    other.reserve(["b"], cap=9)
    anchor = one.ledger.anchor()
    assert len(anchor.others) == 2
    assert Anchor.parse(str(anchor)) == anchor
    assert one.ledger.holds(old)
    one.commit(["a"])
    other.commit(["b"])
    assert one.ledger.holds(anchor)
    for seq in (*anchor.others, anchor.seq):
        with suppress(UndoError), one.db.store.transaction():
            one.db.store.execute("update event set hash=? where seq=?", (bytes(32), seq))
            assert not one.ledger.holds(anchor)
            raise UndoError
    assert not one.ledger.holds(Anchor(anchor.ledger, anchor.seq, anchor.hash, anchor.others[:1]))


class UndoError(Exception):
    """Ends a transaction without effect."""


def test_copies_keep_the_lanes(two, tmp_path, postgres):
    one, other = two
    one.reserve(["a"], cap=9)
    other.reserve(["b"], cap=9)
    anchor = one.ledger.anchor()
    file, again = f"sqlite:///{tmp_path / 'copy.db'}", postgres.url()
    assert one.ledger.backup(file) == anchor
    with Kit(file).open() as copy:
        assert copy.verify().ok
        assert copy._db.store.rows("pragma user_version") == [(3,)], "older versions must not write to it"
        assert copy.backup(again) == anchor
    for place in (file, again):
        kit = Kit(place)
        assert kit.reserve(["a", "c"], cap=9) == [Outcome.PENDING, Outcome.RESERVED]
        assert kit.commit(["a", "b", "c"]) == [0, 0, 0]
        assert kit.ledger.holds(anchor)
        kit.sound()
        kit.ledger.close()


def test_all_lanes_taken_a_writer_waits_for_one(two, new_kit):
    one, other = two
    ref, done = one.ref(), []
    kits = [new_kit(one.place) for _ in range(CHAINS)]
    held = [kit.db.store.transaction(shared=True) for kit in kits]
    for each in held:
        each.__enter__()
    assert sorted(kit.db.store.chain for kit in kits) == list(range(1, CHAINS + 1))
    waiting = threading.Thread(target=lambda: done.append(other.reserve(["b"], cap=9, refs=[ref])))
    waiting.start()
    until_waiting(kits[0])
    assert done == []
    for each in held:
        each.__exit__(None, None, None)
    waiting.join()
    assert done == [[Outcome.RESERVED]]
    one.sound()


def test_what_was_prefetched_of_other_amounts_is_not_taken(two, monkeypatch):
    """Records too dear for the cap are not looked up; with one of two columns held, when the turn comes, they are."""
    one, other = two
    review, title, summary = (one.ref(column) for column in ("review", "title", "summary"))
    people = {f"r{i}": f"p{i}" for i in range(20)}
    dear, cheap = list(people)[::2], list(people)[1::2]
    one.reserve(cheap, [people[name] for name in cheap], 8, cap=9, refs=[summary])
    before_its_turn(one, monkeypatch, lambda: other.reserve(dear, [people[n] for n in dear], 5, cap=9, refs=[review]))
    said = one.reserve(list(people), list(people.values()), [5, 2] * 10, cap=9, refs=[review, title])
    assert said == [Outcome.OVER_CAP] * 20
    one.sound()
