"""Conversions to (epsilon, delta): the answers of the specification, exact small cases, and never below the truth."""

import functools
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl.accounting import (
    Bound,
    PureDraws,
    bounded_range_epsilon,
    compose,
    conversion,
    joint,
    least,
    zcdp_epsilon,
)
from dptext_etl.errors import PolicyError
from dptext_etl.guarantee import GuaranteeClass, Spend, fine, micro
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
