"""The figures of `studies/score_utility.py` on texts whose figures are known, and rows of a tiny model."""

import numpy as np
import pytest

from dptext_etl.embeddings import WordVectors
from tests.later import later
from tests.study import study

later("transformers", reason="torch and transformers are not installed (extra: models)")
later("sklearn", reason="scikit-learn is not installed (extra: eval)")
later("sacrebleu", reason="sacrebleu is not installed (extra: eval)")
score_utility = study("score_utility")


@pytest.fixture
def corpus(score_utility):
    good, bad = "this is a good film and a good time", "the people of this city saw it in the year"
    texts, labels = [good, bad] * 6, ["yes", "no"] * 6
    return score_utility.Corpus("toy", texts, labels, texts, labels)


def test_bleu_and_likeness_of_equal_and_of_foreign_texts(score_utility):
    before = ["one two three four five six", "seven eight nine ten eleven twelve"]
    whole, each = score_utility.overlaps(before, before)
    assert (whole, each) == (pytest.approx(100), pytest.approx([100, 100]))
    whole, each = score_utility.overlaps(before, [before[0], "a b c d e f"])
    assert 0 < whole < 100
    assert each[0] == pytest.approx(100)
    assert each[1] < 1
    vectors = WordVectors.load(limit=400)
    good, film = (vectors.vectors[vectors.index[word]].astype(float) for word in ("good", "people"))
    expected = good @ film / np.linalg.norm(good) / np.linalg.norm(film)
    found = score_utility.likeness(vectors, ["good", "good people", "zzqzz"], ["people", "people good", "good"])
    assert found == pytest.approx([expected, 1.0, 0.0])


def test_classifiers_find_labels_where_words_tell_them(score_utility, corpus):
    classifiers = score_utility.Classifiers(corpus)
    assert classifiers.clean(corpus.texts).tolist() == [1.0] * 12
    assert classifiers.clean(corpus.texts[1:] + corpus.texts[:1]).tolist() == [0.0] * 12
    assert classifiers.released(corpus.texts).mean() == 1.0
    assert classifiers.released(["the same words"] * 12).mean() <= 0.75


def rows(score_utility, **changes):
    random = np.random.default_rng(3)
    noise = random.normal(0, 0.01, 400)
    found = []
    for epsilon in score_utility.EPSILONS:
        for name in score_utility.DECODINGS:
            each = {figure: 0.5 + random.permutation(noise) for figure in score_utility.FIGURES}
            each |= {figure: 0.5 + change + noise for figure, change in changes.items() if name == "parallel"}
            rate = 10.0 if name == "parallel" else 5.0
            found.append({"name": name, "epsilon": epsilon, "whole": 50.0, "each": each, "rate": rate})
    return found


def test_rows_tell_a_difference_from_noise(score_utility):
    found = {
        (row["variant"], row["epsilon"], row["figure"]): row
        for row in score_utility.tidy_rows("toy", rows(score_utility, cosine=-0.1, bleu=0.1), 400)
    }
    less = score_utility.LESS
    for epsilon in score_utility.EPSILONS:
        worse = found["parallel", epsilon, f"mean cosine{less}"]
        assert worse["value"] == pytest.approx(-0.1, abs=1e-2)
        assert worse["low"] < worse["value"] < worse["high"] < 0
        assert found["parallel", epsilon, f"BLEU of a text, 0 to 100{less}"]["low"] > 0
        assert found["parallel", epsilon, score_utility.RATE]["value"] == 10.0
    level = [found["block of 4", e, f"mean cosine{less}"] for e in score_utility.EPSILONS]
    assert sum(row["low"] <= 0 <= row["high"] for row in level) >= 3
    assert not [key for key in found if key[0] == "sequential" and key[2].endswith(less)]


def test_figures_are_measured_for_the_tidy_file(score_utility, corpus, monkeypatch):
    monkeypatch.setattr(score_utility, "EPSILONS", (10.0, 10_000.0))
    found = score_utility.measured(corpus, WordVectors.load(limit=400), "example-masked")
    raw, uniform, *drawn = found
    assert (raw["whole"], raw["each"]["cosine"].min()) == (pytest.approx(100), pytest.approx(1.0))
    assert uniform["whole"] < 20
    assert [(row["epsilon"], row["name"]) for row in drawn] == [
        (epsilon, name) for epsilon in (10.0, 10_000.0) for name in score_utility.DECODINGS
    ]
    assert all(row["tight"] <= row["epsilon"] for row in drawn)
    told = list(score_utility.tidy_rows("toy", found, 12))
    assert {row["dataset"] for row in told} == {"toy, how DP-MLM draws"}
    assert len([row for row in told if row["figure"] == score_utility.WHOLE]) == len(found)
    assert len([row for row in told if row["figure"].endswith(score_utility.LESS)]) == 2 * 2 * 4


def test_texts_are_read_as_mechanisms_read_them(score_utility, shared_data):
    found = score_utility.corpora(shared_data, 20)
    assert [corpus.name for corpus in found] == ["SST-2", "Snips"]
    for corpus in found:
        assert len(corpus.texts) == len(corpus.labels) == 20
        assert len(corpus.learned) == len(corpus.learned_labels) > 10_000
        assert all(text == score_utility.plain(text) for text in corpus.texts)
        assert not set(corpus.texts) & {""}
