"""Draws by distance in the kernel: weights bit for bit as in `sampling`, draws as from the explicit weights."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl import _kernel
from dptext_etl.errors import ArtifactError, InputError, PolicyError
from dptext_etl.sampling import integer_weights, smallest_weight

from ..examples import examples

TOKEN = 1


def keys(n, salt=0):
    rows = np.random.default_rng(salt).bytes(32 * n)
    return pa.array([rows[32 * i : 32 * i + 32] for i in range(n)], pa.binary(32))


def points(rows, columns, d, size, seed):
    random = np.random.default_rng(seed)
    words = random.integers(-size, size + 1, size=(columns, d))
    chosen = random.integers(0, columns, size=rows)
    return words[chosen], words


def case(rows, columns, d=6, size=100, seed=0, dtype=np.float64):
    x, y = points(rows, columns, d, size, seed)
    products = (x @ y.T).astype(dtype)
    norms = [(v * v).sum(axis=1).astype(np.float64) for v in (x, y)]
    squared = norms[0][:, None] + norms[1] - 2.0 * products.astype(np.float64)
    return products, norms[0], norms[1], squared


def law_of(column_norms, scale, epsilon, diameter):
    least = smallest_weight(epsilon, len(column_norms))
    return _kernel.NearLaw(pa.array(column_norms), scale, epsilon, diameter, least)


def numpy_of(column):
    return pa.array(column).to_numpy()


@given(
    st.integers(1, 4),
    st.integers(2, 600),
    st.floats(1e-6, 1e3),
    st.floats(1e-3, 1e4),
    st.floats(0.3, 1.5),
    st.sampled_from([np.float32, np.float64]),
    st.integers(1, 200),
    st.integers(0, 2**32),
)
@examples(150)
def test_weights_are_those_of_the_sampling_module(rows, columns, scale, epsilon, share, dtype, size, seed):
    products, row_norms, column_norms, squared = case(rows, columns, 5, size, seed, dtype)
    diameter = share * float(np.sqrt(squared.max()) * scale) or 1.0  # smaller than some distances too: they are clipped
    law = law_of(column_norms, scale, epsilon, diameter)
    got = numpy_of(law.weights(pa.array(products.ravel()), pa.array(row_norms), 2)).reshape(rows, columns)
    expected = integer_weights(-(np.sqrt(squared) * scale), epsilon, low=-diameter, high=0.0)
    assert got.dtype == np.uint64
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("columns", [2, 255, 256, 257, 4095, 4096, 4097, 20_000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weights_at_the_sizes_where_something_changes(columns, dtype):
    products, row_norms, column_norms, squared = case(3, columns, dtype=dtype)
    diameter = float(np.sqrt(squared.max())) * 0.01
    law = law_of(column_norms, 0.01, 40.0, diameter)
    assert law.width == (2 if columns > 4096 else 1)
    assert len(law) == columns
    got = numpy_of(law.weights(pa.array(products.ravel()), pa.array(row_norms))).reshape(3, columns)
    np.testing.assert_array_equal(got, integer_weights(-(np.sqrt(squared) * 0.01), 40.0, low=-diameter, high=0.0))


@pytest.mark.parametrize("columns", [2, 300, 4096, 4097, 9_000])
def test_every_occurrence_draws_as_from_explicit_weights(columns):
    products, row_norms, column_norms, squared = case(5, columns)
    diameter = float(np.sqrt(squared.max())) * 0.02
    law = law_of(column_norms, 0.02, 12.0, diameter)
    weights = integer_weights(-(np.sqrt(squared) * 0.02), 12.0, low=-diameter, high=0.0)
    random = np.random.default_rng(1)
    n, record_keys = 60, keys(7)
    rows = random.integers(0, 5, n).astype(np.uint32)
    records = random.integers(0, 7, n).astype(np.uint32)
    positions = np.arange(n, dtype=np.uint64) * 3
    arguments = [pa.array(v) for v in (products.ravel(), row_norms, rows)]
    occurrences = [record_keys, pa.array(records), pa.array(positions)]
    drawn = numpy_of(law.draw(*arguments, *occurrences, TOKEN, 1))
    assert drawn.dtype == np.uint32
    for i in range(n):
        key = record_keys[int(records[i])].as_py()
        explicit = weights[rows[i]].tolist()
        assert drawn[i] == _kernel.draw(key, TOKEN, int(positions[i]), explicit, law.width)
    np.testing.assert_array_equal(drawn, numpy_of(law.draw(*arguments, *occurrences, TOKEN, 2)))
    order = random.permutation(n)
    shuffled = law.draw(
        *arguments[:2], pa.array(rows[order]), record_keys, pa.array(records[order]), pa.array(positions[order])
    )
    np.testing.assert_array_equal(numpy_of(shuffled), drawn[order])
    some = np.sort(order[:25])
    for numbers in (some[np.argsort(rows[some], kind="stable")], order[:25]):
        chosen = law.draw(*arguments[:2], pa.array(rows[numbers]), *occurrences, some=pa.array(numbers))
        np.testing.assert_array_equal(numpy_of(chosen), drawn[numbers])
    for wrong in (-1, n):
        with pytest.raises(InputError, match=f"below {n}, and not negative"):
            law.draw(*arguments[:2], pa.array(rows[:1]), *occurrences, some=pa.array([wrong], pa.int64()))


def test_what_does_not_fit_is_refused_by_counts_alone():
    products, row_norms, column_norms, _ = case(2, 10)
    law = law_of(column_norms, 1.0, 1.0, 100.0)
    flat, norms, zero = pa.array(products.ravel()), pa.array(row_norms), pa.array([0], pa.uint32())
    place = pa.array([0], pa.uint64())
    with pytest.raises(InputError, match="2 rows of 10 words"):
        law.weights(flat[:-1], norms)
    with pytest.raises(InputError, match="another type"):
        law.weights(flat.cast(pa.int64(), safe=False), norms)
    with pytest.raises(InputError, match="a row is below 2; got 2"):
        law.draw(flat, norms, pa.array([2], pa.uint32()), keys(1), zero, place)
    with pytest.raises(InputError, match="a record is below 1; got 5"):
        law.draw(flat, norms, zero, keys(1), pa.array([5], pa.uint32()), place)
    with pytest.raises(InputError, match="without nulls"):
        law.draw(flat, norms, pa.array([None], pa.uint32()), keys(1), zero, place)
    with pytest.raises(InputError, match="32 bytes"):
        law.draw(flat, norms, zero, pa.array([b"short"], pa.binary(5)), zero, place)
    with pytest.raises(ArtifactError, match="at least 2"):
        _kernel.NearLaw(pa.array([1.0]), 1.0, 1.0, 1.0, 1)
    for scale, epsilon, diameter, least in [(0.0, 1.0, 1.0, 1), (1.0, float("nan"), 1.0, 1), (1.0, 1.0, 1.0, 2**47)]:
        with pytest.raises(PolicyError):
            _kernel.NearLaw(pa.array(column_norms), scale, epsilon, diameter, least)
