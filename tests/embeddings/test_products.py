import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dptext_etl.artifacts import Artifact
from dptext_etl.embeddings import WordVectors


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
    assert vectors.products(everything, vectors).tolist() == [[dot(x, y) for y in rows] for x in rows]
    assert vectors.squared_distances([1], everything).tolist() == [[squared(rows[1], y) for y in rows]]
    assert vectors.norms.tolist() == [dot(x, x) for x in rows]


@pytest.mark.parametrize("d", [64, 256, 257, 1024])
def test_products_stay_exact_at_the_extremes(d):
    vectors, rows = grid_of(np.array([[127] * d, [-128] * d, [-127] * d]), np.int8)
    assert vectors.squared_distances([0], [1, 2]).tolist() == [[squared(rows[0], y) for y in rows[1:]]]
    assert vectors.squared_distances(slice(None), slice(None)).tolist()[2][2] == 0


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
    (found,) = vectors.closeness_within(np.arange(20)[None], metric)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_array_equal(found, found.T)
    (keys,) = vectors.rank_keys([0], slice(None), metric)
    assert np.argsort(keys, kind="stable").tolist() == np.argsort(-found[0], kind="stable").tolist()
