"""Uniforms for continuous noise and choices among m ids: exact values from the stream's words.

Specification: docs/spec/stream.md#uniform-real.
"""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl import _kernel
from dptext_etl.errors import PolicyError

from ..examples import examples

VECTOR = 5
KEYS = [bytes([i]) * 32 for i in range(1, 4)]


def numpy_of(column):
    return pa.array(column).to_numpy()


def uniforms(records, positions, width, first, count, threads=1, keys=KEYS):
    record_keys = pa.array(keys, pa.binary(32))
    draws = pa.array(records, pa.uint32()), pa.array(positions, pa.uint64())
    flat = _kernel.uniforms(record_keys, *draws, VECTOR, width, first, count, threads)
    return numpy_of(flat).reshape(len(records), count)


def nearest_float(fraction):
    """Rounded to the nearest float64, ties to even: Python's own division of integers is correctly rounded."""
    return fraction.numerator / fraction.denominator


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 10**6)), min_size=1, max_size=5, unique=True),
    st.integers(0, 9),
    st.integers(1, 6),
)
@examples(100)
def test_every_number_is_its_two_words(draws, first, count):
    records, positions = zip(*draws, strict=True)
    width = first + 2 * count + 3
    got = uniforms(records, positions, width, first, count)
    for row, record, position in zip(got, records, positions, strict=True):
        words = _kernel.stream_words(KEYS[record], VECTOR, 0, position * width + first, 2 * count)
        for value, high, low in zip(row, words[::2], words[1::2], strict=True):
            exact = nearest_float(Fraction(high * 2**64 + (low | 1), 2**128))
            assert value == (-exact if low & 1 else exact)


def test_threads_and_batches_change_nothing():
    records, positions = [0, 1, 2] * 2000, list(range(6000))
    whole = uniforms(records, positions, 64, 8, 20, threads=2)
    np.testing.assert_array_equal(whole, uniforms(records, positions, 64, 8, 20))
    np.testing.assert_array_equal(whole[17:19], uniforms(records[17:19], positions[17:19], 64, 8, 20))


def test_numbers_outside_the_slot_are_refused():
    with pytest.raises(PolicyError, match="in its slot"):
        uniforms([0], [0], 8, 4, 3)


@pytest.mark.parametrize("bound", [1, 2, 3, 20_000, 2**32 - 1, 2**63 + 1])
@pytest.mark.parametrize("width", [1, 2])
def test_choices_are_integers_below_from_slot_word_0(bound, width):
    records, positions = [0, 1, 2] * 10, [7 * i for i in range(30)]
    draws = pa.array(records, pa.uint32()), pa.array(positions, pa.uint64())
    got = numpy_of(_kernel.uniform_choices(pa.array(KEYS, pa.binary(32)), *draws, 1, width, bound))
    expected = [_kernel.below(KEYS[r], 1, p, bound, width) for r, p in zip(records, positions, strict=True)]
    assert got.tolist() == expected


@pytest.mark.parametrize("bound", [1, 2, 1000, 2**63 + 1])
def test_a_purpose_without_slots_takes_every_word_from_the_overflow(bound):
    draws = pa.array([1] * 50, pa.uint32()), pa.array(range(50), pa.uint64())
    got = numpy_of(_kernel.uniform_choices(pa.array(KEYS, pa.binary(32)), *draws, 3, 0, bound))
    for position, value in enumerate(got.tolist()):
        words = _kernel.stream_words(KEYS[1], 3 | 1 << 31, position, 0, 64)
        assert value == next(word for word in words if word < 2**64 // bound * bound) % bound
