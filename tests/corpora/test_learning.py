"""Encoders: their training, their files, and their vectors."""

from __future__ import annotations

from math import isqrt

import numpy as np
import pytest

from dptext_etl.corpora.corpus import WordEncoder, nearest, products, quantised
from dptext_etl.corpora.learning import add_directions, learn
from dptext_etl.embeddings import WordVectors
from dptext_etl.errors import ArtifactError, InputError
from tests.corpus_texts import labeled

ROWS = labeled()[::7]
TEXTS = [text for text, _ in ROWS]
TOPICS = np.array([topic for _, topic in ROWS])


@pytest.fixture(scope="module")
def words() -> WordVectors:
    return WordVectors.load(limit=6_000)


@pytest.fixture(scope="module")
def encoder(words: WordVectors) -> WordEncoder:
    return learn(TEXTS, words)


def agreement(encoder: WordEncoder, texts: list[str], topics: list[str]) -> float:
    """Share of the ten nearest texts that have the topic of the query."""
    found = nearest(products(encoder.encode(texts), encoder.encode(TEXTS)), 10)
    return float((TOPICS[found] == np.array(topics)[:, None]).mean())


def test_a_text_without_known_words_has_no_direction(encoder: WordEncoder) -> None:
    assert not encoder.encode(["", "zzzz"]).any()


def test_the_common_direction_is_removed_and_strong_ones_are_weakened(words: WordVectors) -> None:
    def strengths(**how: int) -> np.ndarray:
        points = learn(TEXTS, words, **how).encode(TEXTS).astype(float) / 127
        return np.linalg.svd(points, compute_uv=False) ** 2 / len(points)

    raw, removed, whitened = (strengths(components=c, half_whitening=h) for c, h in ((0, False), (1, False), (1, True)))
    assert raw[0] > 1.5 * removed[0]
    assert whitened[0] / whitened[9] < 0.6 * removed[0] / removed[9]


def test_near_texts_have_the_topic_of_the_text(encoder: WordEncoder) -> None:
    asked = ["rooms in a house", "a singer and her band"]
    assert agreement(encoder, asked, ["hotel", "music"]) >= 0.9


def test_frequent_words_weigh_little(words: WordVectors) -> None:
    encoder = learn(TEXTS, words, components=0, half_whitening=False)
    lengths = dict(zip(encoder.words, np.linalg.norm(encoder.vectors.astype(float), axis=1), strict=True))
    assert lengths["for"] < 0.5 * lengths["hotel"]


def test_texts_without_known_words_teach_nothing(words: WordVectors) -> None:
    with pytest.raises(ArtifactError, match="no word of the corpus has a vector"):
        learn(["zzzz", "qqqq"], words)


def test_a_task_moves_near_texts_to_its_labels(words: WordVectors, encoder: WordEncoder) -> None:
    """The corpus says old or new; the encoder of the task brings texts of the same age together, by public labels."""
    ages = [(text, age) for text in TEXTS for age in ("old", "new") if f" {age} " in text]
    task = add_directions(encoder, [text for text, _ in ages], [age for _, age in ages], share=0.8)
    assert task.vectors.shape[1] == encoder.vectors.shape[1] + 3
    asked = ["the ancient house of the village", "the modern house of the village"] + [text for text, _ in ages[:40]]
    wanted = ["old", "new"] + [age for _, age in ages[:40]]

    def kept(by: WordEncoder) -> float:
        found = nearest(products(by.encode(asked), by.encode(TEXTS)), 30)
        hits = [[f" {age} " in TEXTS[place] for place in row] for row, age in zip(found, wanted, strict=True)]
        return float(np.mean(hits))

    assert kept(task) > kept(encoder) + 0.2


def test_a_task_needs_labels(encoder: WordEncoder) -> None:
    with pytest.raises(InputError, match="100 texts or more"):
        add_directions(encoder, TEXTS[:50], TOPICS[:50].tolist())
    with pytest.raises(InputError, match="with 1 labels"):
        add_directions(encoder, TEXTS[:200], ["one"] * 200)
    with pytest.raises(InputError, match="a label has no text with a known word"):
        add_directions(encoder, [*TEXTS[:200], "zzzz qqqq"], [*TOPICS[:200].tolist(), "other"])


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
