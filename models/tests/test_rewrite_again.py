"""Rewriting again: a function of released texts and keyed draws only, of one length, by a model of public texts."""

import json
import math

import numpy as np
import pyarrow as pa
import pytest

from dptext_etl import Policy, catalog
from dptext_etl.artifacts import placed
from dptext_etl.errors import PolicyError
from models.tests.model_makers import example_folder
from models.tests.toy_generator import ToyGenerator

KEYS = pa.array([bytes([number, 7]) * 16 for number in range(200)], pa.binary(32))
TEXTS = ["a good film about the people", "", None, "the time of a year", "time"]


class Toy(ToyGenerator):
    """Scores four outputs whatever was written before: the last one ends a text."""

    def __init__(self, scores, fails=()):
        super().__init__(lambda *_: np.array(scores, np.float32), outputs=4, ends=(3,), rows=256)
        self.unread = fails

    def prompts(self, texts):
        return [None if text in self.unread else [0] for text in texts]

    def text(self, outputs):
        return "".join("abc."[number] for number in outputs)


def make(**parameters):
    given = {"name": "rewrite_again", "model": "example-seq2seq", "l_max": 3, "training_provenance": "public"}
    return catalog.build_postprocess({**given, **parameters})


def rewritten(rewriter, texts, toy, **more):
    return rewriter.rewrite_with(toy, pa.array(texts, pa.large_string()), KEYS[: len(texts)], **more)


def test_the_best_tokens_up_to_one_length_for_all():
    out = rewritten(make(), ["x", "a much longer text", "", None], Toy([1, 5, 5, 0]))
    assert out.text.to_pylist() == ["bbb", "bbb", "", None]
    assert rewritten(make(l_max=2), ["x"], Toy([1, 2, 3, 0])).text.to_pylist() == ["cc"]
    assert rewritten(make(), ["x"], Toy([math.nan, 2, 1, 9])).text.to_pylist() == ["."]


def test_a_text_that_cannot_be_rewritten_stays_as_it_was_released():
    out = rewritten(make(), ["good", "bad"], Toy([1, 0, 0, 0], fails={"bad"}))
    assert (out.text.to_pylist(), out.failed.to_pylist()) == (["aaa", "bad"], [False, True])
    out = rewritten(make(temperature=1.0), ["good"], Toy([math.nan] * 4))
    assert (out.text.to_pylist(), out.failed.to_pylist()) == (["good"], [True])


def test_draws_follow_the_model_at_its_temperature():
    """Fixed keys: 200 texts of up to three draws each, against softmax(scores / T)."""
    scores, temperature = np.array([0.0, 1.0, 2.0, -2.0]), 2.0
    law = np.exp(scores / temperature) / np.exp(scores / temperature).sum()
    drawn = "".join(rewritten(make(temperature=temperature), ["x"] * 200, Toy(scores)).text.to_pylist())
    counts = np.array([drawn.count(letter) for letter in "abc."])
    expected = law * counts.sum()
    assert ((counts - expected) ** 2 / expected).sum() < 27.9, "chi square of 3 degrees, p > 4e-6"


def test_draws_are_those_of_key_and_step_alone():
    step, toy = make(temperature=1.0, l_max=12), Toy([0, 0, 0, 0])
    whole = rewritten(step, ["x"] * 12, toy).text.to_pylist()
    alone = [step.rewrite_with(toy, pa.array(["x"]), KEYS[at : at + 1]).text[0].as_py() for at in range(12)]
    assert (whole, len(set(whole))) == (alone, 6)
    assert whole != rewritten(step, ["x"] * 12, toy, step=1).text.to_pylist(), "each step has draws of its own"


def test_a_real_model_rewrites_whatever_stands_beside():
    pytest.importorskip("transformers", reason="torch and transformers are not installed (extra: models)")
    step = make(temperature=1.0, l_max=6)
    step.probe()
    texts = pa.array(TEXTS, pa.large_string())
    whole = step.rewrite(texts, KEYS[:5]).text.to_pylist()
    assert (whole[1:3], len({whole[0], whole[3], whole[4]})) == (["", None], 3)
    back = step.rewrite(texts.take(pa.array([4, 3, 2, 1, 0])), KEYS.take(pa.array([4, 3, 2, 1, 0]))).text.to_pylist()
    assert back == whole[::-1]
    assert step.foreign_word_chance() < 1e-24


def model_folder(folder, said=None):
    example_folder("seq2seq", folder)
    if said is not None:
        (folder / "training.json").write_text(json.dumps({"training_provenance": said}))
    return str(folder)


def test_what_a_model_learnt_from_is_declared_once(tmp_path):
    pytest.importorskip("transformers", reason="torch and transformers are not installed (extra: models)")
    places = {said: model_folder(tmp_path / str(said), said) for said in ("public", "disjoint-records", "users", None)}
    asked = {said: make(model=place, training_provenance=None) for said, place in places.items()}
    assert [step.provenance for step in asked.values()] == ["public", "disjoint-records", None, None]
    assert make(model=places[None]).provenance == make(model=places["public"]).provenance == "public"
    for said in ("disjoint-records", "users"):
        with pytest.raises(PolicyError, match=r"and training\.json another one"):
            _ = make(model=places[said]).provenance
    assert asked[None].training.model_hash == asked["public"].training.model_hash
    assert asked[None].cfg() != asked["public"].cfg() != make(model=places["public"], l_max=4).cfg()
    moved = placed(asked["public"], asked["public"].artifacts())
    assert (moved.cfg(), moved.provenance) == (asked["public"].cfg(), "public")
    made_for = {"mechanism": {"name": "custext", "configuration": "ab" * 32}}
    facts = {"training_provenance": "public", **made_for, "settings": {"template": "Text : {text}", "longest": 40}}
    (tmp_path / "public" / "training.json").write_text(json.dumps(facts))
    trained = make(model=places["public"], training_provenance=None)
    assert (trained.training.mechanism, trained.prompts.limit, asked[None].prompts.limit) == ("ab" * 32, 40, 512)
    assert trained.prompts.encode(["time"])[0] == make(template="Text : {text}").prompts.encode(["time"])[0]


def test_a_policy_finds_the_model_beside_its_file(tmp_path):
    (tmp_path / "rewriter").mkdir()
    (tmp_path / "privacy.toml").write_text("""
dataset = "d"
release = "r"
source = "raw.parquet"
sink = "out"
id = "id"
unit = "record"
key = "file:k.key"
ledger = { url = "l.db" }
[[column]]
name = "text"
mechanism = { name = "custext", epsilon = 2.0 }
allow = ["cluster"]
keep_intermediate = true
postprocess = [{ name = "rewrite_again", model = "rewriter" }]
""")
    policy = Policy.load(tmp_path / "privacy.toml")
    assert policy.columns[0].postprocess[0].model == str(tmp_path / "rewriter")
    again = Policy.parse(policy.model_dump(mode="json", by_alias=True, exclude_none=True))
    assert again.columns[0].postprocess == policy.columns[0].postprocess
    entries = policy.model_dump(mode="json", by_alias=True)
    for name, change in {
        "there is no post-processing 'nothing'": {"postprocess": [{"name": "nothing"}]},
        "needs a name": {"postprocess": [{"model": "x"}]},
        "keep_intermediate is for columns with postprocess": {"postprocess": []},
        "template": {"postprocess": [{"name": "rewrite_again", "model": "x", "template": "no field"}]},
    }.items():
        with pytest.raises(PolicyError, match=name):
            Policy.parse({**entries, "column": [{**entries["column"][0], **change}]})
    with pytest.raises(PolicyError, match="two roles"):
        Policy.parse({**entries, "keep": ["text_intermediate"]})
