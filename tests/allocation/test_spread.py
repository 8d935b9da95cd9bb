"""A budget is divided in whole millionths: in inverse proportion to scores, within bounds, never more than there is."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl.allocation import spread

MILLION = 1_000_000


@given(
    st.lists(st.one_of(st.floats(0, 1), st.just(math.nan), st.floats()), min_size=1, max_size=12),
    st.integers(12, 50 * MILLION),
    st.data(),
)
def test_parts_lie_within_bounds_and_never_exceed_the_budget(scores, total, data):
    lowest = data.draw(st.integers(0, total // len(scores)))
    highest = data.draw(st.integers(lowest, 2 * total))
    parts = spread(scores, total, lowest, highest)
    assert len(parts) == len(scores)
    assert all(lowest <= part <= highest for part in parts)
    assert sum(parts) <= total


def test_the_known_answer_of_the_paper():
    assert spread([0.1, 0.2, 0.4], 7 * MILLION, 1, 7 * MILLION) == [4 * MILLION, 2 * MILLION, MILLION]


def test_where_a_score_is_zero_its_floor_counts_and_others_keep_the_least_part():
    parts = spread([0.0, 1.0, 1.0], 10 * MILLION, MILLION, 10 * MILLION)
    assert parts[1:] == [MILLION, MILLION]
    assert 8 * MILLION - 10 < parts[0] <= 8 * MILLION


def test_what_exceeds_the_budget_after_the_bounds_is_taken_from_the_excess_over_the_least_part():
    """Two words are raised to the least part; the excess of the others shrinks in proportion."""
    parts = spread([0.01, 0.02, 1.0, 1.0], 10 * MILLION, 2 * MILLION, 10 * MILLION)
    assert parts[2:] == [2 * MILLION, 2 * MILLION]
    first, second = (part - 2 * MILLION for part in parts[:2])
    assert 2 * MILLION - 3 <= first + second <= 2 * MILLION
    inverse = [100, 50, 1, 1]
    shares = [10 * MILLION * each / sum(inverse) - 2 * MILLION for each in inverse[:2]]
    assert first / second == pytest.approx(shares[0] / shares[1], rel=1e-5)


def test_bounds_that_do_not_fit_are_refused():
    for arguments in ([[1.0] * 3, 5, 2, 9], [[1.0], 5, 3, 2]):
        with pytest.raises(ValueError, match="least parts"):
            spread(*arguments)
