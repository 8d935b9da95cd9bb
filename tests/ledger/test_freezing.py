"""A lost or restored ledger: anchors notice, the dataset freezes, thawing charges possible losses.

Specification: docs/spec/privacy.md#lost-ledger.
"""

import pytest

from dptext_etl.errors import LedgerError
from dptext_etl.ledger import Anchor, Outcome, Scope
from dptext_etl.ledger.contents import Contents
from dptext_etl.ledger.types import Event
from dptext_etl.policy import Cap

from .conftest import each_store


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
    store = kit.db.store
    store.execute("delete from event where seq=?", (last.seq,))
    assert not kit.ledger.holds(last)
    for text in ("", "x", f"{anchor}0", "a:b:c"):
        with pytest.raises(LedgerError, match="reads LEDGER:NUMBER:HASH"):
            Anchor.parse(text)


def test_a_hash_over_events_changes_with_each_event_of_its_kinds_in_whatever_order_they_arrive(kit, new_kit, new_place):
    kinds, other = (Event.FREEZE, Event.SETTLE), new_kit(new_place("restored"))
    kit.reserve(["a"], cap=9)
    found = [kit.ledger.reports.events_hash(*kinds)]
    assert found == [""]
    for ledger in (kit.ledger, kit.ledger, other.ledger):
        ledger.losses.freeze(f"letters {len(found)}", "by hand")
        found.append(ledger.reports.events_hash(*kinds))
    with kit.db.store.transaction():  # of a writer whose chain is behind: its numbers are lower
        kit.db.store.execute("insert into event values(?,?,?,?)", (0, Event.SETTLE.value, "{}", bytes(32)))
    assert len({*found, kit.ledger.reports.events_hash(*kinds)}) == 5


def frozen_kit(kit):
    ref = kit.ref()
    kit.reserve(["a", "b"], ["ann", "bob"], 2, cap=9)
    kit.commit(["a"])
    kit.ledger.losses.freeze("reviews", "restored from a copy")
    return ref


def test_nothing_happens_in_a_frozen_dataset(kit):
    ref = frozen_kit(kit)
    kit.ledger.losses.freeze("reviews", "again")
    assert kit.ledger.losses.frozen() == ["reviews"]
    said = r"the dataset reviews is frozen: restored from a copy\nHint: .*dptext ledger thaw"
    for attempt in (
        lambda: kit.ref(release="new"),
        lambda: kit.reserve(["c"], cap=9, refs=[ref]),
        lambda: kit.commit(["b"], ref=ref),
        lambda: kit.ledger.releases.record_publication(ref, "v1", "ab" * 32, 1, sink="here"),
    ):
        with pytest.raises(LedgerError, match=said):
            attempt()
    elsewhere = kit.ref(dataset="others")
    assert kit.reserve(["a"], refs=[elsewhere], scope=Scope("others")) == [Outcome.RESERVED]
    kit.sound()


@each_store
def test_thawing_revokes_names_and_charges_what_may_have_been_lost(kit):
    frozen_kit(kit)
    with pytest.raises(LedgerError, match="a cap of reviews counts eps_pure: state how much"):
        kit.ledger.losses.thaw("reviews", {})
    assert kit.ledger.losses.thaw("reviews", {"eps_pure": 4.0}) == {
        "dataset:reviews, period 2026": {"eps_pure": 5_000_000}
    }
    assert kit.ledger.losses.frozen() == []
    with pytest.raises(LedgerError, match="is revoked"):
        kit.ref()
    new = kit.ref(release="after")
    with pytest.raises(LedgerError, match="pinned at 5; the policy asks for more"):
        kit.reserve(["c"], ["ann"], 1, cap=9, refs=[new])
    outcome = kit.reserve(["c", "d", "e"], ["ann", "ann", "eve"], [3, 1, 5], cap=5, refs=[new])
    assert outcome == [Outcome.RESERVED, Outcome.OVER_CAP, Outcome.RESERVED], "ann had 2 of 9: now 2 of 5"
    kit.sound()
    with pytest.raises(LedgerError, match="is not frozen"):
        kit.ledger.losses.thaw("reviews", {"eps_pure": 1.0})


def test_more_lost_than_there_was_leaves_nothing(kit):
    frozen_kit(kit)
    kit.ledger.set_cap(
        Scope("reviews", "2027"), Cap(measure="approx", epsilon=5, delta=1e-3, period="2027"), raising=True
    )
    lost = {"eps_pure": 100.0, "eps_approx": 2.0, "delta": 1e-3}
    assert kit.ledger.losses.thaw("reviews", lost) == {
        "dataset:reviews, period 2026": {"eps_pure": 0},
        "dataset:reviews, period 2027": {"eps_approx": 3_000_000, "delta": 0},
    }
    kit.sound()


def test_names_that_the_ledger_never_saw_are_revoked(kit):
    kit.ledger.losses.freeze("reviews", "a new ledger", in_use=["2026-11"])
    kit.ledger.losses.thaw("reviews", {})
    with pytest.raises(LedgerError, match="'2026-11' of reviews is revoked"):
        kit.ref(release="2026-11")
    kit.ref(release="2026-12")
    kit.sound()


@each_store
def test_a_cap_that_thawing_could_not_lower_is_set_on_purpose(kit):
    kit.ledger.losses.freeze("reviews", "a new ledger", in_use=["r1"])
    assert kit.ledger.losses.thaw("reviews", {"eps_pure": 4.0}) == {}
    new = kit.ref(release="after")
    with pytest.raises(LedgerError, match=r"was thawed, .* knows no cap of dataset:reviews.*\nHint: lower the cap by"):
        kit.reserve(["a"], ["ann"], 9, cap=9, refs=[new])
    kit.ledger.set_cap(Scope("reviews", "2026"), Cap(epsilon=5, period="2026"), raising=True)
    outcome = kit.reserve(["a", "b"], ["ann", "bob"], [6, 5], cap=5, refs=[new])
    assert outcome == [Outcome.OVER_CAP, Outcome.RESERVED]
    kit.sound()


@each_store
@pytest.mark.parametrize("schema", [4, 9])
def test_a_ledger_of_an_older_or_a_newer_schema_is_refused_untouched(kit, schema):
    kit.reserve(["a"], cap=9)
    on_server = "://" in kit.place
    kit.db.store.execute(
        f"update meta set value='{schema}' where name='schema'" if on_server else f"pragma user_version={schema}"
    )
    kit.ledger.close()
    before = None if on_server else kit.path.read_bytes()
    for options in ({}, {"read_only": True}):
        with pytest.raises(
            LedgerError, match=f"has ledger schema {schema}; this version of dptext-etl knows 5"
        ) as caught:
            kit.open(**options)
        assert caught.value.hint.startswith("versions before 0.3.0 wrote it: start a new" if schema < 5 else "upgrade")
    assert on_server or kit.path.read_bytes() == before


def shared(kit, dataset, period="2026", group="people"):
    """Return the scope and the cap of a dataset in a group."""
    return Scope(dataset, period, group), Cap(epsilon=60, period=period, group=group)


def group_kit(kit):
    """Datasets a and b share a group in two periods, b and c another one; d has no group."""
    refs = {name: kit.ref(dataset=name) for name in "abcd"}
    for name, period, group in (
        ("a", "2026", "people"),
        ("b", "2026", "people"),
        ("b", "2025", "old"),
        ("c", "2025", "old"),
    ):
        scope, cap = shared(kit, name, period, group)
        kit.ledger.set_cap(scope, cap, raising=True)
        kit.reserve([f"{name}-{period}"], ["ann"], 2, cap, refs=[refs[name]], scope=scope)
    kit.reserve(["d"], ["ann"], 2, Cap(epsilon=9, period="2026"), refs=[refs["d"]])
    return refs


def lost(kit):
    """An anchor that the ledger should hold and does not."""
    head = kit.ledger.anchor()
    return Anchor(head.ledger, head.seq + 50, "0" * 64)


def test_freezing_covers_what_shares_a_scope(kit):
    refs = group_kit(kit)
    kit.ledger.losses.freeze("a", "restored", in_use=["r9"], missing=lost(kit))
    assert kit.ledger.losses.frozen() == ["a", "b", "c"], "b shares people with a, and old with c"
    for name in "abc":
        scope, cap = shared(kit, name)
        for attempt in (
            lambda name=name: kit.ref(dataset=name, release="new"),
            lambda name=name, s=scope, c=cap: kit.reserve(["x"], ["ann"], 1, c, refs=[refs[name]], scope=s),
            lambda name=name: kit.commit([f"{name}-2026"], ref=refs[name]),
        ):
            with pytest.raises(LedgerError, match=f"the dataset {name} is frozen: restored"):
                attempt()
    assert kit.reserve(["d2"], ["ann"], 1, Cap(epsilon=9, period="2026"), refs=[refs["d"]]) == [Outcome.RESERVED]
    kit.sound()


@pytest.mark.parametrize(("group", "period"), [("people", "2026"), ("people", "2027"), ("old", "2025")])
def test_a_frozen_group_is_closed_to_datasets_and_periods_that_the_copy_never_saw(kit, group, period):
    group_kit(kit)
    kit.ledger.losses.freeze("a", "restored", missing=lost(kit))
    new = kit.ref(dataset="new")
    scope, cap = shared(kit, "new", period, group)
    with pytest.raises(LedgerError, match=rf"the group {group} is frozen with the dataset a: restored\nHint: .*thaw a"):
        kit.reserve(["x"], ["ann"], 1, cap, refs=[new], scope=scope)
    assert kit.ledger.losses.thaw("a", {"eps_pure": 32}).keys() == {
        "group:people, period 2026",
        "group:old, period 2025",
    }
    if period == "2027":
        with pytest.raises(LedgerError, match=r"was thawed, .* knows no cap of group:people, period 2027"):
            kit.reserve(["x"], ["ann"], 1, cap, refs=[new], scope=scope)
        return
    with pytest.raises(LedgerError, match="pinned at 28; the policy asks for more"):
        kit.reserve(["x"], ["ann"], 1, cap, refs=[new], scope=scope)
    less = cap.model_copy(update={"epsilon": 28.0})
    taken = kit.reserve(["x", "y"], ["ann", "ann"], [24, 1], less, refs=[new], scope=scope)
    assert taken == [Outcome.RESERVED, Outcome.OVER_CAP], "ann had 4 of 60: now 4 of 28"
    kit.sound()


def test_thawing_one_settles_all_that_froze_with_it(kit):
    group_kit(kit)
    kit.ledger.losses.freeze("a", "restored", missing=lost(kit))
    kit.ledger.losses.freeze("d", "key leaked", alone=True)
    caps = kit.ledger.losses.thaw("c", {"eps_pure": 32})
    assert caps == {
        "group:people, period 2026": {"eps_pure": 28_000_000},
        "group:old, period 2025": {"eps_pure": 28_000_000},
    }, "each cap is lowered once"
    assert kit.ledger.losses.frozen() == ["d"]
    for name in "abc":
        with pytest.raises(LedgerError, match="is revoked"):
            kit.ref(dataset=name)
    kit.sound()


def test_a_dataset_freezes_alone_where_nothing_was_lost(kit):
    refs = group_kit(kit)
    kit.ledger.losses.freeze("a", "key leaked", alone=True)
    scope, cap = shared(kit, "b")
    assert kit.reserve(["x"], ["ann"], 1, cap, refs=[refs["b"]], scope=scope) == [Outcome.RESERVED]
    with pytest.raises(LedgerError, match="is only for a dataset without a loss"):
        kit.ledger.losses.freeze("a", "x", alone=True, missing=lost(kit))
    kit.ledger.losses.freeze("a", "restored", missing=lost(kit))
    assert kit.ledger.losses.frozen() == ["a", "b", "c"], "a loss freezes the others, too"
    kit.sound()


def test_a_loss_that_was_settled_covers_anchors_from_before(kit):
    group_kit(kit)
    mine, other, later = (
        lost(kit),
        Anchor(kit.ledger.ledger_id, 90, "1" * 64),
        Anchor(kit.ledger.ledger_id, 95, "2" * 64),
    )
    assert [kit.ledger.losses.count(name) for name in "abd"] == [0, 0, 0]
    kit.ledger.losses.freeze("a", "restored", missing=mine)
    kit.ledger.losses.freeze("a", "restored", missing=mine)
    assert [kit.ledger.losses.count(name) for name in "abd"] == [1, 1, 0]
    assert not kit.ledger.losses.settled("b", other, 0), "frozen still"
    kit.ledger.losses.thaw("a", {"eps_pure": 1})
    assert kit.ledger.losses.settled("b", mine)
    assert kit.ledger.losses.settled("b", other, 0), "what b kept before the loss was lost with it"
    assert not kit.ledger.losses.settled("b", other), "no one knows when it was kept"
    assert not kit.ledger.losses.settled("b", later, 1), "kept after the loss: another loss"
    assert not kit.ledger.losses.settled("d", other, 0)


def test_a_charge_of_a_frozen_group_is_found(kit):
    refs = group_kit(kit)
    kit.ledger.losses.freeze("a", "restored", missing=lost(kit))
    scope, cap = shared(kit, "d", "2029")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Contents, "refuse_frozen", lambda *_: None)
        kit.ledger.set_cap(scope, cap, raising=True)
        kit.reserve(["x"], ["ann"], 1, cap, refs=[refs["d"]], scope=scope)
    assert any("the group:people was frozen before" in problem for problem in kit.ledger.verify().problems)
