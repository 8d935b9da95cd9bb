"""The encoder that is learned: near topics, integers, the same vectors as text by text."""

from __future__ import annotations

import numpy as np
import pytest

from dptext_etl.corpora.corpus import WordEncoder, add_directions, learn, nearest, products
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
    assert task.vectors.shape[1] == encoder.vectors.shape[1] + 1
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
