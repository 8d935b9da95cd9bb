"""The nearest free words and the output sets follow exact arithmetic."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl.embeddings import WordVectors
from dptext_etl.embeddings.search import FreeWords
from dptext_etl.mechanisms.custext import partition

from ..examples import examples


def grid(tmp_path_factory, reals):
    path = tmp_path_factory.mktemp("grid") / "grid.npz"
    np.savez(path, words=np.array([f"w{i:04d}x" for i in range(len(reals))]), vectors=reals.astype(np.float32))
    return WordVectors.load(path)


def plain(vectors, word, k, metric, free):
    (keys,) = vectors.rank_keys([word], slice(None), metric)
    order = sorted(np.flatnonzero(free).tolist(), key=lambda other: (keys[other], other))
    return order[:k]


@examples(40)
@given(st.integers(0, 2**32), st.sampled_from(["euclidean", "cosine"]), st.integers(1, 7), st.integers(1, 16))
def test_the_nearest_free_words_are_those_of_exact_arithmetic(tmp_path_factory, seed, metric, k, block):
    random = np.random.default_rng(seed)
    reals = random.normal(size=(60, 3)).round(1)  # many equal and nearly equal distances
    reals[20:30] *= 100
    reals[5] = 0
    vectors = grid(tmp_path_factory, reals)
    words, free = FreeWords(vectors, metric), np.ones(60, dtype=bool)
    while words.left > k:
        rows = words.first(block)
        assert rows.tolist() == np.flatnonzero(free)[:block].tolist()
        for row, guess in zip(rows, words.guesses(rows), strict=True):
            if not free[row] or words.left <= k:
                continue
            words.use(row[None])
            free[row] = False
            found = words.nearest(row, k, guess)
            assert found.tolist() == plain(vectors, row, k, metric, free)
            words.use(found)
            free[found] = False
    assert words.left == free.sum()


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_differences_that_float32_cannot_see_decide(tmp_path_factory, metric):
    """Coordinates near the grid's largest: one step moves a squared distance by less than float32 resolves."""
    random = np.random.default_rng(1)
    reals = random.normal(size=300) + random.normal(size=(200, 300)) * 2e-5
    vectors = grid(tmp_path_factory, reals)
    words = FreeWords(vectors, metric)
    (row, *_), free = words.first(1), np.arange(200) > 0
    (guess,) = words.guesses(np.array([row]))
    exact = plain(vectors, row, 50, metric, free)
    seen = guess * -2 + vectors.norms.astype(np.float32)
    assert np.argsort(seen[1:], kind="stable")[:50].tolist() != [other - 1 for other in exact], "float32 alone errs"
    words.use(np.array([row]))
    assert words.nearest(row, 50, guess).tolist() == exact


def sets_of(vectors, k, metric):
    """Cut the vocabulary by the definition, word by word."""
    free, sets = np.ones(len(vectors), dtype=bool), []
    while free.sum() >= k:
        row = int(np.flatnonzero(free)[0])
        free[row] = False
        near = plain(vectors, row, k - 1, metric, free)
        free[near] = False
        sets.append([row, *near])
    rest = np.flatnonzero(free).tolist()
    return [*sets, rest] if rest else sets


@examples(25)
@given(st.integers(0, 2**32), st.sampled_from(["euclidean", "cosine"]), st.integers(2, 9))
def test_output_sets_are_those_of_exact_arithmetic(tmp_path_factory, seed, metric, k):
    random = np.random.default_rng(seed)
    reals = random.normal(size=(150, 3)).round(1)  # many equal and nearly equal distances, more than one round of words
    reals[20:30] *= 100
    reals[5] = reals[90] = 0
    vectors = grid(tmp_path_factory, reals)
    assert [members.tolist() for members in partition(vectors, k, metric)] == sets_of(vectors, k, metric)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_low_bytes_decide_between_words_whose_high_bytes_are_equal(tmp_path_factory, metric):
    random = np.random.default_rng(1)
    reals = random.normal(size=40) + random.normal(size=(200, 40)) * 1e-3
    vectors = grid(tmp_path_factory, reals)
    assert len(np.unique((vectors.vectors.astype(int) + 128) >> 8, axis=0)) < 150
    assert [members.tolist() for members in partition(vectors, 7, metric)] == sets_of(vectors, 7, metric)
