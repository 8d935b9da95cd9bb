"""Periods: no balance starts at zero next to charges unless someone says so by name."""

import pytest

from dptext_etl.errors import LedgerError
from dptext_etl.ledger import Outcome, Scope
from dptext_etl.policy import Cap

from .conftest import each_store

NEW, OVER = Outcome.RESERVED, Outcome.OVER_CAP


def cap(period, epsilon=60, group=None):
    return Cap(epsilon=epsilon, period=period, group=group)


def charge(kit, record, period, *, capped=True, group=None, dataset="reviews", epsilons=42):
    limit = cap(period, group=group) if capped else None
    scope, refs = Scope(dataset, period, group), [kit.ref(dataset=dataset)]
    return kit.reserve([record], ["ann"], epsilons, cap=limit, refs=refs, scope=scope)


@pytest.mark.parametrize(("first", "capped"), [("all", True), ("all", False), ("2025", True), ("2025", False)])
@pytest.mark.parametrize("group", [None, "all text"])
def test_a_new_period_beside_charges_is_opened_by_name(kit, first, capped, group):
    assert charge(kit, "a", first, capped=capped) == [NEW]
    with pytest.raises(LedgerError, match=f"would not count charges in .* period {first}") as caught:
        charge(kit, "b", "2026", group=group)
    assert "dptext ledger set-cap" in str(caught.value)
    for ask in (kit.ledger.agree_on_cap, kit.ledger.set_cap):
        with pytest.raises(LedgerError, match="would not count"):
            ask(Scope("reviews", "2026", group), cap("2026", group=group))
    kit.ledger.set_cap(Scope("reviews", "2026", group), cap("2026", group=group), raising=True)
    assert charge(kit, "b", "2026", group=group) == [NEW]
    assert charge(kit, "c", "2026", group=group) == [OVER]
    kit.sound()


def test_all_takes_no_charge_beside_named_periods(kit):
    """A cap of all time that does not count what named periods charged would be none."""
    charge(kit, "a", "all")
    kit.ledger.set_cap(Scope("reviews", "2026"), cap("2026"), raising=True)
    for attempt in (
        lambda: charge(kit, "b", "all", epsilons=1),
        lambda: charge(kit, "b", "all", epsilons=1, capped=False),
        lambda: kit.ledger.agree_on_cap(Scope("reviews"), cap("all")),
        lambda: kit.ledger.set_cap(Scope("reviews"), cap("all", 99), raising=True),
    ):
        with pytest.raises(LedgerError, match="reviews has a cap in period 2026, so nothing is charged in period all"):
            attempt()
    assert charge(kit, "b", "2026") == [NEW]
    kit.sound()


def test_a_dataset_with_charges_joins_a_group_by_name(kit):
    charge(kit, "a", "2025")
    assert charge(kit, "a", "2026", group="all text", dataset="notes") == [NEW]
    with pytest.raises(LedgerError, match="would not count charges in dataset:reviews, period 2025"):
        charge(kit, "b", "2026", group="all text")
    kit.ledger.set_cap(Scope("reviews", "2026", "all text"), cap("2026", group="all text"), raising=True)
    kit.reopen()
    assert charge(kit, "b", "2026", group="all text") == [OVER]
    kit.sound()


@each_store
def test_a_first_cap_counts_what_its_own_period_charged_and_new_datasets_need_no_name(kit):
    charge(kit, "a", "all", capped=False)
    assert charge(kit, "b", "all") == [OVER]
    assert charge(kit, "a", "2026", dataset="notes") == [NEW]
    kit.sound()


def test_what_opened_a_period_is_said(kit):
    assert kit.ledger.reports.uncounted(Scope("reviews", "2026")) == []
    charge(kit, "a", "all")
    assert kit.ledger.reports.uncounted(Scope("reviews")) == []
    assert kit.ledger.reports.uncounted(Scope("reviews", "2026")) == ["dataset:reviews, period all"]
