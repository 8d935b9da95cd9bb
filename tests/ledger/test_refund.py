"""Ex-post charges: the use instead of the worst case, only on pure caps, never more than was reserved."""

from contextlib import suppress

import numpy as np
import pytest

from dptext_etl.errors import InputError, LedgerError
from dptext_etl.ledger import Scope
from dptext_etl.ledger.plan import LedgerPlan
from dptext_etl.ledger.storage.hashed_ids import WantedIds, concatenated, hashed_ids
from dptext_etl.policy import Cap

from .conftest import each_store

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
