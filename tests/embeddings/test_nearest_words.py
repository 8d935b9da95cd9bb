"""The exact search: whole numbers decide, ties fall to the earlier word, batches change nothing; and diameters."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl.artifacts import Artifact
from dptext_etl.embeddings import WordVectors, search
from dptext_etl.embeddings.search import MOST_BITS, NearestWords, finest_bits, largest_squared_distance
from dptext_etl.errors import PolicyError

from ..examples import examples


@pytest.fixture
def words(tmp_path):
    """Word vectors from whole numbers, as a grid of one step."""

    def make(grid):
        grid = np.asarray(grid)
        path = tmp_path / f"grid-{len(list(tmp_path.iterdir()))}.npz"
        np.savez(path, words=np.array([f"w{i}" for i in range(len(grid))]), vectors=grid.astype(np.float32))
        return WordVectors.load(path)

    return make


def by_hand(vectors, point, bits):
    """The first word at the smallest distance, in integers of any size."""
    z = [int(x) for x in point]
    squared = [sum((2**bits * int(y) - x) ** 2 for y, x in zip(word, z, strict=True)) for word in vectors.vectors]
    return squared.index(min(squared))


@pytest.mark.parametrize(("n", "d", "size", "reach"), [(30, 1, 5, 1e3), (200, 3, 30, 1e5), (300, 40, 100, 1e7)])
def test_any_point_has_the_word_that_exact_arithmetic_gives(words, n, d, size, reach):
    random = np.random.default_rng(n)
    vectors = words(random.integers(-size, size + 1, size=(n, d)))
    search = NearestWords(vectors, reach)
    near = vectors.vectors[random.integers(0, n, 60)] + random.normal(size=(60, d)) * size
    far = random.normal(size=(40, d)) * reach / d / 5
    points = search.rounded(np.concatenate([near, far]))
    expected = [by_hand(vectors, point, search.bits) for point in points]
    assert search.nearest(points, "cpu").tolist() == expected


def test_half_way_between_two_words_the_earlier_one_wins(words):
    random = np.random.default_rng(3)
    vectors = words(random.integers(-4, 5, size=(60, 2)))  # many equal words and many equal distances
    search = NearestWords(vectors, 1e4)
    pairs = random.integers(0, 60, size=(400, 2))
    middles = vectors.vectors[pairs].astype(np.float64).sum(axis=1) / 2
    points = search.rounded(middles)
    assert (points == middles * 2.0**search.bits).all()
    found = search.nearest(points, "cpu")
    assert found.tolist() == [by_hand(vectors, point, search.bits) for point in points]
    everywhere = [np.flatnonzero((vectors.vectors == vectors.vectors[word]).all(axis=1))[0] for word in range(60)]
    at_words = search.rounded(vectors.vectors.astype(np.float64))
    assert search.nearest(at_words, "cpu").tolist() == everywhere


def test_batches_change_nothing(words):
    random = np.random.default_rng(5)
    vectors = words(random.integers(-120, 121, size=(500, 60)))
    search = NearestWords(vectors, 1e6)
    points = search.rounded(random.normal(size=(700, 60)) * 300)
    whole = search.nearest(points, "cpu")
    for size in (1, 7, 64, 699):
        parts = [search.nearest(points[start : start + size], "cpu") for start in range(0, len(points), size)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
    turned = search.nearest(np.asfortranarray(points)[::-1], "cpu")[::-1]
    np.testing.assert_array_equal(turned, whole)


def test_a_guess_that_is_too_coarse_is_settled_exactly(words):
    """Float32 cannot tell these words apart; whole numbers can."""
    grid = np.zeros((40, 30), np.int64)
    grid[:] = 2000
    grid[np.arange(40), np.arange(40) % 30] += np.arange(40) % 3 - 1
    vectors = words(grid)
    search = NearestWords(vectors, 1e7)
    random = np.random.default_rng(0)
    points = search.rounded(2e4 + random.normal(size=(200, 30)))
    scores = points.astype(np.float32) @ vectors.vectors.T.astype(np.float32)
    coarse = (scores - 2.0**search.bits * vectors.norms.astype(np.float32) / 2).argmax(axis=1)
    expected = np.array([by_hand(vectors, point, search.bits) for point in points])
    assert (coarse != expected).any()
    np.testing.assert_array_equal(search.nearest(points, "cpu"), expected)


@given(st.integers(1, 300), st.integers(1, 32767), st.floats(1, 2**50))
@examples(200)
def test_bits_keep_every_sum_below_2_to_the_53(d, size, reach):
    class Corner:
        vectors = np.full((1, d), size, np.int16)
        norms = (vectors.astype(np.int64) ** 2).sum(axis=1)

    bits = finest_bits(Corner, reach)
    longest = math.sqrt(d) * size

    def largest(at):  # |key| and every partial sum of it, for a rounded point as far out as can be
        point = 2**at * reach + math.sqrt(d) / 2
        return 2**at * longest**2 + 2 * longest * point

    assert bits <= MOST_BITS
    if bits >= 0:
        assert largest(bits) < 2**53
    if bits < MOST_BITS:
        assert largest(bits + 1) > 2**53 * 0.2  # no bit is given away except for whole numbers in the bound


def test_the_keys_are_whole_numbers_at_the_very_limit(words):
    random = np.random.default_rng(11)
    vectors = words(random.choice([-32767, 32767], size=(8, 300)))
    reach = next(2.0**k for k in range(60, 0, -1) if finest_bits(vectors, 2.0**k) >= 0)
    search = NearestWords(vectors, reach)
    for aimed in vectors.vectors.astype(np.float64):
        point = np.trunc(aimed / np.linalg.norm(aimed) * reach * 2.0**search.bits)
        keys = search.exact_keys(point, np.arange(8))
        exact = [
            2**search.bits * sum(int(y) ** 2 for y in word)
            - 2 * sum(int(y) * int(x) for y, x in zip(word, point, strict=True))
            for word in vectors.vectors
        ]
        assert [int(key) for key in keys] == exact
        assert max(abs(key) for key in exact) > 2**50
        assert search.nearest(point[None], "cpu")[0] == by_hand(vectors, point, search.bits)


def test_points_too_far_for_exact_numbers_are_refused(words):
    with pytest.raises(PolicyError, match="larger epsilon"):
        NearestWords(words(np.full((3, 3), 1000)), 1e15)


def test_torch_finds_the_same(words):
    pytest.importorskip("torch")
    random = np.random.default_rng(7)
    vectors = words(random.integers(-30, 31, size=(900, 12)))
    search = NearestWords(vectors, 1e6)
    points = search.rounded(random.normal(size=(400, 12)) * 40)
    np.testing.assert_array_equal(search.by_torch(points, "cpu"), search.nearest(points, "cpu"))
    middles = search.rounded(vectors.vectors[random.integers(0, 900, size=(300, 2))].sum(axis=1) / 2.0)
    np.testing.assert_array_equal(search.by_torch(middles, "cpu"), search.nearest(middles, "cpu"))


def vectors(grid, tmp_path=None):
    words = tuple(f"w{i}" for i in range(len(grid)))
    return WordVectors(words, grid, 1.0, Artifact(path=None, sha256="0" * 64))


def brute(grid):
    rows = grid.astype(object).tolist()
    pairs = itertools.combinations_with_replacement(rows, 2)
    return max(sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) for x, y in pairs)


@examples(60)
@given(
    n=st.integers(1, 40),
    d=st.integers(1, 12),
    size=st.sampled_from([1, 3, 127, 32_767]),
    seed=st.integers(0, 2**32),
    cells=st.sampled_from([1, 64, 2**24]),
)
def test_it_is_the_largest_of_all_pairs(n, d, size, seed, cells):
    grid = np.random.default_rng(seed).integers(-size, size + 1, (n, d)).astype(np.int16)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "CELLS", cells)
        assert largest_squared_distance(vectors(grid)) == brute(grid)


@pytest.mark.parametrize("size", [1, 2_000, 32_767])
def test_ties_between_all_words(size):
    """All pairs at one distance: nothing is pruned, and the guess decides nothing."""
    grid = (np.eye(200) * size).astype(np.int16)
    assert largest_squared_distance(vectors(grid)) == 2 * size**2


def test_a_difference_below_the_precision_of_the_guess():
    """Two pairs whose squared distances float32 cannot tell apart, the larger in either order."""
    far = np.array([32_767, 32_767, 0, 0], np.int16)
    for last in (far, far[::-1].copy()):
        grid = np.stack([far, -far, last, -last, np.zeros(4, np.int16)])
        grid[1, 2] = 1
        grid[3, 1] = 2
        assert largest_squared_distance(vectors(grid)) == brute(grid)
    assert np.float32(4 * 2 * 32_767**2) == np.float32(4 * 2 * 32_767**2 + 1)


def test_pruning_ends_the_search(monkeypatch):
    """Few words lie far out: the product of the many near the center is never made."""
    random = np.random.default_rng(3)
    grid = random.integers(-10, 11, (3_000, 5)).astype(np.int16)
    grid[:10] *= 300
    made = []
    monkeypatch.setattr(search, "CELLS", 3_000 * 20)
    larger = search.larger_of_block
    monkeypatch.setattr(search, "larger_of_block", lambda *given: made.append(given[2].size) or larger(*given))
    assert largest_squared_distance(vectors(grid)) == int(
        vectors(grid).squared_distances(slice(0, 10), slice(None)).max()
    )
    assert sum(made) < 3_000**2 / 20


def test_the_embedded_vectors():
    whole = WordVectors.load(limit=3_000)
    assert largest_squared_distance(whole) == whole.squared_distances(slice(None), slice(None)).max()
    padded = whole.with_origin("<PAD>")
    assert padded.words[-1] == "<PAD>"
    assert not padded.vectors[-1].any()
    assert largest_squared_distance(padded) == max(largest_squared_distance(whole), int(whole.norms.max()))
