"""Caps: on one declared measure, per unit, in a scope that only a declaration can leave."""

import math

import numpy as np
import pyarrow as pa
import pytest

from dptext_etl.errors import LedgerError
from dptext_etl.ledger import Outcome, Scope
from dptext_etl.ledger.caps import LARGEST, limits
from dptext_etl.policy import Cap

from ..ledger_kit import reserve_batch
from .conftest import each_store

NEW, OVER = Outcome.RESERVED, Outcome.OVER_CAP
SCOPE = Scope("reviews", "2026")


def test_a_cap_is_rounded_down_and_a_charge_up():
    assert limits(Cap(epsilon=0.1)) == (100_000,)
    assert limits(Cap(epsilon=1.9999999)) == (1_999_999,)
    assert limits(Cap(measure="approx", epsilon=2, delta=1e-6)) == (2_000_000, 10**9)
    assert limits(Cap(measure="approx", epsilon=2, delta=5e-7)) == (2_000_000, 5 * 10**8)
    assert limits(Cap(measure="approx", epsilon=2, delta=1e-15)) == (2_000_000, 1)
    for at_most, refused in (({"epsilon": 9_999_999_999.0}, {"epsilon": 1e10}), ({"rho": 9e9}, {"rho": 1e10})):
        measure = "zcdp" if "rho" in refused else "pure"
        assert max(limits(Cap(measure=measure, **at_most))) < LARGEST
        with pytest.raises(LedgerError, match=r"a cap of 10\^10 and more protects no one"):
            limits(Cap(measure=measure, **refused))


@each_store
def test_a_changed_cap_is_an_event_and_a_higher_one_is_meant(kit):
    kit.reserve(["a"], ["ann"], 3, cap=5)
    with pytest.raises(LedgerError, match="is pinned at 5; the policy asks for more") as caught:
        kit.reserve(["b"], ["ann"], 3, cap=6)
    assert "raising=True" in str(caught.value)
    assert kit.used("ann") == [3]
    kit.ledger.set_cap(SCOPE, Cap(epsilon=6, period="2026"), raising=True)
    assert kit.reserve(["b"], ["ann"], 3, cap=6) == [NEW]
    with pytest.raises(LedgerError, match="is pinned at 6; the policy asks for less: 2") as caught:
        kit.reserve(["c"], ["bob"], 3, cap=2)
    assert "--accept-lower-cap" in str(caught.value)
    kit.ledger.set_cap(SCOPE, Cap(epsilon=2, period="2026"))
    assert kit.reserve(["c"], ["bob"], 3, cap=2) == [OVER]
    assert kit.reserve(["d"], ["bob"], 3) == [OVER], "a pinned cap holds for those who ask for none"
    kit.ledger.set_cap(SCOPE, Cap(epsilon=2, period="2026"))
    kit.sound()
    kinds = [entry.kind for entry in kit.db.journal.entries()]
    assert kinds.count("CAP_SET") == 3


def test_what_a_policy_would_change_is_said_and_agreed_on_first(kit):
    asked = {amount: Cap(epsilon=amount, period="2026") for amount in (2.0, 5.0, 6.0)}
    assert kit.ledger.cap_change(SCOPE, asked[5]) is None
    kit.ledger.agree_on_cap(SCOPE, asked[5])
    assert kit.ledger.cap_change(SCOPE, asked[5]) is None
    assert kit.ledger.cap_change(SCOPE, None) is None
    lower = kit.ledger.cap_change(SCOPE, asked[2])
    assert lower.as_dict() == {
        "scope": "dataset:reviews, period 2026",
        "change": "lower",
        "pinned": {"eps_pure": 5.0},
        "asked": {"eps_pure": 2.0},
    }
    assert "pinned at eps_pure 5; this policy asks for eps_pure 2: a run with it needs --accept-lower-cap" in str(lower)
    assert kit.ledger.cap_change(SCOPE, asked[6]).change == "higher"
    assert kit.ledger.cap_change(SCOPE, Cap(measure="zcdp", rho=1, period="2026")).change == "measure"
    with pytest.raises(LedgerError, match="the policy asks for more: 6"):
        kit.ledger.agree_on_cap(SCOPE, asked[6], lowering=True)
    with pytest.raises(LedgerError, match="the policy asks for less: 2"):
        kit.ledger.agree_on_cap(SCOPE, asked[2])
    kit.ledger.agree_on_cap(SCOPE, asked[2], lowering=True)
    assert kit.ledger.reports.caps()[0]["limits"] == {"eps_pure": 2_000_000}
    kit.ledger.losses.freeze("reviews", "by hand")
    with pytest.raises(LedgerError, match="frozen"):
        kit.ledger.agree_on_cap(SCOPE, asked[2])
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
    kit.ledger.set_cap(Scope("reviews", "2027"), later, raising=True)
    assert kit.reserve(["b"], ["ann"], 3, cap=later, scope=Scope("reviews", "2027")) == [NEW]
    shared = Cap(epsilon=5, period="2026", group="all text")
    for dataset, outcome in (("tickets", NEW), ("notes", OVER)):
        refs, scope = [kit.ref(dataset=dataset)], Scope(dataset, "2026", "all text")
        said = kit.reserve(["a", "b"], ["ann", "bob"], [3, 1], cap=shared, refs=refs, scope=scope)
        assert said == [outcome, NEW]
    kit.sound()
    named = {(row["scope"], row["period"]): row["datasets"] for row in kit.ledger.reports.caps()}
    assert named[("group:all text", "2026")] == ["notes", "tickets"]


def test_leaving_the_cap_out_does_not_lift_it(kit):
    kit.reserve(["a"], ["ann"], 3, cap=5)
    with pytest.raises(LedgerError, match=r"the dataset reviews has a cap \(dataset:reviews, period 2026\)"):
        kit.reserve(["b"], ["ann"], 3, scope=Scope("reviews"))
    with pytest.raises(LedgerError, match="counts per subject, got unit 'record'"):
        kit.reserve(["b"], None, 3, cap=5, scope=Scope("reviews", "2026", unit="record"))
    with pytest.raises(LedgerError, match="is capped on pure, got zcdp"):
        kit.reserve(["b"], ["ann"], 3, cap=Cap(measure="zcdp", rho=5, period="2026"))


def test_a_first_cap_on_what_was_infinite_is_refused(kit):
    charge = kit.charge(kit.ref(), ["a"], eps_pure=[math.inf])
    reserve_batch(kit.ledger, "job", SCOPE, None, pa.array(["a"]), pa.array(["ann"]), [charge])
    with pytest.raises(LedgerError, match="charges that are infinite on pure, made before it had a cap"):
        kit.ledger.set_cap(SCOPE, Cap(epsilon=5, period="2026"))
    assert kit.ledger.reports.caps()[0]["measure"] is None


def approx(kit, ids, deltas, cap, release="r1"):
    """Charge deltas to Ann, in steps of 10^-15."""
    charge = kit.charge(kit.ref(release=release), ids, eps_approx=np.full(len(ids), 1), delta=np.array(deltas))
    names = pa.array(["ann"] * len(ids))
    return reserve_batch(kit.ledger, "job", SCOPE, cap, pa.array(ids), names, [charge]).tolist()


@each_store
def test_a_delta_counts_to_the_trillionth(kit):
    cap = Cap(measure="approx", epsilon=9, delta=5e-12, period="2026")
    assert approx(kit, list("abc"), [2000, 2000, 2000], cap) == [NEW, NEW, OVER]
    asked = kit.ledger.remaining(SCOPE, pa.array(["ann"]))
    assert asked.asked[0]["delta"] == {"used": 4e-6, "left": 1e-6}, "JSON has millionths"
    assert asked.limits == {"eps_approx": 9_000_000, "delta": 5e-6}
    assert kit.ledger.used(SCOPE, pa.array(["ann"]))["delta"].tolist() == [4000]
    assert kit.ledger.reports.caps()[0]["limits"]["delta"] == 5e-6
    with pytest.raises(LedgerError, match="is pinned at 9 and 5e-12; the policy asks for less: 9 and 4e-12"):
        approx(kit, ["d"], [1], cap.model_copy(update={"delta": 4e-12}))
    kit.ledger.losses.freeze("reviews", "lost")
    thawed = kit.ledger.losses.thaw("reviews", {"eps_approx": 1.0, "delta": 1e-12})
    assert thawed == {str(SCOPE): {"eps_approx": 8_000_000, "delta": 4e-6}}
    kit.sound()


@each_store
@pytest.mark.parametrize("measure", ["pure", "zcdp"])
def test_charges_that_add_up_beyond_64_bits_leave_nothing_of_a_later_cap(kit, measure):
    """In one batch, and over batches; 600 of these amounts wrap to a sum below zero."""
    name, size, cap = ("rho", 300, Cap(measure="zcdp", rho=5.0, period="2026"))
    if measure == "pure":
        name, cap = "eps_pure", Cap(epsilon=5, period="2026")
    for batch in range(2):
        ids = [f"{batch}-{at}" for at in range(size)]
        large = {"eps_pure": np.full(size, 1), name: np.full(size, (1 << 54) - 1)}
        charge = kit.charge(kit.ref(), ids, **large)
        reserve_batch(kit.ledger, "job", SCOPE, None, kit.ids(*ids), kit.ids(*["ann"] * size), [charge])
    kit.ledger.set_cap(SCOPE, cap)
    small = kit.charge(kit.ref(), ["new"], rho=np.array([1]))
    found = reserve_batch(kit.ledger, "job", SCOPE, cap, kit.ids("new"), kit.ids("ann"), [small])
    assert found.tolist() == [OVER]
    assert kit.used("ann") == ["inf"]
    assert kit.ledger.abort("job", compute_never_started=True)
    assert kit.used("ann") == [0], "what was given back counts no more"
    kit.sound()


@each_store
@pytest.mark.parametrize("size", [1030, 2060])
def test_requests_that_wrap_once_or_twice_fit_once(kit, size):
    """Each request is the whole cap: their sum wraps to a negative number, or to a small one."""
    cap = Cap(epsilon=9e9, period="2026")
    for batch in range(2):
        ids = [f"{batch}-{at}" for at in range(size)]
        charge = kit.charge(kit.ref(), ids, eps_pure=np.full(size, 9 * 10**15))
        asked = kit.ids(*ids), kit.ids(*["ann"] * size), [charge]
        found = reserve_batch(kit.ledger, "job", SCOPE, cap, *asked).tolist()
        assert found == [NEW if batch == 0 else OVER, *[OVER] * (size - 1)]
    assert kit.used("ann") == [9e9]
    assert kit.ledger.reports.largest()["epsilon"] == 9 * 10**15
    kit.sound()


@each_store
@pytest.mark.parametrize("amount", [1 << 63, 1 << 70, 1e19, np.array([1 << 63], np.uint64)])
def test_a_spend_beyond_64_bits_is_infinite(kit, amount):
    amounts = amount if isinstance(amount, np.ndarray) else [amount]
    charge = kit.charge(kit.ref(), ["a"], eps_pure=amounts)
    reserve_batch(kit.ledger, "job", SCOPE, None, kit.ids("a"), kit.ids("ann"), [charge])
    assert kit.used("ann") == ["inf"]
    kit.sound()
