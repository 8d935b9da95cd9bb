"""Draws from scores: weights in their band, draws from the stream's words, on a host and on a device.

Specification: docs/spec/privacy.md#e1, docs/spec/privacy.md#s1, docs/spec/privacy.md#s3.

`oracle_*` draws from a list of weights by docs/spec/stream.md#draw, only on words of the stream.
"""

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl import _kernel
from dptext_etl.errors import InputError, PolicyError
from dptext_etl.sampling import (
    TOKEN,
    choose,
    choose_uniform,
    epsilon_implemented,
    integer_weights,
    slot_width,
    smallest_weight,
    weight_bits,
    weights,
)
from tests.score_oracle import (
    KEYS,
    ROBERTA,
    epsilon_star,
    formula_scores,
    odd_scores,
    oracle_below,
    oracle_draws,
    oracle_overflow,
    slots_of,
    some_slots,
)

from ..examples import examples

# Weights


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0, 20.0, 300.0])
@pytest.mark.parametrize("m", [2, 3, 4, 5])
def test_e1_every_row_stays_in_the_band_whatever_the_scores(m, epsilon):
    low, high = -3.0, 5.0
    rows = np.array(list(itertools.product([low, 1.0, high, math.nan, math.inf, -math.inf], repeat=m)))
    made = weights(rows, epsilon, low, high)
    np.testing.assert_array_equal(made, integer_weights(rows, epsilon, low, high))
    assert made.min() >= smallest_weight(epsilon, m) >= 1
    assert (made.max(axis=1) == 2 ** weight_bits(m)).all()
    logs = np.log(made.astype(np.float64)) - np.log(made.sum(axis=-1, keepdims=True, dtype=np.float64))
    worst = float((logs.max(axis=0) - logs.min(axis=0)).max())
    assert worst <= epsilon_implemented(epsilon, m) + 1e-12
    assert epsilon_implemented(epsilon, m) <= epsilon_star(epsilon, m) + 1e-12 <= epsilon + 2e-12
    assert worst == pytest.approx(epsilon_implemented(epsilon, m), abs=1e-12)


@given(
    st.integers(1, 4),
    st.integers(2, 70),
    st.floats(1e-3, 500),
    st.tuples(st.floats(-50, 50), st.floats(1e-3, 100)),
    st.data(),
)
@examples(100)
def test_weights_are_those_of_the_numpy_oracle_bit_for_bit(n, m, epsilon, range_, data):
    low, high = range_[0], range_[0] + range_[1]
    numbers = (
        st.floats(low - 5, high + 5) | st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([low, high])
    )
    rows = np.array(data.draw(st.lists(numbers, min_size=n * m, max_size=n * m))).reshape(n, m)
    with np.errstate(over="ignore"):
        narrow = rows.astype(np.float32)
    for given_rows in (rows, narrow):
        expected = integer_weights(given_rows, epsilon, low, high)
        np.testing.assert_array_equal(weights(given_rows, epsilon, low, high), expected)
        assert int(expected.min()) >= smallest_weight(epsilon, m)


@pytest.mark.parametrize("epsilon", [0.01, 10.0, 63.0, 64.0, 100.0, 250.0])
@pytest.mark.parametrize("m", [255, 256, 257, 4096, 4097, 50_265])
def test_weights_of_wide_rows_are_those_of_the_numpy_oracle(m, epsilon):
    for dtype in (np.float32, np.float64):
        scores = odd_scores(3, m, dtype)
        scores[1] = np.minimum(scores[1], 2.0)  # no score reaches high
        scores[2] = np.nan
        expected = integer_weights(scores, epsilon, **ROBERTA)
        np.testing.assert_array_equal(weights(scores, epsilon, **ROBERTA), expected)
        assert (expected[2] == 2 ** weight_bits(m)).all()


def test_weights_of_the_golden_vector():
    u = np.array([[-10, 0, 5, 16.4, math.nan]])
    expected = [474140868662, 1079021751925, 3885217941667, 70368744177664, 474140868662]
    made = weights(u, 10.0, **ROBERTA)[0]
    assert np.abs(made.astype(np.int64) - np.array(expected)).max() <= 1


# Draws on a host


@pytest.mark.parametrize("m", [2, 5, 255, 256, 257, 4095, 4096, 4097, 4352, 4353, 9000])
@pytest.mark.parametrize("epsilon", [1.0, 20.0, 100.0])
def test_draws_are_the_oracles(m, epsilon):
    n = 12
    scores, slots = odd_scores(n, m), some_slots(n, first=m)
    expected = oracle_draws(integer_weights(scores, epsilon, **ROBERTA), slots)
    assert choose(scores, slots, epsilon=epsilon, **ROBERTA).tolist() == expected
    assert choose(scores.astype(np.float64), slots, epsilon=epsilon, **ROBERTA).tolist() == expected
    other = choose(scores, slots, epsilon=epsilon, purpose=257, **ROBERTA).tolist()
    assert other == oracle_draws(integer_weights(scores, epsilon, **ROBERTA), slots, 257)


@pytest.mark.parametrize(
    ("m", "epsilon", "expected"),
    [
        (3, 2.0, [0, 0, 0, 0, 2, 0, 0, 0]),
        (4096, 40.0, [797, 3854, 2729, 2345, 3948, 1168, 188, 545]),
        (4097, 40.0, [935, 3292, 3629, 2391, 2642, 2867, 3146, 157]),
        (50_265, 25.0, [42333, 46685, 48662, 34970, 33172, 44948, 15251, 31104]),
        (50_265, 250.0, [48385, 1444, 10623, 24435, 15152, 49829, 27437, 14103]),
    ],
)
def test_golden_draws_stay_frozen_on_every_machine(m, epsilon, expected):
    drawn = choose(formula_scores(8, m), slots_of([0] * 8, range(8)), epsilon=epsilon, **ROBERTA)
    assert drawn.tolist() == expected
    assert drawn.dtype == np.uint32


def test_threads_batches_and_order_change_nothing(monkeypatch):
    scores, slots = odd_scores(200, 3000), some_slots(200)
    monkeypatch.setenv("DPTEXT_THREADS", "2")
    whole = choose(scores, slots, epsilon=30.0, **ROBERTA)
    monkeypatch.setenv("DPTEXT_THREADS", "1")
    np.testing.assert_array_equal(whole, choose(scores, slots, epsilon=30.0, **ROBERTA))
    some = np.random.default_rng(1).permutation(200)[:40]
    np.testing.assert_array_equal(whole[some], choose(scores[some], slots.take(some), epsilon=30.0, **ROBERTA))
    np.testing.assert_array_equal(whole[:1], choose(scores[:1], slots.take(slice(1)), epsilon=30.0, **ROBERTA))
    assert len(choose(scores[:0], slots.take(slice(0)), epsilon=30.0, **ROBERTA)) == 0


@pytest.mark.parametrize("m", [2, 3, 4096, 4097, 50_265])
def test_a_uniform_choice_is_one_integer_from_slot_word_0(m):
    slots = some_slots(30, first=5)
    drawn = choose_uniform(slots, m)
    places = zip(slots.records, slots.positions, strict=True)
    assert drawn.tolist() == [_kernel.below(KEYS[r], TOKEN, int(p), m, slot_width(m)) for r, p in places]
    assert drawn.dtype == np.uint32


# Integers below totals, for devices


@pytest.mark.parametrize("bound", [1, 2, 3, 2**46 + 1, 2**61 + 1, 2**63 + 1])
@pytest.mark.parametrize("width", [1, 2])
def test_s3_integers_below_totals_are_rejected_as_the_rule_says(bound, width):
    n = 100
    slots = some_slots(n)
    totals = pa.array([bound] * n, pa.uint64())
    drawn = pa.array(_kernel.bounded(*slots.arrays(), TOKEN, width, totals)).to_pylist()
    for got, r, p in zip(drawn, slots.records, slots.positions, strict=True):
        words = _kernel.stream_words(KEYS[r], TOKEN, 0, int(p) * width, width)
        assert got == oracle_below(bound, words[0], oracle_overflow(KEYS[r], TOKEN, int(p)))


@given(st.lists(st.tuples(st.integers(1, 2**64 - 1), st.integers(1, 2**64 - 1)), min_size=1, max_size=20))
@examples(100)
def test_the_second_level_goes_on_where_the_first_left_the_overflow(bounds):
    slots = some_slots(len(bounds), first=100)
    first, second = (pa.array(column, pa.uint64()) for column in zip(*bounds, strict=True))
    ones = pa.array(_kernel.bounded(*slots.arrays(), TOKEN, 2, first)).to_pylist()
    twos = pa.array(_kernel.bounded(*slots.arrays(), TOKEN, 2, second, first)).to_pylist()
    for (a, b), one, two, r, p in zip(bounds, ones, twos, slots.records, slots.positions, strict=True):
        more = oracle_overflow(KEYS[r], TOKEN, int(p))
        words = _kernel.stream_words(KEYS[r], TOKEN, 0, 2 * int(p), 2)
        assert (one, two) == (oracle_below(a, words[0], more), oracle_below(b, words[1], more))


def test_totals_that_cannot_be_are_refused():
    slots = some_slots(2)
    with pytest.raises(Exception, match="weight"):
        _kernel.bounded(*slots.arrays(), TOKEN, 1, pa.array([3, 0], pa.uint64()))
    with pytest.raises(InputError, match="as many totals"):
        _kernel.bounded(*slots.arrays(), TOKEN, 1, pa.array([3], pa.uint64()))
    with pytest.raises(Exception, match="two words"):
        _kernel.bounded(*slots.arrays(), TOKEN, 1, pa.array([3, 3], pa.uint64()), pa.array([3, 3], pa.uint64()))


# What cannot be drawn


def test_slots_and_rows_belong_together():
    scores = np.zeros((3, 10))
    with pytest.raises(InputError, match="its own slot"):
        choose(scores, some_slots(2), epsilon=1.0, low=0.0, high=1.0)
    with pytest.raises(RuntimeError, match="drawn twice"):
        choose(scores, slots_of([0, 1, 0], [4, 4, 4]), epsilon=1.0, low=0.0, high=1.0)
    with pytest.raises(InputError, match="below 3"):
        choose(scores, slots_of([0, 1, 3], [4, 4, 4]), epsilon=1.0, low=0.0, high=1.0)


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (2.0, 1.0), (math.nan, 1.0), (0.0, math.inf), (-1e308, 1e308)])
def test_ranges_that_are_none_are_refused(low, high):
    with pytest.raises(PolicyError, match="low"):
        choose(np.zeros((1, 4)), some_slots(1), epsilon=1.0, low=low, high=high)


# An epsilon of each draw


@pytest.mark.parametrize("m", [6, 5000])
def test_rows_with_epsilons_of_their_own_draw_as_each_would_alone(m):
    given = np.random.default_rng(5).normal(size=(7, m))
    epsilons, slots = np.array([0.5, 40.0, 1e-6, 250.0, 3.0, 3.0, 12.0]), some_slots(7)
    law = {"low": -2.0, "high": 2.0}
    together = choose(given, slots, epsilon=epsilons, **law)
    alone = [
        choose(given[at : at + 1], slots.take(slice(at, at + 1)), epsilon=epsilon, **law)
        for at, epsilon in enumerate(epsilons.tolist())
    ]
    assert together.tolist() == [int(chosen[0]) for chosen in alone]
    with pytest.raises(InputError, match="its own epsilon"):
        choose(given, slots, epsilon=epsilons[:6], **law)
    with pytest.raises(PolicyError, match="above 0"):
        choose(given, slots, epsilon=np.zeros(7), **law)
