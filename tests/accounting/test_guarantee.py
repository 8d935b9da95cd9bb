"""Amounts round up, composition never loses anything."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl.guarantee import MICRO, Disclosure, GuaranteeClass, Spend, micro, powers_of_ten


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
