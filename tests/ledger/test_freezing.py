"""A lost or restored ledger: anchors notice, the dataset freezes, thawing charges what may be forgotten.

Specification: docs/spec/privacy.md#lost-ledger.
"""

import pytest

from dptext_etl.errors import LedgerError
from dptext_etl.ledger import Anchor, Ledger, Outcome, Scope
from dptext_etl.policy import Cap


def test_an_anchor_is_held_until_the_journal_loses_it(kit, new_kit, new_place):
    empty = kit.ledger.anchor()
    kit.reserve(["a"], cap=9)
    anchor = kit.ledger.anchor()
    assert Anchor.parse(f"  {anchor}\n") == anchor
    kit.commit(["a"])
    assert kit.ledger.holds(empty)
    assert kit.ledger.holds(anchor)
    assert not kit.ledger.holds(Anchor(anchor.ledger, anchor.seq + 50, anchor.hash))
    assert not kit.ledger.holds(Anchor(anchor.ledger, anchor.seq, "0" * 64))
    other = new_kit(new_place("other"))
    assert not other.ledger.holds(anchor), "another ledger at the same place"
    last = kit.ledger.anchor()
    store = kit.ledger._book.store
    store.execute("delete from event where seq=?", (last.seq,))
    store.execute("update meta set value=? where name='head'", (f"{last.seq - 1}:forged",))
    assert not kit.ledger.holds(last)
    for text in ("", "x", f"{anchor}0", "a:b:c"):
        with pytest.raises(LedgerError, match="reads LEDGER:NUMBER:HASH"):
            Anchor.parse(text)


def frozen_kit(kit):
    ref = kit.ref()
    kit.reserve(["a", "b"], ["ann", "bob"], 2, cap=9)
    kit.commit(["a"])
    kit.ledger.freeze("reviews", "restored from a copy")
    return ref


def test_nothing_happens_in_a_frozen_dataset(kit):
    ref = frozen_kit(kit)
    kit.ledger.freeze("reviews", "again")
    assert kit.ledger.frozen() == ["reviews"]
    said = r"the dataset reviews is frozen: restored from a copy\nHint: .*dptext ledger thaw"
    for attempt in (
        lambda: kit.ref(release="new"),
        lambda: kit.reserve(["c"], cap=9, refs=[ref]),
        lambda: kit.commit(["b"], ref=ref),
        lambda: kit.ledger.record_publication(ref, "v1", "ab" * 32, 1),
    ):
        with pytest.raises(LedgerError, match=said):
            attempt()
    elsewhere = kit.ref(dataset="others")
    assert kit.reserve(["a"], refs=[elsewhere], scope=Scope("others")) == [Outcome.RESERVED]
    kit.sound()


def test_thawing_revokes_names_and_charges_what_may_have_been_lost(kit):
    frozen_kit(kit)
    with pytest.raises(LedgerError, match="a cap of reviews counts eps_pure: state how much"):
        kit.ledger.thaw("reviews", {})
    assert kit.ledger.thaw("reviews", {"eps_pure": 4.0}) == {"dataset:reviews, period 2026": {"eps_pure": 5_000_000}}
    assert kit.ledger.frozen() == []
    with pytest.raises(LedgerError, match="is revoked"):
        kit.ref()
    new = kit.ref(release="after")
    with pytest.raises(LedgerError, match="pinned at 5; the policy asks for more"):
        kit.reserve(["c"], ["ann"], 1, cap=9, refs=[new])
    outcome = kit.reserve(["c", "d", "e"], ["ann", "ann", "eve"], [3, 1, 5], cap=5, refs=[new])
    assert outcome == [Outcome.RESERVED, Outcome.OVER_CAP, Outcome.RESERVED], "ann had 2 of 9: now 2 of 5"
    kit.sound()
    with pytest.raises(LedgerError, match="is not frozen"):
        kit.ledger.thaw("reviews", {"eps_pure": 1.0})


def test_more_lost_than_there_was_leaves_nothing(kit):
    frozen_kit(kit)
    kit.ledger.set_cap(Scope("reviews", "2027"), Cap(measure="approx", epsilon=5, delta=1e-3, period="2027"))
    lost = {"eps_pure": 100.0, "eps_approx": 2.0, "delta": 1e-3}
    assert kit.ledger.thaw("reviews", lost) == {
        "dataset:reviews, period 2026": {"eps_pure": 0},
        "dataset:reviews, period 2027": {"eps_approx": 3_000_000, "delta": 0},
    }
    kit.sound()


def test_names_that_the_ledger_never_saw_are_revoked(kit):
    kit.ledger.freeze("reviews", "a new ledger", in_use=["2026-11"])
    kit.ledger.thaw("reviews", {})
    with pytest.raises(LedgerError, match="'2026-11' of reviews is revoked"):
        kit.ref(release="2026-11")
    kit.ref(release="2026-12")
    kit.sound()


def test_a_cap_that_thawing_could_not_lower_is_set_on_purpose(kit):
    kit.ledger.freeze("reviews", "a new ledger", in_use=["r1"])
    assert kit.ledger.thaw("reviews", {"eps_pure": 4.0}) == {}
    new = kit.ref(release="after")
    with pytest.raises(LedgerError, match=r"was thawed, .* knows no cap of dataset:reviews.*\nHint: lower the cap by"):
        kit.reserve(["a"], ["ann"], 9, cap=9, refs=[new])
    kit.ledger.set_cap(Scope("reviews", "2026"), Cap(epsilon=5, period="2026"), raising=True)
    outcome = kit.reserve(["a", "b"], ["ann", "bob"], [6, 5], cap=5, refs=[new])
    assert outcome == [Outcome.OVER_CAP, Outcome.RESERVED]
    kit.sound()


def test_tables_follow_from_the_journal(kit):
    frozen_kit(kit)
    store = kit.ledger._book.store
    for statement, said in (
        ("delete from frozen", "frozen dataset reviews: the journal has it"),
        (
            "insert into burnt values('reviews', 'x', 1)",
            "revoked name reviews x: the table of the ledger has it, but the journal does not",
        ),
    ):
        store.execute(statement)
        assert any(said in problem for problem in kit.ledger.verify().problems), statement


def test_a_ledger_of_the_first_schema_is_migrated(kit):
    kit.reserve(["a"], cap=9)
    kit.ledger.revoke(kit.ref(release="gone"), "gate")
    before = kit.ledger.anchor()
    store = kit.ledger._book.store
    store.execute("drop table frozen")
    store.execute("drop table burnt")
    if "://" in kit.place:
        store.execute("update meta set value='1' where name='schema'")
    else:
        store.execute("pragma user_version=1")
    kit.ledger.close()
    for options in ({}, {"read_only": True}):
        with pytest.raises(LedgerError, match=r"has ledger schema 1; .* writes 2\nHint: `dptext ledger migrate`"):
            kit.open(**options)
    assert Ledger.migrate(kit.place) == 1
    assert Ledger.migrate(kit.place) == 2, "a second time changes nothing"
    kit.reopen()
    assert kit.ledger.holds(before)
    with pytest.raises(LedgerError, match="is revoked"):
        kit.ref(release="gone")
    assert kit.reserve(["a"], cap=9) == [Outcome.PENDING]
    kit.sound()
