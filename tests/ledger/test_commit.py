"""COMMIT: one digest per identity, expiry, abortion, and ex-post charges below the worst case."""

from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest

from dptext_etl.errors import InputError, LedgerError
from dptext_etl.ledger import CommitOutcome, Outcome, Scope
from dptext_etl.ledger.holdings import LedgerPlan
from dptext_etl.ledger.storage.hashed_ids import WantedIds, concatenated, hashed_ids
from dptext_etl.policy import Cap

from .conftest import each_store

DONE, ALREADY, DIVERGED = CommitOutcome.COMMITTED, CommitOutcome.ALREADY, CommitOutcome.DIVERGED


@each_store
def test_only_what_was_reserved_with_this_text_is_committed(kit):
    kit.reserve(["a", "b"], cap=9)
    with pytest.raises(LedgerError, match=r"1 record was never reserved .*, 1 was reserved with another"):
        kit.commit(["a", "b", "c"], texts=["text", "other", "text"])
    with pytest.raises(LedgerError, match="1 record used more positions than were reserved"):
        kit.commit(["a", "b"], positions=[1, 2])
    with pytest.raises(InputError, match="1 record id of the batch is repeated"):
        kit.commit(["a", "a"])
    with pytest.raises(LedgerError, match="not registered in this ledger"):
        kit.commit(["a"], ref=kit.ref().__class__(7, "reviews", "review", "r1", "c1"))
    assert kit.sound()["committed"] == 0
    assert kit.commit(["a", "b"], positions=np.array([1, 0], np.uint32)) == [DONE, DONE]


def test_an_aborted_reservation_never_was(kit):
    refs = [kit.ref("review"), kit.ref("title")]
    kit.reserve(["a", "b"], ["ann", "ann"], [3, 1], cap=8, refs=refs)
    with pytest.raises(LedgerError, match="only if compute never started"):
        kit.ledger.abort("job", compute_never_started=False)
    assert kit.ledger.abort("job", compute_never_started=True) == 4
    assert kit.ledger.abort("job", compute_never_started=True) == 0
    assert kit.used("ann") == [0]
    with pytest.raises(LedgerError, match="1 record was never reserved"):
        kit.commit(["a"])
    assert kit.ledger.known(refs[0], pa.array(["a"])).tolist() == [False]
    assert kit.reserve(["a"], ["ann"], 8, cap=8, texts="another text") == [Outcome.RESERVED]
    assert kit.commit(["a"], texts="another text") == [DONE]
    assert kit.used("ann") == [8]
    counts = kit.sound()
    assert (counts["records"], counts["aborted"], counts["committed"]) == (5, 4, 1)


def test_a_reservation_that_another_job_goes_by_is_not_aborted(kit):
    kit.reserve(["a"], job="first", cap=9)
    assert kit.reserve(["a", "b"], job="second", cap=9) == [Outcome.PENDING, Outcome.RESERVED]
    with pytest.raises(LedgerError, match="another job relies on the reservations of this one"):
        kit.ledger.abort("first", compute_never_started=True)
    assert kit.ledger.abort("second", compute_never_started=True) == 1
    assert kit.used("of-a", "of-b") == [1, 0]
    kit.sound()


def test_results_that_were_examined_ahead_are_committed_as_the_ledger_is_then(kit):
    kit.reserve(["a", "b", "c", "d"], cap=9)
    ready = kit.ledger.examine(*kit.results(["a", "b", "c"]))
    assert kit.sound()["committed"] == 0, "nothing is written yet"
    assert kit.commit(["a", "b"], outputs=["out", "other"]) == [DONE, DONE]
    assert kit.ledger.commit("job", ready).tolist() == [ALREADY, DIVERGED, DONE]
    assert kit.ledger.commit("job", ready).tolist() == [ALREADY, DIVERGED, ALREADY]
    ready = kit.ledger.examine(*kit.results(["d"]))
    kit.ledger.expire("job")
    assert kit.ledger.commit("job", ready).tolist() == [DONE]
    counts = kit.sound()
    assert (counts["committed"], counts["diverged"], counts["expired"]) == (4, 2, 0)


def test_results_whose_reservation_is_given_back_are_not_committed(kit):
    kit.reserve(["a"], cap=9)
    ready = kit.ledger.examine(*kit.results(["a"]))
    kit.ledger.abort("job", compute_never_started=True)
    with pytest.raises(LedgerError, match="1 record was never reserved"):
        kit.ledger.commit("job", ready)
    kit.reserve(["a"], cap=9, texts="another text", job="later")
    with pytest.raises(LedgerError, match=r"0 records were never reserved .*, 1 was reserved with another text"):
        kit.ledger.commit("job", ready)
    assert kit.sound()["committed"] == 0


def test_what_a_writer_remembers_of_a_reservation_is_never_out_of_date(kit, new_kit):
    other, names = new_kit(kit.place), ["a", "b"]
    kit.reserve(names, job="mine")
    other.ledger.abort("mine", compute_never_started=True)
    other.reserve(names, texts=["changed", "text"], job="theirs")
    with pytest.raises(LedgerError, match="0 records were never reserved in this release, 1 was reserved with another"):
        kit.commit(names)
    kit.reserve(["c", "d"])
    other.commit(["d"], outputs="theirs")
    assert kit.commit(["c", "d"]) == [DONE, DIVERGED]
    kit.reserve(["e", "f"])
    kit.reserve(["g", "h"], texts="text two")
    assert kit.commit(["g", "h"], texts="text two") == kit.commit(["f", "e"]) == [DONE, DONE]
    marked = np.array([True, False])
    kit.reserve(["x", "y"], [None, "ann"], canary=marked)
    assert kit.commit(["x", "y"], canary=marked) == [0, 0]
    with pytest.raises(LedgerError, match="1 record was never reserved"):
        kit.commit(["x", "y"])
    kit.sound()


MILLION = 1_000_000


def spends(*epsilons):
    return np.array(epsilons) * MILLION


@pytest.mark.parametrize("fails", range(1, 7))
def test_a_sum_that_was_added_in_part_is_not_added_again(kit, monkeypatch, fails):
    """A connection is lost while a plan reads amounts; the caller asks the same plan again."""
    ref = kit.ref(refundable=True)
    for number in range(2):
        kit.reserve([f"a{number}"], ["ann"], [4], cap=10, refs=[ref])
        kit.commit([f"a{number}"], ref=ref, spent=spends(1))
    pinned, units = kit.db.contents.latest().scopes[1], hashed_ids(kit.db.id_key.subjects(kit.ids("ann")))
    plan = LedgerPlan("reviews", WantedIds(concatenated(())), WantedIds(units))
    plan.catch_up(kit.db)
    read, calls = kit.db.journal.read, []

    def lost(*args, **options):
        calls.append(args)
        if len(calls) == fails:
            raise LedgerError("lost")
        return read(*args, **options)

    monkeypatch.setattr(kit.db.journal, "read", lost)
    with suppress(LedgerError):
        plan.used(kit.db, pinned)
    assert len(calls) >= fails
    assert plan.used(kit.db, pinned).tolist() == [[2 * MILLION]]


@each_store
def test_it_never_passes_the_reservation(kit):
    ref = kit.ref(refundable=True)
    kit.reserve(["a", "b"], ["ann", "bob"], [4, 4], cap=10, refs=[ref])
    for bad in (spends(4, 5), np.array([0, -1])):
        with pytest.raises((LedgerError, InputError), match=r"more than was reserved|not be negative"):
            kit.commit(["a", "b"], ref=ref, spent=bad)
    assert kit.used("ann", "bob") == [4, 4]
    assert kit.commit(["a", "b"], ref=ref, spent=spends(4, 4)) == [0, 0]
    kit.sound()


@each_store
def test_nothing_is_given_back_to_a_unit_over_a_cap_that_was_set_later(kit):
    """`verify` judges charges by the cap of their time; a refund of 0 is not a charge."""
    ref = kit.ref(refundable=True)
    kit.reserve(["a"], ["ann"], [4], refs=[ref])
    kit.reserve(["b"], ["ann"], [3], refs=[ref], job="other")
    kit.ledger.set_cap(Scope("reviews", "2026"), Cap(epsilon=5, period="2026"), raising=True)
    assert kit.commit(["a"], ref=ref, spent=spends(4)) == [0]
    assert kit.used("ann") == [7]
    kit.sound()
