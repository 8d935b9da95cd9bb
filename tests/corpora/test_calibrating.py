"""The hit rate of calibration is the best one, by brute force."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal

import numpy as np
import pytest

from dptext_etl.corpora.frequencies import calibrate, hit_rate, near_texts, near_weight

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
        told = (np.array(labels)[votes] == "1").mean(axis=1)
        likeness = np.array([told if label == "1" else 1 - told for label in labels])
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
