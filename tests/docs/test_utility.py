"""The figures of `docs/utility.py` on texts whose figures can be counted by hand."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from dptext_etl.embeddings import WordVectors
from dptext_etl.mechanisms.custext import CusText
from dptext_etl.mechanisms.madlib import Madlib

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def utility():
    spec = importlib.util.spec_from_file_location("utility", ROOT / "docs" / "utility.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_words_that_stay_are_counted_where_they_stood(utility, small_vectors):
    before = ["Good word, the good!", "the nonesuch good"]
    plain = CusText(epsilon=1.0, k=5, vectors=small_vectors)
    assert utility.unchanged(plain, before, ["good word the good", "the nonesuch good"]) == 1.0
    assert utility.unchanged(plain, before, ["wordaa good the wordab", "good the good"]) == pytest.approx(2 / 7)
    dropping = Madlib(epsilon=5.0, vectors=small_vectors)  # "word" and "nonesuch" are unknown and vanish
    assert utility.unchanged(dropping, before, ["good the good", "the good"]) == pytest.approx(5 / 7)


def test_likeness_is_the_cosine_of_means(utility, small_vectors):
    vectors = WordVectors.load(small_vectors)
    good, the = (vectors.vectors[vectors.index[word]].astype(float) for word in ("good", "the"))
    expected = good @ the / np.linalg.norm(good) / np.linalg.norm(the)
    assert utility.likeness(vectors, ["Good"], ["the"]) == pytest.approx(expected)
    assert utility.likeness(vectors, ["good the", "the"], ["the good", "the"]) == pytest.approx(1.0)
    assert utility.likeness(vectors, ["nonesuch"], ["good"]) == 0.0


def test_releases_of_every_line_are_made(utility, small_vectors):
    for line in utility.variants(small_vectors):
        mechanism = line.make(2.0)
        out = utility.released(mechanism, ["good word the good", "the don't good"])
        assert len(out) == 2
        if line.reading.startswith("ε/"):
            assert float(mechanism.epsilon_per_word) == np.inf or float(mechanism.epsilon_per_word) <= 2.0 * (1 + 1e-9)


def test_accuracy_is_one_where_a_word_tells_and_a_coin_where_none_does(utility):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra: eval)")
    labels = np.array(["a", "b"] * 60)
    told = [f"{label}{label}{label} word" for label in labels]
    assert utility.accuracies(told, labels) == [1.0] * 3
    assert all(found <= 0.75 for found in utility.accuracies(["the same"] * 120, labels))


def test_the_verdict_tells_order_from_noise(utility):
    names = ("CusText+", "CusText", "SanText+, p = 0.2", "SanText", "MADLIB")
    sizes = dict(zip(names, (0.95, 0.85, 0.9, 0.75, 0.65), strict=True))

    def rows(**changes):
        found = {**sizes, **changes}
        return [
            {"name": name, "epsilon": e, "kept": found[name], "cosine": found[name], "accuracy": [found[name]] * 3}
            for name in names
            for e in utility.EPSILONS
        ]

    assert all("holds in 12 of 12" in line and "not hold" not in line for line in utility.verdicts(rows()))
    swapped = utility.verdicts(rows(MADLIB=0.8))
    assert all("**does not hold**: SanText over MADLIB at ε = 1" in line for line in swapped)
    assert all("level" in line for line in utility.verdicts(rows(MADLIB=0.75)))
    *_, accuracy = utility.verdicts(rows(SanText=0.5, MADLIB=0.52))
    assert "no better than a coin" in accuracy
    assert "not hold" not in accuracy
