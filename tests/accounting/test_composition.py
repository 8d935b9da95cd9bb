"""Composition adds, never under-reports, and says by which rule."""

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from dptext_etl.accounting import Bound, bounds, compose, least, log10_odds
from dptext_etl.guarantee import ADDITIVE, Disclosure, GuaranteeClass, Spend, micro

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
