"""Ex-post charges: what was used instead of the worst case, on pure caps alone, never more than was reserved."""

from contextlib import suppress

import numpy as np
import pytest

from dptext_etl.errors import InputError, LedgerError
from dptext_etl.ledger import Outcome, Scope
from dptext_etl.ledger.plan import LedgerPlan
from dptext_etl.ledger.storage.hashed_ids import WantedIds, concatenated, hashed_ids
from dptext_etl.policy import Cap

MILLION = 1_000_000


def spends(*epsilons):
    return np.array(epsilons) * MILLION


def test_the_difference_goes_back_to_the_unit(kit):
    ref = kit.ref(refundable=True)
    kit.reserve(["a", "b", "c"], ["ann", "ann", "bob"], [4, 4, 4], cap=10, refs=[ref])
    assert kit.used("ann", "bob") == [8, 4]
    kit.commit(["a", "c"], ref=ref, spent=spends(1, 0))
    assert kit.used("ann", "bob") == [5, 0]
    assert kit.reserve(["d", "e"], ["ann", "ann"], [4, 4], cap=10, refs=[ref]) == [Outcome.RESERVED, Outcome.OVER_CAP]
    kit.commit(["b"], ref=ref)
    assert kit.used("ann") == [9], "without a word the worst case stays"
    kit.sound()


def test_what_was_committed_is_settled_once(kit):
    ref = kit.ref(refundable=True)
    kit.reserve(["a"], ["ann"], [4], cap=10, refs=[ref])
    assert kit.commit(["a"], ref=ref, spent=spends(3)) == [0]
    assert kit.commit(["a"], ref=ref, spent=spends(1)) == [1], "the same again charges nothing and gives nothing back"
    assert kit.commit(["a"], ref=ref, outputs="other", spent=spends(0)) == [2]
    assert kit.used("ann") == [3]
    assert kit.reserve(["a"], ["ann"], [4], cap=10, refs=[ref]) == [Outcome.COMMITTED]
    kit.sound()


@pytest.mark.parametrize("fails", range(1, 7))
def test_a_sum_that_was_added_in_part_is_not_added_again(kit, monkeypatch, fails):
    """A connection is lost while a plan reads amounts; the caller asks the same plan again."""
    ref = kit.ref(refundable=True)
    for number in range(2):
        kit.reserve([f"a{number}"], ["ann"], [4], cap=10, refs=[ref])
        kit.commit([f"a{number}"], ref=ref, spent=spends(1))
    pinned, units = kit.db.scopes.by_id(1), hashed_ids(kit.db.id_key.subjects(kit.ids("ann")))
    plan = LedgerPlan("reviews", WantedIds(concatenated(())), WantedIds(units))
    plan.catch_up(kit.db)
    read, calls = kit.db.segments.read, []

    def lost(*args, **options):
        calls.append(args)
        if len(calls) == fails:
            raise LedgerError("lost")
        return read(*args, **options)

    monkeypatch.setattr(kit.db.segments, "read", lost)
    with suppress(LedgerError):
        plan.used(kit.db, pinned)
    assert len(calls) >= fails
    assert plan.used(kit.db, pinned).tolist() == [[2 * MILLION]]


def test_it_never_passes_the_reservation(kit):
    ref = kit.ref(refundable=True)
    kit.reserve(["a", "b"], ["ann", "bob"], [4, 4], cap=10, refs=[ref])
    for bad in (spends(4, 5), np.array([0, -1])):
        with pytest.raises((LedgerError, InputError), match=r"more than was reserved|not be negative"):
            kit.commit(["a", "b"], ref=ref, spent=bad)
    assert kit.used("ann", "bob") == [4, 4]
    assert kit.commit(["a", "b"], ref=ref, spent=spends(4, 4)) == [0, 0]
    kit.sound()


def test_nothing_is_given_back_to_a_unit_over_a_cap_that_was_set_later(kit):
    """`verify` judges charges by the cap of their time; a refund of 0 is not a charge."""
    ref = kit.ref(refundable=True)
    kit.reserve(["a"], ["ann"], [4], refs=[ref])
    kit.reserve(["b"], ["ann"], [3], refs=[ref], job="other")
    kit.ledger.set_cap(Scope("reviews", "2026"), Cap(epsilon=5, period="2026"), raising=True)
    assert kit.commit(["a"], ref=ref, spent=spends(4)) == [0]
    assert kit.used("ann") == [7]
    kit.sound()


def test_other_releases_keep_the_worst_case(kit):
    ref = kit.ref()
    kit.reserve(["a"], ["ann"], [4], cap=10, refs=[ref])
    with pytest.raises(LedgerError, match="is not refundable"):
        kit.commit(["a"], ref=ref, spent=spends(1))
    assert kit.commit(["a"], ref=ref) == [0]
    assert kit.used("ann") == [4]
    kit.sound()


def test_other_measures_keep_the_worst_case(kit):
    for number, cap in enumerate((None, Cap(measure="zcdp", rho=9, period="2027"))):
        ref = kit.ref(dataset=f"d{number}", refundable=True)
        scope = Scope(f"d{number}", "2027")
        charge = kit.charge(ref, ["a"], 4, rho=np.array([2 * MILLION]))
        ids, people = kit.ids("a"), kit.ids("ann")
        kit.ledger.reserve("job", scope, cap, ids, people, [charge])
        kit.commit(["a"], ref=ref, spent=spends(1))
        assert kit.used("ann", scope=scope) == [2 if cap else 4]
    kit.sound()


def test_canary_rows_give_nothing_back(kit):
    ref = kit.ref(refundable=True)
    canary = np.array([True, False])
    kit.reserve(["x", "a"], [None, "ann"], [4, 4], cap=10, refs=[ref], canary=canary)
    kit.commit(["x", "a"], ref=ref, canary=canary, spent=spends(1, 2))
    assert kit.used("ann") == [2]
    kit.sound()


def test_verification_finds_an_edited_settlement(kit):
    ref = kit.ref(refundable=True)
    kit.reserve(["a", "b"], ["ann", "bob"], [4, 4], cap=10, refs=[ref])
    kit.commit(["a", "b"], ref=ref, spent=spends(1, 2))
    store = kit.db.store
    (seq,) = store.rows("select seq from event where kind='SETTLE'")[0]
    store.execute("delete from segment where seq=?", (seq,))
    assert kit.ledger.verify().problems
    kit.reopen()
