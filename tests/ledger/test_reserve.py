"""RESERVE: who is charged, once, in row order, and refusals before anything is written."""

import math

import numpy as np
import pyarrow as pa
import pytest

from dptext_etl.column import INFINITE
from dptext_etl.errors import BudgetError, InputError, LedgerError
from dptext_etl.ledger import Charge, Outcome, Scope
from dptext_etl.ledger.types import counts_of
from dptext_etl.policy import Cap

from ..ledger_kit import reserve_batch
from .conftest import each_store

NEW, OVER = Outcome.RESERVED, Outcome.OVER_CAP


def asked_for(kit, names, people):
    """A batch as arguments of `reserve` and `make_ready`."""
    ids = pa.array(names)
    return ids, pa.array(people), [kit.charge(kit.ref(), names, 1, "text")]


def test_a_batch_of_another_unit_than_the_scope_is_refused(kit):
    ready = kit.ledger.make_ready("subject", *asked_for(kit, ["a", "b"], ["ann", "bob"]))
    with pytest.raises(InputError, match="scope and batch of one unit"):
        kit.ledger.reserve("job", Scope("reviews", "2026", unit="record"), None, ready)
    assert kit.sound()["batches"] == 0


@each_store
def test_refuse_charges_nothing_of_the_batch(kit):
    with pytest.raises(BudgetError, match="1 of 2 records would exceed the cap of dataset:reviews") as caught:
        kit.reserve(["a", "b"], epsilons=[1, 9], cap=3, on_cap="refuse")
    assert caught.value.exit_code == 3
    assert kit.used("of-a", "of-b") == [0, 0]
    assert kit.sound()["records"] == 0


def test_an_empty_batch_is_no_event(kit):
    assert kit.reserve([], [], []) == []
    assert kit.commit([]) == []
    assert kit.sound()["batches"] == 0


@pytest.mark.parametrize(
    ("ids", "people", "said"),
    [
        (["a", "b", "a", "a"], ["x", "y", "z", "w"], "2 record ids of the batch are repeated"),
        (["a", None], ["x", "y"], "1 record id is null"),
        (["a", "b"], ["x", None], "1 record has no subject"),
        (["a", "b"], ["x"], "2 records and 1 subjects"),
    ],
)
def test_bad_ids_are_named_and_nothing_is_charged(kit, ids, people, said):
    with pytest.raises(InputError, match=said) as caught:
        kit.reserve(ids, people, cap=9)
    assert "Hint:" in str(caught.value) or "one subject" in said or "1 subjects" in said
    assert kit.sound()["batches"] == 0


def test_bad_batches_are_named(kit):
    ref, ids = kit.ref(), pa.array(["a"])
    scope = Scope("reviews")
    cases = {
        "at least one column": [],
        "at most one per release": [kit.charge(ref, ["a"]), kit.charge(ref, ["a"])],
        "1 records and 2 idem keys": [kit.charge(ref, ["a", "b"])],
        "1 records and 2 values of n_worst": [Charge(ref, kit.keys(ref, ["a"]), [1, 2], {})],
        "eps_pure must be whole millionths": [Charge(ref, kit.keys(ref, ["a"]), [1], {"eps_pure": [0.5]})],
        "eps_pure must be whole millionths,": [Charge(ref, kit.keys(ref, ["a"]), [1], {"eps_pure": [math.nan]})],
        "rho must not be negative": [Charge(ref, kit.keys(ref, ["a"]), [1], {"rho": [-1]})],
        "n_worst must be below": [Charge(ref, kit.keys(ref, ["a"]), [1 << 32], {})],
        "delta must be whole numbers": [Charge(ref, kit.keys(ref, ["a"]), [1], {"delta": ["1"]})],
        "idem keys are binaries of 32 bytes": [Charge(ref, pa.array([b"x"]), [1], {})],
    }
    for said, charges in cases.items():
        with pytest.raises(InputError, match=said.rstrip(",")):
            reserve_batch(kit.ledger, "job", scope, None, ids, ids, charges)
    with pytest.raises(InputError, match="of one dataset"):
        reserve_batch(kit.ledger, "job", Scope("other"), None, ids, ids, [kit.charge(ref, ["a"])])
    with pytest.raises(InputError, match="record ids are canonical strings, got int64"):
        reserve_batch(kit.ledger, "job", scope, None, pa.array([1]), ids, [kit.charge(ref, ["a"])])
    with pytest.raises(InputError, match="needs the subject of every record"):
        reserve_batch(kit.ledger, "job", scope, None, ids, None, [kit.charge(ref, ["a"])])
    marks = np.array([True, False])
    with pytest.raises(InputError, match="1 records and 2 canary marks"):
        reserve_batch(kit.ledger, "job", scope, None, ids, ids, [kit.charge(ref, ["a"])], canary=marks)
    assert kit.sound()["events"] == 1


def test_what_is_infinite_on_the_cap_is_refused(kit):
    charge = kit.charge(kit.ref(), ["a"], eps_pure=np.array([INFINITE]))
    with pytest.raises(LedgerError, match="costs an infinite eps_pure; its scope is capped on pure"):
        reserve_batch(kit.ledger, "job", Scope("reviews"), Cap(epsilon=5), pa.array(["a"]), pa.array(["x"]), [charge])
    floats = kit.charge(kit.ref(), ["a"], eps_pure=[math.inf])
    outcome = reserve_batch(kit.ledger, "job", Scope("reviews"), None, pa.array(["a"]), pa.array(["x"]), [floats])
    assert counts_of(outcome) == {
        "RESERVED": 1,
        "PENDING": 0,
        "COMMITTED": 0,
        "OVER_CAP": 0,
        "CHANGED": 0,
        "FORGOTTEN": 0,
        "AGAIN": 0,
    }
    assert kit.used("x", scope=Scope("reviews")) == ["inf"]
    assert kit.ledger.reports.show()[0]["max_eps_pure"] == "inf"
    kit.sound()


@each_store
def test_enormous_charges_do_not_overflow(kit):
    most = 1 << 61
    charge = [kit.charge(kit.ref(c), list("abc"), eps_pure=np.array([most, most, 1])) for c in ("x", "y")]
    people = pa.array(["ann"] * 3)
    cap = Cap(epsilon=9e9)
    outcome = reserve_batch(kit.ledger, "job", Scope("reviews"), cap, pa.array(list("abc")), people, charge).tolist()
    assert outcome == [OVER, OVER, NEW]
    kit.sound()


def test_chunked_and_large_strings_are_taken(kit):
    ref = kit.ref()
    ids = pa.chunked_array([["a"], ["b"]], pa.large_string())
    people = pa.chunked_array([["x"], ["y"]], pa.string_view())
    keys = pa.chunked_array([kit.keys(ref, ["a"]), kit.keys(ref, ["b"])])
    charge = Charge(ref, keys, pa.array([1, 1], pa.uint32()), {"eps_pure": pa.array([1, 1])})
    assert reserve_batch(kit.ledger, "job", Scope("reviews"), None, ids, people, [charge]).tolist() == [NEW, NEW]
    assert kit.ledger.known(ref, pa.array(["b", "c"])).tolist() == [True, False]


SCOPE, CAP = Scope("reviews", "2026"), Cap(epsilon=5, period="2026")


def reserve(kit, text, *, again=True, names=("a",), people=("ann",), amount=2, job="job"):
    batch = pa.array(names), pa.array(people, pa.string()), [kit.charge(kit.ref(), list(names), amount, text)]
    return reserve_batch(kit.ledger, job, SCOPE, CAP, *batch, again=again)


@each_store
def test_foretelling_writes_nothing(kit):
    reserve(kit, "one")
    head = str(kit.ledger.anchor())
    for text, again, outcome in (
        ("one", True, Outcome.PENDING),
        ("two", True, Outcome.AGAIN),
        ("two", False, Outcome.CHANGED),
    ):
        batch = pa.array(["a"]), pa.array(["ann"]), [kit.charge(kit.ref(), ["a"], 2, text)]
        forecast = kit.ledger.judge(SCOPE, CAP, kit.ledger.make_ready("subject", *batch), again=again)
        assert forecast.outcome.tolist() == [outcome]
        assert forecast.asking.tolist() == [[outcome == Outcome.AGAIN]]
    assert str(kit.ledger.anchor()) == head


def test_records_without_a_subject_are_units_of_their_own(kit):
    batch = pa.array(["a", "b", "c"]), pa.array(["ann", None, None]), [kit.charge(kit.ref(), ["a", "b", "c"], 3, "one")]
    with pytest.raises(InputError, match="2 records have no subject"):
        kit.ledger.make_ready("subject", *batch)
    ready = kit.ledger.make_ready("subject", *batch, own=True)
    assert kit.ledger.reserve("job", SCOPE, CAP, ready).tolist() == [NEW] * 3
    assert kit.ledger.remaining(SCOPE).units == 3
    kit.sound()
