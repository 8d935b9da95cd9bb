"""Bounds of counts: rigorous against exact arithmetic, and no wider than they need to be."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl.checks.text_counts import EXACT_LIMIT, round_up, threshold, upper_tail

chances = st.lists(st.fractions(0, 1, max_denominator=10**6), max_size=12)


def exact_tail(probabilities):
    """P[X >= t] for every t, in fractions."""
    masses = [Fraction(1)]
    for p in probabilities:
        masses = [
            (masses[t] if t < len(masses) else 0) * (1 - p) + (masses[t - 1] * p if t else 0)
            for t in range(len(masses) + 1)
        ]
    return [sum(masses[t:], Fraction(0)) for t in range(len(masses))]


@given(chances)
def test_the_tail_is_an_upper_bound_and_close(probabilities):
    bounds = upper_tail([round_up(p) for p in probabilities])
    for bound, exact in zip(bounds, exact_tail(probabilities), strict=True):
        assert exact <= Fraction(float(bound)) <= exact * (1 + Fraction(1, 10**12)) + Fraction(1, 10**290)


@given(chances, st.floats(1e-12, 0.4))
def test_a_correct_run_fires_with_at_most_the_declared_probability(probabilities, alarm):
    limit = threshold([round_up(p) for p in probabilities], [1] * len(probabilities), alarm)
    tail = [*exact_tail(probabilities), Fraction(0)]
    assert tail[limit] <= Fraction(alarm)
    assert limit == 1 or tail[limit - 1] > Fraction(alarm) * (1 - Fraction(1, 10**9))


@given(chances, st.integers(0, 14))
def test_a_part_of_the_tail_is_that_part_of_the_whole(probabilities, most):
    rounded = [round_up(p) for p in probabilities]
    assert upper_tail(rounded, most).tolist() == upper_tail(rounded)[: most + 1].tolist()


@pytest.mark.parametrize(("n", "p"), [(64, 0.9), (65, 0.9), (300, 0.01), (300, 0.1), (300, 0.5), (300, 1.0)])
def test_thresholds_on_either_side_of_where_they_are_looked_for_first(n, p):
    allowed = np.flatnonzero(upper_tail([p] * n) <= 1e-9)
    assert threshold([p], [n], 1e-9) == (allowed[0] if len(allowed) else n + 1)


@given(st.fractions(0, 1, max_denominator=10**9))
def test_probabilities_are_rounded_up(probability):
    assert Fraction(round_up(probability)) >= min(probability, 1)
    assert round_up(probability) <= 1.0


def test_certain_impossible_and_grouped_chances():
    assert (threshold([1.0], [50], 1e-9), threshold([0.99], [50], 1e-9)) == (51, 51)
    assert threshold([0.5], [50], 1e-9) <= 50
    assert (threshold([], [], 1e-9), threshold([1e-30], [10**9], 1e-9)) == (1, 1)
    groups, counts = np.array([0.1, 0.4, 0.01]), np.array([300, 20, 1000])
    assert threshold(groups, counts, 1e-9) == threshold(np.repeat(groups, counts), np.ones(1_320, np.int64), 1e-9)
    large = threshold(groups, counts * 10**6, 1e-9)
    assert 48_000_000 < large < 48_060_000


def test_large_counts_take_the_chernoff_bound():
    scipy_stats = pytest.importorskip("scipy.stats")
    n = EXACT_LIMIT + 1000
    for p in (1e-7, 0.003, 0.2, 0.9):
        limit = threshold([p], [n], 1e-9)
        assert scipy_stats.binom.sf(limit - 1, n, p) <= 1e-9
        least = int(scipy_stats.binom.isf(1e-9, n, p))
        assert least <= limit <= least + 8 + 0.3 * np.sqrt(n * p * (1 - p))


@given(st.lists(st.tuples(st.floats(-40, 0), st.integers(1, 10**7)), min_size=1, max_size=20), st.floats(1e-12, 0.4))
def test_the_chernoff_bound_is_the_least_of_its_whole_grid(groups, alarm):
    """Around the least of a coarse grid is the least of all, except for the last bit of a bound at a whole number."""
    probabilities, counts = (
        np.exp([exponent for exponent, _ in groups]),
        np.array([EXACT_LIMIT, *(n for _, n in groups)]),
    )
    probabilities = np.array([1e-3, *probabilities])
    slopes = np.geomspace(1e-6, 60.0, 4_000)
    cumulants = counts @ np.log1p(probabilities[:, None] * np.expm1(slopes))
    bounds = (cumulants * (1 + 1e-12) + 1e-12 - np.log(alarm)) / slopes
    least = min(float(bounds.min()), float(counts.sum()))
    assert threshold(probabilities, counts, alarm) in {
        int(np.floor(least * (1 + sign * 1e-10))) + 1 for sign in (-1, 0, 1)
    }
