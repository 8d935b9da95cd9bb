"""Composition and conversions to (epsilon, delta): the answers of the specification, and never below the truth.

Specification: docs/spec/privacy.md#e15.
"""

import functools
import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl import column
from dptext_etl.accounting import PureDraws, compose, conversion, joint, least, log10_odds
from dptext_etl.accounting.conversion import (
    Bound,
    bounded_range_epsilon,
    bounds,
    largest_mu,
    log_delta,
    smallest_epsilon,
    zcdp_epsilon,
)
from dptext_etl.errors import PolicyError
from dptext_etl.guarantee import ADDITIVE, MICRO, Disclosure, GuaranteeClass, Spend, fine, micro
from dptext_etl.mechanism import worst_spend
from dptext_etl.mechanisms.custext import CusText
from tests.later import later

from ..examples import examples

dp_accounting = later("dp_accounting", reason="dp-accounting is not installed")

KNOWN = [  # epsilon, k: PLD, zCDP at delta 1e-6 (docs/spec/privacy.md#known-composition)
    (1.0, 20, 13.43, 13.37),
    (1.0, 50, 25.42, 23.70),
    (2.0, 20, 30.53, 32.22),
    (3.0, 20, 49.35, 56.19),
]


@pytest.mark.parametrize(("epsilon", "count", "pld", "zcdp"), KNOWN)
def test_known_answers(epsilon, count, pld, zcdp):
    draws = PureDraws(epsilon, count)
    assert bounded_range_epsilon([draws], 1e-6) == pytest.approx(pld, abs=0.006)
    assert zcdp_epsilon(count * epsilon**2 / 8, 1e-6) == pytest.approx(zcdp, abs=0.006)


def exact_delta(epsilon, t, count, total):
    """Delta of k draws between the two laws of two outcomes whose losses are t and t - epsilon, outcome by outcome."""
    p = (1 - math.exp(t - epsilon)) / (1 - math.exp(-epsilon))
    delta = 0.0
    for outcomes in itertools.product((True, False), repeat=count):
        loss = sum(t if high else t - epsilon for high in outcomes)
        mass = math.prod(p if high else 1 - p for high in outcomes)
        delta += mass * max(0.0, 1 - math.exp(total - loss))
    return delta


@pytest.mark.parametrize(("epsilon", "count"), [(0.5, 3), (1.0, 6), (2.3456, 5), (4.0, 4)])
@pytest.mark.parametrize("delta", [1e-2, 1e-4])
def test_no_pair_of_range_bounded_laws_does_worse(epsilon, count, delta):
    """Every pair of laws on two outcomes with this range, composed exactly, keeps each converted statement."""
    draws = PureDraws(epsilon, count)
    claims = {"pld": bounded_range_epsilon([draws], delta), "zcdp": zcdp_epsilon(count * epsilon**2 / 8, delta)}
    for t in np.linspace(1e-6, epsilon - 1e-6, 60):
        for name, claim in claims.items():
            assert exact_delta(epsilon, t, count, claim) <= delta * (1 + 1e-9), name


def convolved(epsilon, count, delta):
    """The epsilon of the same losses, convolved term by term in long doubles, by bisection."""
    width = conversion._BIN
    once = conversion._loss_masses(epsilon, width, math.ceil(epsilon / width)).astype(np.longdouble)
    masses = functools.reduce(np.convolve, [once] * count)
    losses, low, high = width * np.arange(len(masses)) - width * (len(masses) // 2), 0.0, epsilon * count
    for _ in range(50):
        middle = (low + high) / 2
        above = losses > middle
        within = (masses[above] * -np.expm1(middle - losses[above])).sum() <= delta
        low, high = (low, middle) if within else (middle, high)
    return high


@pytest.mark.parametrize(
    ("epsilon", "count", "delta"), [(0.37, 9, 1e-6), (4.0, 1, 1e-6), (4.0, 20, 1e-6), (6.0, 20, 1e-9), (20.0, 8, 1e-9)]
)
def test_transforms_never_give_less_than_exact_sums(epsilon, count, delta, monkeypatch):
    monkeypatch.setattr(conversion, "_BIN", 0.05)
    exact = convolved(epsilon, count, delta)
    assert exact <= bounded_range_epsilon([PureDraws(epsilon, count)], delta) <= exact * (1 + 1e-4)


def test_a_large_delta_needs_no_epsilon_and_a_tiny_one_gives_the_sum():
    assert bounded_range_epsilon([PureDraws(0.1, 1)], 0.9999) == bounded_range_epsilon([PureDraws(0, 3)], 0.1) == 0
    assert bounded_range_epsilon([PureDraws(4.0, 60)], 1e-15) == pytest.approx(240)


@examples(30)
@given(st.floats(0.05, 6), st.integers(1, 60), st.sampled_from([1e-3, 1e-6, 1e-9]))
def test_conversions_are_ordered_and_grow(epsilon, count, delta):
    draws = PureDraws(epsilon, count)
    pld = bounded_range_epsilon([draws], delta)
    assert pld <= epsilon * count * (1 + 1e-5)
    assert pld <= bounded_range_epsilon([PureDraws(epsilon, count + 1)], delta) * (1 + 1e-6)
    assert pld >= bounded_range_epsilon([draws], delta * 10) * (1 - 1e-6)


@examples(20)
@given(st.floats(0.1, 3), st.integers(1, 20), st.integers(1, 20))
def test_draws_in_parts_compose_to_the_whole(epsilon, a, b):
    whole = bounded_range_epsilon([PureDraws(epsilon, a + b)], 1e-6)
    assert bounded_range_epsilon([PureDraws(epsilon, a), PureDraws(epsilon, b)], 1e-6) == pytest.approx(whole, rel=1e-6)
    assert bounded_range_epsilon([], 1e-6) == 0


@given(st.floats(1e-4, 1e4), st.sampled_from([1e-2, 1e-6, 1e-12]))
def test_zcdp_is_as_good_as_the_library_and_holds_for_gaussians(rho, delta):
    from dptext_etl.accounting.conversion import smallest_epsilon

    ours = zcdp_epsilon(rho, delta)
    accountant = dp_accounting.rdp.RdpAccountant()
    accountant.compose(dp_accounting.ZCDpEvent(rho))
    assert ours <= accountant.get_epsilon(delta) * (1 + 1e-6)
    assert ours >= smallest_epsilon(math.sqrt(2 * rho), delta), "a Gaussian of this rho needs that much"
    assert zcdp_epsilon(0, delta) == 0


def words(count, epsilon=2.0):
    return Spend(
        GuaranteeClass.COND_PURE,
        eps_pure=micro(count * epsilon),
        eps_tight=micro(count * epsilon * 0.9),
        eps_approx=micro(count * epsilon),
        rho=micro(count * epsilon**2 / 8),
    )


def gaussian(epsilon=500.0, delta=1e-5, mu=27.6733118):
    return Spend(
        GuaranteeClass.APPROX_LDP,
        eps_approx=micro(epsilon),
        delta=fine(delta),
        rho=micro(mu * mu / 2),
        mu2=micro(mu * mu),
    )


def by_rule(found):
    return {bound.rule: bound for bound in found}


def test_pure_releases_of_one_subject():
    found = by_rule(joint([words(10)] * 2, 1e-6, draws=[PureDraws(2.0, 20)]))
    assert set(found) == {"pure", "tight", "approx", "zcdp", "pld"}
    assert found["pld"].epsilon == pytest.approx(30.53e6, rel=1e-3)
    assert least(found.values()) == found["pld"]
    assert least(found.values()).delta == 1
    few = joint([words(1)], 1e-6, draws=[PureDraws(2.0, 1)])
    assert least(few).rule == "tight"


def test_gaussian_releases_compose_jointly():
    found = by_rule(joint([gaussian()] * 10, 1e-5))
    assert found["gaussian"].epsilon == pytest.approx(4201.3e6, rel=1e-4)
    assert "approx" not in found, "ten deltas are more than the one that was fixed"
    assert least(found.values()).rule == "gaussian"
    assert by_rule(joint([gaussian()], 1e-5))["approx"].epsilon == 500_000_000


def test_mixtures_take_the_better_of_both_rules():
    found = by_rule(joint([gaussian(), words(10)], 1e-5))
    assert found["pure+gaussian"].epsilon == pytest.approx(518e6, rel=1e-5)
    assert set(found) == {"approx", "zcdp", "pure+gaussian"}
    assert least(found.values()) == found["pure+gaussian"]
    unknown = joint([gaussian(), words(10), Spend(GuaranteeClass.NONE)], 1e-5)
    assert least(unknown) == Bound(math.inf, 0, "none")


@given(st.integers(1, 30))
def test_composing_n_times_equals_count_n(count):
    together = joint([words(3)] * count, 1e-6)
    at_once = joint([compose([words(3)] * count)], 1e-6)
    assert together == at_once


@pytest.mark.parametrize("delta", [0, 1, -1e-3, math.nan])
def test_a_delta_outside_its_range_is_refused(delta):
    for convert in (lambda: zcdp_epsilon(1, delta), lambda: joint([words(1)], delta)):
        with pytest.raises(PolicyError, match="delta is"):
            convert()


KNOWN_MU = {
    1: 0.268051,
    10: 2.000446,
    100: 10.563019,
    250: 18.538360,
    500: 27.6733118,
    625: 31.373067,
    1000: 40.680531,
    1500: 50.690631,
    1875: 57.136396,
    2500: 66.587969,
}


@pytest.mark.parametrize(("epsilon", "mu"), KNOWN_MU.items())
def test_known_answers_at_delta_1e_5(epsilon, mu):
    assert largest_mu(epsilon, 1e-5) == pytest.approx(mu, abs=6e-7)
    assert smallest_epsilon(mu, 1e-5) == pytest.approx(epsilon, rel=1e-6)


def test_known_answers_of_sequence_latents():
    sigma = 0.1 * 2 * math.sqrt(20 * 768) / largest_mu(500, 1e-5)
    assert sigma == pytest.approx(0.8957039, abs=1e-7)
    assert 2 * 0.1 * math.sqrt(20 * 182) / largest_mu(500, 1e-5) == pytest.approx(0.4360332, abs=1e-7)
    assert 10 / largest_mu(250, 1e-5) == pytest.approx(0.539422, abs=1e-6)
    ten_records = smallest_epsilon(largest_mu(500, 1e-5) * math.sqrt(10), 1e-5)
    assert ten_records == pytest.approx(4201.3, abs=0.05)


@pytest.mark.parametrize(("claimed", "true"), [(1, 0.75), (10, 10.39), (100, 300.14), (250, 1550.48), (500, 5764.63)])
def test_the_classical_formula_fails_above_one(claimed, true):
    classical = math.sqrt(2 * math.log(1.25 / 1e-5)) / claimed  # sigma for sensitivity 1
    assert smallest_epsilon(1 / classical, 1e-5) == pytest.approx(true, rel=3e-3)


@given(st.floats(0.01, 5000), st.sampled_from([1e-12, 1e-7, 1e-5, 0.1]))
def test_the_inverses_stay_on_the_safe_side_and_are_sharp(epsilon, delta):
    mu = largest_mu(epsilon, delta)
    assert log_delta(epsilon, mu) <= math.log(delta) < log_delta(epsilon, mu * (1 + 1e-6))
    again = smallest_epsilon(mu, delta)
    assert again == pytest.approx(epsilon, rel=1e-6)
    assert log_delta(again, mu) <= math.log(delta)


@given(st.floats(0.05, 50), st.floats(0.05, 20))
def test_the_profile_is_the_integral_of_its_definition(epsilon, mu):
    """Delta is the mass of the worse Gaussian less e^epsilon times the other's, where the loss exceeds epsilon."""
    from scipy.integrate import quad

    edge = epsilon / mu + mu / 2  # outcomes above it lose more than epsilon
    density = lambda z: math.exp(-((z - mu) ** 2) / 2) - math.exp(epsilon - z * z / 2)
    mass, error = quad(density, edge, max(edge, mu) + 12, epsabs=1e-14, limit=200)
    assert math.exp(log_delta(epsilon, mu)) == pytest.approx(
        mass / math.sqrt(2 * math.pi), rel=1e-5, abs=10 * error + 1e-13
    )


@pytest.mark.parametrize("epsilon", [0.1, 1, 10, 100, 500, 2500])
def test_it_agrees_with_dp_accounting(epsilon):
    library = pytest.importorskip("dp_accounting.gaussian_mechanism", reason="dp-accounting is not installed")
    assert 1 / largest_mu(epsilon, 1e-5) == pytest.approx(library.get_sigma_gaussian(epsilon, 1e-5), rel=1e-9)


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


@given(st.floats(0, 1e6))
def test_printed_odds_are_a_bound(epsilon):
    assert epsilon <= log10_odds(epsilon * MICRO) * math.log(10) * (1 + 1e-12) <= epsilon + 0.0024


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
