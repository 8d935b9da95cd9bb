"""Estimates of topics: intervals cover neighborhood shares, not true shares; shrinkage and hit rates by brute force."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptext_etl.corpora import Corpus, WordEncoder, estimate_frequencies
from dptext_etl.corpora.frequencies import Frequency, Shrinkage, calibrate, hit_rate, near_texts, near_weight
from dptext_etl.errors import InputError

EPSILON, NEAR = 3.0, 4
WORDS = ("train", "rail", "plane", "wing", "song")
VECTORS = np.array([[90, 60, 0], [95, 40, 0], [80, 80, 0], [60, 95, 0], [0, 0, 100]], np.int16)
FACTS = {"name": "toy", "licence": "CC0", "provenance": "written for this test"}
TOPIC = {"train": "rail", "rail": "rail", "plane": "air", "wing": "air", "song": "music"}
PUBLIC = {"train": "rail", "train rail": "rail", "plane": "air", "wing plane": "air", "song": "music", "sing": "music"}


def topic(text: str) -> str:
    return TOPIC[text.split(maxsplit=1)[0]]


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """Sixty texts: two about trains, whose near texts are mostly about planes, as few are about trains."""
    texts = ["train rail one", "rail two"] + [f"{('plane', 'wing')[number % 2]} {number}" for number in range(28)]
    texts += [f"song {number}" for number in range(30)]
    return Corpus.save(tmp_path / "toy", texts, FACTS, encoder=WordEncoder(WORDS, VECTORS))


def near_of(corpus: Corpus, text: str) -> list[int]:
    scores = (corpus.vectors.astype(int) @ corpus.encoder.encode([text])[0].astype(int)).tolist()
    return sorted(range(len(scores)), key=lambda place: (-scores[place], place))[:NEAR]


def release(corpus: Corpus, private: Sequence[str], seed: int) -> list[str]:
    """Draw by the law of subset selection, without the mechanism."""
    rng, made = np.random.default_rng(seed), []
    for text, count in Counter(private).items():
        weights = np.ones(len(corpus))
        weights[near_of(corpus, text)] = math.exp(EPSILON)
        made += [corpus.texts[place] for place in rng.choice(len(corpus), count, p=weights / weights.sum())]
    return made


def share(texts: Sequence[str], wanted: str) -> float:
    return float(np.mean([topic(text) == wanted for text in texts]))


def test_intervals_cover_the_neighborhood_share_and_not_the_true_share(corpus: Corpus) -> None:
    private = ["train"] * 120 + ["plane"] * 80 + ["song"] * 200
    topics = {text: topic(text) for text in corpus.texts}
    near = {
        one: share([corpus.texts[place] for text in private for place in near_of(corpus, text)], one)
        for one in ("air", "music", "rail")
    }
    true = {one: share(private, one) for one in near}
    assert true["rail"] == 0.3
    assert near["rail"] == pytest.approx(0.075)  # one of four texts near "train" is about trains
    covered, mistaken, runs = dict.fromkeys(near, 0), 0, 100
    for seed in range(runs):
        found = estimate_frequencies(release(corpus, private, seed), topics, epsilon=EPSILON, near=NEAR)
        assert sum(one.neighborhood_share for one in found) == pytest.approx(1)
        for one in found:
            half = 1.96 * one.standard_error
            covered[one.topic] += abs(one.neighborhood_share - near[one.topic]) <= half
            mistaken += one.topic != "music" and abs(one.neighborhood_share - true[one.topic]) <= half
    assert min(covered.values()) >= 0.9 * runs
    assert mistaken <= 0.1 * 2 * runs


def test_shares_of_releases_are_not_neighborhood_shares(corpus: Corpus) -> None:
    topics = {text: topic(text) for text in corpus.texts}
    found = estimate_frequencies(release(corpus, ["train"] * 2_000, 7), topics, epsilon=EPSILON, near=NEAR)
    rail = next(one for one in found if one.topic == "rail")
    assert abs(rail.neighborhood_share - 0.25) < 4 * rail.standard_error < 0.1
    assert abs(rail.released - 0.25) > 4 * rail.standard_error


def test_shrinkage_is_what_brute_force_finds_and_is_printed(corpus: Corpus) -> None:
    topics = {text: topic(text) for text in corpus.texts}
    public = {**PUBLIC, "rail two": "air"}  # is in the corpus: excluded
    found = estimate_frequencies(corpus.texts[:9], topics, epsilon=EPSILON, near=NEAR, corpus=corpus, public=public)
    for one in found:
        shares = {text: share([corpus.texts[place] for place in near_of(corpus, text)], one.topic) for text in PUBLIC}
        own = [shares[text] for text, label in PUBLIC.items() if label == one.topic]
        others = [shares[text] for text, label in PUBLIC.items() if label != one.topic]
        assert one.shrinkage is not None
        assert one.shrinkage.texts == 2
        assert one.shrinkage.with_topic == pytest.approx(np.mean(own))
        assert one.shrinkage.without_topic == pytest.approx(np.mean(others))
        assert one.shrinkage.slope == pytest.approx(np.mean(own) - np.mean(others))
        assert f"slope {one.shrinkage.slope:.2f}" in str(one)
    rail = next(one.shrinkage for one in found if one.topic == "rail")
    assert rail is not None
    assert rail.slope < 0.6


def test_a_measured_line_gives_neighborhood_shares_of_a_mix_like_the_public_one(corpus: Corpus) -> None:
    topics = {text: topic(text) for text in corpus.texts}
    (rail,) = [
        one
        for one in estimate_frequencies(
            release(corpus, list(PUBLIC) * 400, 3), topics, epsilon=EPSILON, near=NEAR, corpus=corpus, public=PUBLIC
        )
        if one.topic == "rail"
    ]
    assert rail.shrinkage is not None
    line = rail.shrinkage.without_topic + rail.shrinkage.slope / 3
    assert abs(rail.neighborhood_share - line) < 4 * rail.standard_error < 0.1


def test_topics_without_public_texts_have_no_shrinkage(corpus: Corpus) -> None:
    topics = {text: topic(text) for text in corpus.texts}
    for public in ({"train": "rail", "x": "else"}, {"train": "rail"}):
        found = estimate_frequencies(corpus.texts[:9], topics, epsilon=2.0, near=2, corpus=corpus, public=public)
        measured = {one.topic for one in found if one.shrinkage is not None}
        assert measured == ({"rail"} if len(public) == 2 else set())
        assert "shrinkage not measured" in str(found[0])


def test_bad_input_is_refused_without_a_quote(corpus: Corpus) -> None:
    with pytest.raises(InputError, match="1 of 2 releases are not texts") as caught:
        estimate_frequencies(["one", "secret"], {"one": "a", "two": "b"}, epsilon=1.0, near=1)
    assert "secret" not in str(caught.value)
    with pytest.raises(InputError, match="1 <= near < texts"):
        estimate_frequencies(["one"], {"one": "a", "two": "b"}, epsilon=1.0, near=2)
    topics = {text: topic(text) for text in corpus.texts}
    given: dict[str, Any] = {"epsilon": 2.0, "near": 2}
    released = corpus.texts[:2]
    for more in ({"corpus": corpus, **given}, {"public": PUBLIC, **given}):
        with pytest.raises(InputError, match="is missing"):
            estimate_frequencies(released, topics, **more)
    with pytest.raises(InputError, match="no public text is left"):
        estimate_frequencies(released, topics, **given, corpus=corpus, public={corpus.texts[0]: "rail"})
    with pytest.raises(InputError, match="does not name the texts"):
        estimate_frequencies(["a"], {"a": "x", "b": "y", "c": "y"}, **given, corpus=corpus, public=PUBLIC)


def test_an_estimate_without_shrinkage_says_so() -> None:
    one = Frequency("rail", 0.25, 0.01, 0.2, 0.1)
    assert str(one) == "rail: neighborhood share 25.0% ± 2.0% (releases 20.0%, corpus 10.0%); shrinkage not measured"
    assert "of 3 public texts" in str(Frequency("rail", 0.25, 0.01, 0.2, 0.1, Shrinkage(3, 0.5, 0.1)))


def test_counts_say_what_rows_say(corpus: Corpus) -> None:
    topics = {text: str(place % 3) for place, text in enumerate(corpus.texts)}
    rows = [corpus.texts[place * place % len(corpus)] for place in range(200)]
    given = {"epsilon": 2.0, "near": 3}
    assert estimate_frequencies(rows, topics, **given) == estimate_frequencies(Counter(rows), topics, **given)
    with pytest.raises(InputError, match="2 of 3 releases are not texts"):
        estimate_frequencies({"foreign": 2, rows[0]: 1}, topics, **given)


EPSILONS = (0.5, 2.0, 4.0, 8.0)


def random_vectors(texts: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-60, 60, (texts, 5)).astype(np.int8)


def law(texts: int, epsilon: float, order: list[int], near: int) -> np.ndarray:
    """The distribution of a release whose near texts come first in `order`."""
    weights = np.ones(texts)
    weights[order[:near]] = math.exp(epsilon)
    return weights / weights.sum()


@pytest.mark.parametrize("labeled", [False, True])
def test_no_number_of_near_texts_keeps_more(labeled: bool) -> None:
    vectors, queries = random_vectors(60, 1), random_vectors(25, 2)
    labels = [str(number) for number in (queries[:, 0] > 0).astype(int)] if labeled else None
    scores = queries.astype(int) @ vectors.T.astype(int)
    likeness = np.maximum(scores, 0.0) ** 1.5
    if labels is not None:
        votes = np.argsort(-scores.T, axis=1, kind="stable")[:, :15]
        ones = (np.array(labels)[votes] == "1").mean(axis=1)
        likeness = np.array([ones if label == "1" else 1 - ones for label in labels])
    orders = np.argsort(-scores, axis=1, kind="stable").tolist()
    for found in calibrate(vectors, queries, EPSILONS, labels=labels):
        kept = [
            np.mean([law(60, found.epsilon, o, near) @ u for o, u in zip(orders, likeness, strict=True)])
            for near in range(1, 60)
        ]
        assert found.near == 1 + int(np.argmax(kept))
        assert found.hit == pytest.approx(hit_rate(60, found.near, found.epsilon))


def test_more_epsilon_takes_fewer_texts_and_hits_more_often() -> None:
    found = calibrate(random_vectors(400, 3), random_vectors(50, 4))
    assert all(one.near >= other.near for one, other in itertools.pairwise(found))
    assert found[-1].hit > 0.9 > found[0].hit
    assert all(one.kept <= other.kept <= 1.0 for one, other in itertools.pairwise(found))


def test_hit_rates_and_near_texts_are_the_inverse_of_each_other() -> None:
    for epsilon, hit in ((4.0, 0.7), (8.0, 0.9), (16.0, 0.99)):
        near = near_texts(20_000, Decimal(epsilon), Decimal(hit))
        assert hit_rate(20_000, near, epsilon) == pytest.approx(hit, abs=0.01) or near == 1
    weights = law(50, 2.0, list(range(50)), 7)
    assert hit_rate(50, 7, 2.0) == pytest.approx(weights[:7].sum())
    assert near_weight(50, 7, 2.0) == pytest.approx(1 - 50 * weights[-1])
