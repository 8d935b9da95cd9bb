"""The diameter of a vocabulary against all pairs in Python's integers."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl.artifacts import Artifact
from dptext_etl.embeddings import WordVectors, search
from dptext_etl.embeddings.search import largest_squared_distance

from ..examples import examples


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
