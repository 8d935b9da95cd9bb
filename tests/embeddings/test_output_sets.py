import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl.mechanisms.custext import partition

from ..examples import examples
from .test_shortlist import grid, plain


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
