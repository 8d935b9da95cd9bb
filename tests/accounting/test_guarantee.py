"""Amounts round up, composition never loses anything."""

import json
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl.guarantee import ADDITIVE, MICRO, Disclosure, GuaranteeClass, Spend, micro, powers_of_ten

amounts = st.one_of(st.integers(0, 10**12), st.just(math.inf))
spends = st.builds(
    Spend,
    guarantee_class=st.sampled_from(list(GuaranteeClass)),
    disclosures=st.frozensets(st.sampled_from(list(Disclosure))),
    n_worst=st.integers(0, 1000),
    diameter=amounts,
    **dict.fromkeys(ADDITIVE, amounts),
)


@given(st.floats(0, 1e9, allow_nan=False))
def test_micro_never_under_reports(amount):
    assert Fraction(micro(amount), MICRO) >= Fraction(repr(amount))
    assert Fraction(micro(amount) - 1, MICRO) < Fraction(repr(amount)) or amount == 0


def test_micro_reads_the_decimal_that_was_written():
    assert micro(0.1) == 100_000
    assert micro(2.0) == 2_000_000
    assert micro(1e-9) == 1
    assert micro(math.inf) == math.inf


@given(spends, spends, spends)
def test_composition_is_associative_and_never_decreases(a, b, c):
    assert (a + b) + c == a + (b + c)
    for name in ADDITIVE:
        assert getattr(a + b, name) >= max(getattr(a, name), getattr(b, name))
    assert (a + b).disclosures >= a.disclosures
    order = list(GuaranteeClass)
    assert order.index((a + b).guarantee_class) == max(order.index(a.guarantee_class), order.index(b.guarantee_class))


@given(spends)
def test_zero_is_neutral_for_amounts(a):
    total = a + Spend.zero()
    assert all(getattr(total, name) == getattr(a, name) for name in ADDITIVE)


@given(spends)
def test_as_dict_is_json_without_infinities(a):
    assert "Infinity" not in json.dumps(a.as_dict())


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
