"""The encoder computes integers that any machine finds again, by exact arithmetic."""

from math import isqrt

import numpy as np

from dptext_etl.corpora.corpus import WordEncoder, nearest, products, quantised


def rounded(number, squares):
    """127 * number / sqrt(squares) to the nearest integer; no tie is rational but at perfect squares."""
    size = isqrt(4 * 127 * 127 * number * number // squares)
    return (size + 1) // 2 * (1 if number > 0 else -1) if number else 0


def test_rows_are_scaled_to_127_and_rounded():
    rng = np.random.default_rng(0)
    for size in (3, 10**3, 2**26, 2**31 - 1):
        sums = rng.integers(-size, size, (200, 7), endpoint=True)
        sums[0] = 0
        sums[1] = size
        vectors = quantised(sums)
        assert not vectors[0].any()
        for row, vector in zip(sums.tolist(), vectors.tolist(), strict=True):
            squares = sum(number * number for number in row)
            if squares and isqrt(squares) ** 2 != squares:
                assert vector == [rounded(number, squares) for number in row]


def test_halves_go_to_the_even_number():
    row = np.array([1, 3, 5, 252, 31, 4])
    assert (row**2).sum() == 254**2, "so that every odd number scales to a half"
    assert quantised(row[None]).tolist() == [[0, 2, 2, 126, 16, 2]]


def test_words_are_found_as_the_kernel_finds_them():
    encoder = WordEncoder(["don't", "été", "7"], np.array([[3, 0], [0, 5], [-2, 1]], np.int16))
    texts = ["Don\u2019t, ÉTÉ; unknown 7!", "", "??", "7 7 7"]
    assert encoder.sums(texts).tolist() == [[1, 6], [0, 0], [0, 0], [-6, 3]]
    assert encoder.sums(texts, n_max=1).tolist() == [[3, 0], [0, 0], [0, 0], [-2, 1]]


def test_parts_are_consecutive_and_nearly_equal():
    encoder = WordEncoder([f"w{i}" for i in range(9)], np.eye(9, dtype=np.int16))
    text = " ".join(f"w{i}" for i in range(9))
    for parts in range(1, 12):
        sums = encoder.sums([text], parts=parts)
        assert sums.shape == (parts, 9)
        assert sums.sum(axis=0).tolist() == [1] * 9
        sizes = sums.sum(axis=1)
        assert sizes.max() - sizes.min() <= 1
        assert [int(np.flatnonzero(row)[0]) for row in sums if row.any()] == sorted(
            int(np.flatnonzero(row)[0]) for row in sums if row.any()
        )


def test_products_are_exact_and_equal_scores_go_by_index():
    rng = np.random.default_rng(1)
    vectors = rng.choice(np.array([-127, 127], np.int8), (40, 1040))
    scores = products(vectors, vectors)
    assert np.array_equal(scores, vectors.astype(np.int64) @ vectors.T.astype(np.int64))
    assert nearest(np.array([[1, 3, 3, 0, 3]]), 4).tolist() == [[1, 2, 4, 0]]
