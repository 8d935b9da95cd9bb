from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dptext_etl.artifacts import Artifact
from dptext_etl.embeddings import WordVectors
from dptext_etl.errors import ArtifactError


def grid_of(array, dtype):
    words = tuple(f"w{row}" for row in range(len(array)))
    vectors = WordVectors(words, np.asarray(array, dtype=dtype), 1.0, Artifact.open(__file__))
    return vectors, [[int(number) for number in row] for row in array]


def dot(x, y):
    return sum(a * b for a, b in zip(x, y, strict=True))


def squared(x, y):
    return sum((a - b) ** 2 for a, b in zip(x, y, strict=True))


def shaped(dtype):
    shape = st.tuples(st.integers(2, 12), st.integers(1, 40))
    full = np.iinfo(dtype)
    return shape.flatmap(
        lambda size: st.one_of(
            hnp.arrays(dtype, size, elements=st.integers(full.min, full.max)),
            hnp.arrays(dtype, size, elements=st.sampled_from([full.min, full.max])),
            hnp.arrays(dtype, size, elements=st.integers(-1, 1)),
        )
    )


@pytest.mark.parametrize("dtype", [np.int8, np.int16])
@given(data=st.data())
def test_products_and_distances_are_the_integers(dtype, data):
    vectors, rows = grid_of(data.draw(shaped(dtype)), dtype)
    everything = slice(None)
    assert vectors.dots(everything, everything).tolist() == [[dot(x, y) for y in rows] for x in rows]
    assert vectors.squared_distances([1], everything).tolist() == [[squared(rows[1], y) for y in rows]]
    assert vectors.norms.tolist() == [dot(x, x) for x in rows]


@pytest.mark.parametrize("d", [64, 256, 257, 1024])
def test_products_stay_exact_at_the_extremes(d):
    vectors, rows = grid_of(np.array([[127] * d, [-128] * d, [-127] * d]), np.int8)
    assert vectors.squared_distances([0], [1, 2]).tolist() == [[squared(rows[0], y) for y in rows[1:]]]
    assert vectors.squared_distances(slice(None), slice(None)).tolist()[2][2] == 0


def brute_force(rows, row, k, metric, among):
    def key(other):
        if metric == "euclidean":
            return squared(rows[row], rows[other]), other
        product, norm = dot(rows[row], rows[other]), dot(rows[other], rows[other])
        return Fraction(-product * abs(product), max(norm, 1)), other

    return sorted((other for other in among if other != row), key=key)[:k]


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("dtype", [np.int8, np.int16])
@given(data=st.data())
def test_nearest_is_brute_force_with_ties_to_the_earlier_word(metric, dtype, data):
    array = data.draw(shaped(dtype))
    vectors, rows = grid_of(np.concatenate([array, array[::2], array]), dtype)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))))
    for among in (None, mask):
        allowed = list(range(len(rows))) if among is None else np.flatnonzero(among).tolist()
        if len(allowed) < 2:
            continue
        k = data.draw(st.integers(1, len(allowed) - 1))
        found = vectors.nearest(slice(None), k, metric, among).tolist()
        assert found == [brute_force(rows, row, k, metric, allowed) for row in range(len(rows))]


def test_parallel_vectors_tie_in_cosine_whatever_their_length():
    base = np.array([7001, -233, 4999])
    vectors, _ = grid_of(np.array([[1, 2, 3], 3 * base, base, 2 * base, 4 * base]), np.int16)
    assert vectors.nearest([0], 4, "cosine").tolist() == [[1, 2, 3, 4]]


def test_nearest_refuses_more_neighbours_than_there_are(small_vectors):
    vectors = WordVectors.load(small_vectors)
    with pytest.raises(ArtifactError, match="neighbors are asked for"):
        vectors.nearest([0], len(vectors))


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_closeness_agrees_with_plain_floats(metric):
    random = np.random.default_rng(3)
    array = random.integers(-99, 100, (20, 7))
    array[4] = 0
    vectors, _ = grid_of(array, np.int8)
    reals = array.astype(float)
    expected = -np.linalg.norm(reals[:, None] - reals, axis=2)
    if metric == "cosine":
        lengths = np.linalg.norm(reals, axis=1)
        expected = reals @ reals.T / np.maximum(np.outer(lengths, lengths), 1)
    found = vectors.closeness(slice(None), slice(None), metric)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_array_equal(found, found.T)
    (keys,) = vectors.rank_keys([0], slice(None), metric)
    assert np.argsort(keys, kind="stable").tolist() == np.argsort(-found[0], kind="stable").tolist()
