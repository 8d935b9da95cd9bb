"""Scores of key words: close to the text, by features of the text, and by the attention of a language model."""

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from dptext_etl.allocation.score import Score, Tools
from dptext_etl.extensions import load
from dptext_etl_models.likeness import words_encoder
from dptext_etl_models.scores import yake
from dptext_etl_models.scores.attention import Attention
from dptext_etl_models.scores.keybert import KeyBert
from dptext_etl_models.scores.yake import Yake

SCORES = {"attention": Attention, "keybert": KeyBert, "yake": Yake}
TEXT = ["the", "astronomer", "and", "the", "telescope", "of", "the", "astronomer"]


def of(name, tokens, **tools):
    return dict(zip(tokens, SCORES[name](Tools(**tools)).of(tokens).tolist(), strict=True))


def test_each_file_is_an_entry_point():
    """An allocation finds a score by its name."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    points = project["entry-points"]["dptext_etl.scores"]
    files = (Path(yake.__file__).parent).glob("[a-z]*.py")
    assert sorted(points) == sorted(file.stem for file in files)
    for name, value in points.items():
        module = EntryPoint(name, value, "dptext_etl.scores").load()
        assert load("scores", name, Score).__module__ == module.__name__


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("tokens", [(), ("",), ("<mask>", " ", "n't", "\U0001f600"), ("word",), ("good",) * 300])
def test_every_word_of_any_text_has_a_score(name, tokens):
    found = SCORES[name](Tools()).of(tokens)
    assert found.shape == (len(tokens),)
    assert ((found >= 0) & (found <= 1)).all()


def test_key_words_of_keybert_are_close_to_the_text():
    found = of("keybert", [*TEXT, "zzqx"])
    assert found["astronomer"] > found["telescope"] > found["of"]
    assert found["zzqx"] == 1.0, "no vector: nothing is known about it"
    each = words_encoder()[0].sums(TEXT).astype(float)
    whole = each.sum(axis=0)
    cosines = each @ whole / np.linalg.norm(each, axis=1) / np.linalg.norm(whole)
    assert list(of("keybert", TEXT).values())[1] == pytest.approx(cosines[1] / cosines.max())


def test_yake_is_its_formula():
    """Two sentences of two words each; "b" is in both, and "a" comes first."""
    found = yake._numbers(["a", "b", ".", "b", "C", "!"])
    usual = 4 / 3 + np.std([1, 2, 1])
    first, between = np.log(np.log(3.0)), np.log(np.log(3.5))
    assert found["a"] == pytest.approx(first * 1.5 / ((1 / usual + 1 / 2) / 1.5))
    assert found["b"] == pytest.approx(between * 3.0 / ((2 / usual + 1) / 3.0))
    assert found["c"] == pytest.approx(np.log(np.log(4.0)) * 1.5 / (1 + (1 / usual + 1 / 2) / 1.5))
    scores = of("yake", ["a", "b", ".", "b", "C", "!"])
    assert (max(scores, key=scores.get), scores["a"], scores["."]) == ("a", 1.0, 0.0)


def test_attention_falls_on_the_words_that_carry_the_text():
    found = of("attention", TEXT)
    assert max(found, key=found.get) in {"astronomer", "telescope"}
    assert found["of"] < found["telescope"]
    assert Attention(Tools()).of(["good"] * 300)[-1] == 1.0, "beyond the window"
    assert "attention_model/model.safetensors" in Attention(Tools()).artifacts()
