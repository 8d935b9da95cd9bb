"""Caps: on one declared measure, per unit, in a scope that nothing but a declaration can leave."""

import math

import numpy as np
import pyarrow as pa
import pytest

from dptext_etl.column import INFINITE
from dptext_etl.errors import LedgerError
from dptext_etl.ledger import Outcome, Scope
from dptext_etl.ledger.operations.scopes import limits
from dptext_etl.policy import Cap

NEW, OVER = Outcome.RESERVED, Outcome.OVER_CAP
SCOPE = Scope("reviews", "2026")


def test_a_cap_is_rounded_down_and_a_charge_up():
    assert limits(Cap(epsilon=0.1)) == (100_000,)
    assert limits(Cap(epsilon=1.9999999)) == (1_999_999,)
    assert limits(Cap(measure="approx", epsilon=2, delta=1e-6)) == (2_000_000, 1)
    with pytest.raises(LedgerError, match="protects nobody"):
        limits(Cap(epsilon=1e11))


def test_a_cap_is_met_exactly(kit):
    assert kit.reserve(["a"], ["ann"], 3, cap=5) == [NEW]
    assert kit.reserve(["b"], ["ann"], 3, cap=5) == [OVER]
    assert kit.reserve(["c"], ["ann"], 2, cap=5) == [NEW]
    assert kit.used("ann") == [5]


def test_a_changed_cap_is_an_event_and_a_higher_one_is_meant(kit):
    kit.reserve(["a"], ["ann"], 3, cap=5)
    with pytest.raises(LedgerError, match="is pinned at 5; the policy asks for more") as caught:
        kit.reserve(["b"], ["ann"], 3, cap=6)
    assert "raising=True" in str(caught.value)
    assert kit.used("ann") == [3]
    kit.ledger.set_cap(SCOPE, Cap(epsilon=6, period="2026"), raising=True)
    assert kit.reserve(["b"], ["ann"], 3, cap=6) == [NEW]
    assert kit.reserve(["c"], ["bob"], 3, cap=2) == [OVER]
    assert kit.reserve(["d"], ["bob"], 3) == [OVER], "a pinned cap holds for those who ask for none"
    kit.ledger.set_cap(SCOPE, Cap(epsilon=2, period="2026"))
    kit.sound()
    kinds = [entry.kind for entry in kit.ledger._book.journal.entries()]
    assert kinds.count("CAP_SET") == 3


def test_a_lower_cap_refuses_what_comes_and_gives_nothing_back(kit):
    kit.reserve(["a"], ["ann"], 5, cap=5)
    assert kit.reserve(["b"], ["ann"], 1, cap=2) == [OVER]
    assert kit.used("ann") == [5]
    assert kit.ledger.remaining(SCOPE).exhausted == 1
    kit.sound()


def test_another_group_does_not_start_balances_at_zero(kit):
    assert kit.reserve(["a"], ["ann"], 5, cap=5) == [Outcome.RESERVED]
    other = Cap(epsilon=5, period="2026", group="elsewhere")
    with pytest.raises(LedgerError, match="period 2026 add up in dataset:reviews, got group:elsewhere"):
        kit.reserve(["b"], ["ann"], 5, cap=other, scope=Scope("reviews", "2026", "elsewhere"))
    assert kit.reserve(["b"], ["ann"], 5, cap=5) == [Outcome.OVER_CAP]
    assert kit.used("ann") == [5]
    kit.sound()


def test_periods_are_apart_and_groups_together(kit):
    kit.reserve(["a"], ["ann"], 3, cap=5)
    later = Cap(epsilon=5, period="2027")
    assert kit.reserve(["b"], ["ann"], 3, cap=later, scope=Scope("reviews", "2027")) == [NEW]
    shared = Cap(epsilon=5, period="2026", group="all text")
    for dataset, outcome in (("tickets", NEW), ("notes", OVER)):
        refs, scope = [kit.ref(dataset=dataset)], Scope(dataset, "2026", "all text")
        assert kit.reserve(["a"], ["ann"], 3, cap=shared, refs=refs, scope=scope) == [outcome]
    kit.sound()
    named = {(row["scope"], row["period"]): row["datasets"] for row in kit.ledger.caps()}
    assert named[("group:all text", "2026")] == ["notes", "tickets"]


def test_leaving_the_cap_out_does_not_lift_it(kit):
    kit.reserve(["a"], ["ann"], 3, cap=5)
    with pytest.raises(LedgerError, match=r"the dataset reviews has a cap \(dataset:reviews, period 2026\)"):
        kit.reserve(["b"], ["ann"], 3, scope=Scope("reviews"))
    with pytest.raises(LedgerError, match="counts per subject, got unit 'record'"):
        kit.reserve(["b"], None, 3, cap=5, scope=Scope("reviews", "2026", unit="record"))
    with pytest.raises(LedgerError, match="is capped on pure, got zcdp"):
        kit.reserve(["b"], ["ann"], 3, cap=Cap(measure="zcdp", rho=5, period="2026"))


def test_a_first_cap_counts_what_was_charged_before_it(kit):
    kit.reserve(["a", "b", "x"], ["ann", "ann", "bob"], [3, 4, 1])
    kit.reserve(["given back"], ["bob"], 5, job="other")
    kit.ledger.abort("other", compute_never_started=True)
    assert kit.reserve(["c", "d"], ["ann", "bob"], 2, cap=8) == [OVER, NEW]
    assert kit.used("ann", "bob") == [7, 3]
    kit.sound()


def test_a_first_cap_on_what_was_infinite_is_refused(kit):
    charge = kit.charge(kit.ref(), ["a"], eps_pure=[math.inf])
    kit.ledger.reserve("job", SCOPE, None, pa.array(["a"]), pa.array(["ann"]), [charge])
    with pytest.raises(LedgerError, match="charges that are infinite on pure, made before it had a cap"):
        kit.ledger.set_cap(SCOPE, Cap(epsilon=5, period="2026"))
    assert kit.ledger.caps()[0]["measure"] is None


def test_other_measures_are_plain_sums(kit):
    ids, people = pa.array(list("abc")), pa.array(["ann"] * 3)
    rho = kit.charge(kit.ref(release="z"), ids.to_pylist(), rho=np.array([2, 2, 1]), eps_pure=np.full(3, INFINITE))
    zcdp = Cap(measure="zcdp", rho=3e-6, period="z")
    scope = Scope("reviews", "z")
    assert kit.ledger.reserve("job", scope, zcdp, ids, people, [rho]).outcome.tolist() == [NEW, OVER, NEW]
    assert kit.ledger.remaining(scope, pa.array(["ann"])).asked == [{"rho": {"used": 3, "left": 0}}]
    scope = Scope("reviews", "a")
    approx = Cap(measure="approx", epsilon=9, delta=3e-6, period="a")
    pairs = {"eps_approx": np.full(3, 1_000_000), "delta": np.array([2, 2, 1])}
    pair = kit.charge(kit.ref(release="a"), ids.to_pylist(), **pairs)
    assert kit.ledger.reserve("job", scope, approx, ids, people, [pair]).outcome.tolist() == [NEW, OVER, NEW]
    asked = kit.ledger.remaining(scope, pa.array(["ann"])).asked
    assert asked == [{"eps_approx": {"used": 2_000_000, "left": 7_000_000}, "delta": {"used": 3, "left": 0}}]
    kit.sound()
