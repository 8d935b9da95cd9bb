"""A release that takes new texts of its records: each text is charged, and none is hidden by what comes after it."""

import pyarrow as pa
import pytest

from dptext_etl.errors import InputError
from dptext_etl.ledger import Outcome, Scope
from dptext_etl.policy import Cap

from .conftest import each_store

SCOPE, CAP = Scope("reviews", "2026"), Cap(epsilon=5, period="2026")


def reserve(kit, text, *, again=True, names=("a",), people=("ann",), amount=2, job="job"):
    batch = pa.array(names), pa.array(people, pa.string()), [kit.charge(kit.ref(), list(names), amount, text)]
    return kit.ledger.reserve(job, SCOPE, CAP, *batch, again=again)


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
        told = kit.ledger.preview(SCOPE, kit.ledger.make_ready("subject", *batch), again=again)
        assert told.outcome.tolist() == [outcome]
        assert told.charged.tolist() == [[outcome == Outcome.AGAIN]]
    assert str(kit.ledger.anchor()) == head


def test_records_without_a_subject_are_units_of_their_own(kit):
    batch = pa.array(["a", "b", "c"]), pa.array(["ann", None, None]), [kit.charge(kit.ref(), ["a", "b", "c"], 3, "one")]
    with pytest.raises(InputError, match="2 records have no subject"):
        kit.ledger.make_ready("subject", *batch)
    ready = kit.ledger.make_ready("subject", *batch, own=True)
    assert kit.ledger.reserve("job", SCOPE, CAP, *batch, ready=ready).counts["RESERVED"] == 3
    assert kit.ledger.remaining(SCOPE).units == 3
    kit.sound()
