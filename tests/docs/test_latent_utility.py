"""The figures of `studies/latent_utility.py` on texts whose figures are known."""

import math
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from tests.study import study

utility = study("latent_utility")


@pytest.fixture
def corpus(utility):
    texts = [f"play song number {n}" if n % 2 else f"weather in town {n}" for n in range(40)]
    labels = ["music" if n % 2 else "weather" for n in range(40)]
    return utility.Corpus("toy", texts, labels, ["play it", "weather there"] * 10, ["music", "weather"] * 10)


def test_f1_and_bleu_of_known_texts(utility, corpus):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra: eval)")
    assert (utility.f1(corpus.texts, corpus), utility.f1(["same"] * 40, corpus)) == (1.0, pytest.approx(1 / 3))
    assert utility.f1([""] * 40, corpus) == pytest.approx(1 / 3)
    pytest.importorskip("sacrebleu", reason="sacrebleu is not installed (extra: eval)")
    before = ["Play a very good song for me", "what is the weather like today"]
    assert utility.bleu(before, [text.lower() for text in before]) == pytest.approx(100.0)
    assert 20 < utility.bleu(before, ["play a very good song for you", before[1]]) < 95
    assert utility.bleu(before, ["", ""]) == 0.0


def test_no_noise_is_a_clip_between_encoder_and_decoder(utility):
    class Model:
        rows = 2
        size = 4
        seen: ClassVar[list] = []

        def encode(self, texts):
            return np.array([[3.0, -4.0, 0.05, 0.0]] * len(texts))

        def decode(self, latents):
            self.seen.append(latents)
            return ["x"] * len(latents)

    class Mechanism:
        norm, clip, latent_model = "value", 0.1, Model()

    assert utility.without_noise(Mechanism, ["a", "b", "c"]) == ["x"] * 3
    np.testing.assert_allclose(Model.seen[0][0], [0.1, -0.1, 0.05, 0.0], rtol=1e-6)
    Mechanism.norm, Mechanism.clip = "l2", 1.0
    utility.without_noise(Mechanism, ["a"])
    assert np.linalg.norm(Model.seen[-1][0]) == pytest.approx(1.0)


def test_releases_of_every_mechanism_are_made(utility, tmp_path):
    pytest.importorskip("torch")
    models = utility.Models("example-bart", tmp_path, {}, Path("example-adept"))
    lines = {
        name: line for name, line in utility.mechanisms(models, 500.0, 2).items() if name != "DP-BART-PR"
    }  # no pruned model here
    assert list(lines) == ["DP-BART-CLV", "ADePT"]
    for line in lines.values():
        assert len(utility.released(line, ["good day", "the other"])) == 2


def test_a_release_takes_the_model_trained_for_the_nearest_budget(utility):
    models = utility.Models("b", Path("pr"), {250.0: Path("low"), 1000.0: Path("high")}, Path("a"))
    taken = {e: utility.mechanisms(models, e, 2)["DP-BART-PR+"].model for e in (10.0, 250.0, 490.0, 510.0, 2500.0)}
    assert taken == {10.0: "low", 250.0: "low", 490.0: "low", 510.0: "high", 2500.0: "high"}


def test_rows_of_the_tidy_file_have_every_line_and_both_figures(utility):
    original = {"name": "original texts", "epsilon": math.nan, "bleu": 100.0, "f1": 0.9}
    lines = [{"name": name, "epsilon": e, "bleu": 5.0, "f1": 0.4} for name in utility.LINES for e in utility.EPSILONS]
    rows = utility.tidy_rows({"Snips": [original, *lines]}, 20, {"beams": 1})
    fact, *found = rows
    assert (fact["figure"], fact["value"], len(found)) == ("beams", 1, 2 * len(lines))
    assert {(row["mechanism"], row["variant"]) for row in found} == set(utility.LINES.values())
    assert {row["raw"] for row in found if row["figure"].startswith("macro-F1")} == {0.9}
