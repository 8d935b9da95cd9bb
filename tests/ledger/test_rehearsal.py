"""A rehearsal checks and pins as a run does, holds no lock, needs no right to write, and leaves nothing."""

import pytest

from dptext_etl.errors import LedgerError
from dptext_etl.keys import IdForm
from dptext_etl.ledger import IdForms, Scope
from dptext_etl.policy import Cap

from .conftest import each_store

SCOPE = Scope("reviews", "2026")
CAP, HIGHER = (Cap(epsilon=amount, period="2026") for amount in (5, 6))


@each_store
def test_a_rehearsal_during_a_write_pins_nothing(kit, new_kit):
    kit.reserve(["a"], ["ann"], 1)
    before = [tuple(entry) for entry in kit.db.journal.entries()]
    reader = new_kit(kit.place)
    ledger = reader.reopen(create=False, read_only=True)
    with kit.db.store.transaction():  # SQLite has one writer: a rehearsal that wrote would wait, and fail
        with ledger.rehearsal():
            ledger.agree_on_cap(SCOPE, CAP)
            first, second = reader.ref(), reader.ref(release="r2")
            with pytest.raises(LedgerError, match="is pinned at 5; the policy asks for more"):
                ledger.agree_on_cap(SCOPE, HIGHER)
            with pytest.raises(LedgerError, match="pinned to another configuration"):
                reader.ref(release="r2", cfg="c2")
            with ledger.rehearsal():  # the inner block sees the events of the outer one
                assert reader.ref(release="r2") == second
        ledger.require_forms(SCOPE, ["review"], IdForms(IdForm("string"), IdForm("string")))
    assert second.id == first.id + 1
    assert [tuple(entry) for entry in kit.db.journal.entries()] == before
    assert ledger.cap_change(SCOPE, HIGHER) is None
    assert not ledger.pinned_forms(SCOPE, ["review"])
    kit.ledger.agree_on_cap(SCOPE, HIGHER)
    kit.sound()


@each_store
def test_a_refused_rehearsal_leaves_the_next_write_as_it_was(kit):
    with pytest.raises(LedgerError, match="asks for more"), kit.ledger.rehearsal():  # noqa: PT012
        kit.ledger.agree_on_cap(SCOPE, CAP)
        kit.ledger.agree_on_cap(SCOPE, HIGHER)
    kit.ledger.agree_on_cap(SCOPE, HIGHER)
    assert [entry.kind for entry in kit.db.journal.entries()] == ["CAP_SET"]
    kit.sound()
