"""Composition adds, never under-reports, and says by which rule; amounts round up."""

import json
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl import column
from dptext_etl.accounting import Bound, bounds, compose, least, log10_odds
from dptext_etl.guarantee import ADDITIVE, MICRO, Disclosure, GuaranteeClass, Spend, micro, powers_of_ten
from dptext_etl.mechanism import worst_spend
from dptext_etl.mechanisms.custext import CusText

amounts = st.integers(0, 10**12) | st.just(math.inf)
spends = st.builds(
    Spend,
    guarantee_class=st.sampled_from(list(GuaranteeClass)),
    disclosures=st.frozensets(st.sampled_from(list(Disclosure)), max_size=3),
    n_worst=st.integers(0, 1000),
    diameter=amounts,
    metric_id=st.sampled_from([None, "l1", "l2"]),
    assumptions=st.frozensets(st.sampled_from(["PRF", "UNIQUE_IDS"])),
    **dict.fromkeys(ADDITIVE, amounts),
)


@given(spends, spends, spends)
def test_composition_is_associative_and_never_decreases(a, b, c):
    assert compose([compose([a, b]), c]) == compose([a, compose([b, c])]) == compose([a, b, c])
    both = compose([a, b])
    for name in ADDITIVE:
        assert getattr(both, name) >= max(getattr(a, name), getattr(b, name))
        if name != "eps_metric" or a.metric_id == b.metric_id:
            assert getattr(both, name) == getattr(a, name) + getattr(b, name)
    assert both.disclosures == a.disclosures | b.disclosures
    assert both.assumptions == a.assumptions | b.assumptions
    order = list(GuaranteeClass).index
    assert order(both.guarantee_class) == max(order(a.guarantee_class), order(b.guarantee_class))
    assert all(getattr(a + Spend.zero(), name) == getattr(a, name) for name in ADDITIVE)
    assert "Infinity" not in json.dumps(both.as_dict())


def test_epsilons_per_distance_add_up_in_one_metric_alone():
    near, far = (Spend(eps_metric=3, diameter=9, metric_id=name) for name in ("l1", "l2"))
    assert (compose([near, near]).eps_metric, compose([near, near]).metric_id) == (6, "l1")
    for both in (compose([near, far]), compose([near, Spend(eps_metric=3)])):
        assert (both.eps_metric, both.metric_id) == (math.inf, None)
    assert near + Spend.zero() == near


def test_nothing_costs_nothing():
    assert compose([]) == Spend.zero()
    assert least(Spend.zero()) == Bound(0, 0, "pure")


@given(st.integers(1, 500), st.floats(1e-6, 100))
def test_millionths_never_under_report(count, epsilon):
    total = compose([Spend(eps_pure=micro(epsilon))] * count).eps_pure
    assert total / 1e6 >= count * epsilon * (1 - 1e-12)
    assert total / 1e6 <= count * (epsilon + 1.01e-6)


def test_the_least_valid_bound_names_its_rule():
    words = Spend(eps_pure=24_000_000, eps_tight=22_399_144, eps_approx=24_000_000)
    assert least(words) == Bound(22_399_144, 0, "tight")
    gauss = Spend(eps_approx=9_000_000, delta=10 * 10**9, mu2=5, rho=3)
    assert bounds(gauss) == [Bound(9_000_000, 10, "approx")]
    assert least(compose([words, gauss])) == Bound(33_000_000, 10, "approx")
    assert least(Spend()) == Bound(math.inf, 0, "none")
    equal = Spend(eps_pure=5, eps_tight=5, eps_approx=5, delta=10**9)
    assert least(equal) == Bound(5, 0, "pure"), "at equal epsilon no delta, and what was declared"


@given(spends)
def test_the_least_bound_is_a_valid_one(spend):
    best = least(spend)
    assert best.epsilon <= min(spend.eps_pure, spend.eps_tight)
    assert best in [*bounds(spend), Bound(math.inf, 0, "none")]


def test_odds():
    assert [round(log10_odds(micro(e))) for e in (30.0, 100.0, 500.0)] == [13, 43, 217]
    assert least(Spend(eps_pure=30_000_000)).log10_odds == log10_odds(30_000_000)


@given(st.floats(0, 1e9, allow_nan=False))
def test_micro_never_under_reports(amount):
    assert Fraction(micro(amount), MICRO) >= Fraction(repr(amount))
    assert Fraction(micro(amount) - 1, MICRO) < Fraction(repr(amount)) or amount == 0


def test_micro_reads_the_decimal_that_was_written():
    assert micro(0.1) == 100_000
    assert micro(2.0) == 2_000_000
    assert micro(1e-9) == 1
    assert micro(math.inf) == math.inf


def test_a_missing_component_is_infinite():
    assert Spend(eps_approx=1).eps_pure == math.inf


def test_log10_odds():
    assert Spend(eps_approx=30 * MICRO).log10_odds == pytest.approx(13.03, abs=0.01)


@given(st.floats(0, 1e6))
def test_printed_odds_are_a_bound(epsilon):
    assert epsilon <= powers_of_ten(epsilon) * math.log(10) * (1 + 1e-12) <= epsilon + 0.0024


def test_every_word_has_a_meaning():
    assert all(item.meaning for item in Disclosure)
    assert all(item.meaning for item in GuaranteeClass)


COUNTS = np.array([0, 7, 1, 0, 250, 7, 9_999], np.uint32)


def plain(mechanism, of):
    """Amounts of every record, each asked of only the mechanism."""
    costs = [of(mechanism, int(count)) for count in COUNTS]
    amounts = {name: [getattr(cost, name) for cost in costs] for name in ADDITIVE}
    endless = {
        name: [column.INFINITE if amount == float("inf") else amount for amount in amounts[name]] for name in ADDITIVE
    }
    return [cost.n_worst for cost in costs], endless


@pytest.mark.parametrize("kept", [1, 1 << 16])
def test_costs_are_those_of_the_mechanism(monkeypatch, kept):
    monkeypatch.setattr(column, "KNOWN_COSTS", kept)
    mechanism = CusText.example()
    for changed in (mechanism, mechanism.model_copy(update={"epsilon": 3.5}), mechanism):
        found = column.spends(changed, pa.array(COUNTS))
        assert {name: amounts.tolist() for name, amounts in found.items()} == plain(changed, CusText.spend)[1]
        positions, worst = column.worst_case(changed, pa.array(COUNTS), pa.array(["a"] * len(COUNTS)))
        assert (positions.tolist(), {name: amounts.tolist() for name, amounts in worst.items()}) == plain(
            changed, worst_spend
        )
    some = column.worst_case(mechanism, pa.array(COUNTS), pa.array(["a"] * len(COUNTS)), ("rho", "delta"))[1]
    assert set(some) == {"rho", "delta"}
    assert some["rho"].tolist() == worst["rho"].tolist()
