"""`dptext preview`: before and after, on public sentences."""

import json

import pytest

from dptext_etl import available, load
from dptext_etl.cli.commands import explain
from dptext_etl.errors import PolicyError
from dptext_etl.mechanisms.custext import CusText
from tests.quick import quick

from ..command_line import dptext, facts, refused, require_models

SENTINEL = "zzqsentinelqzz"


def test_previews_draw_at_several_epsilons_under_different_keys(small_vectors):
    found = facts("preview", "custext", "-p", f"vectors={small_vectors}", "-p", "k=5")
    assert tuple(found) == explain.PREVIEW_KEYS
    assert found["ledgered"] is False
    assert [row["before"] for row in found["sentences"]] == list(explain.SENTENCES)
    assert all(
        [item["epsilon"] for item in row["after"]] == list(CusText.preview_epsilons) for row in found["sentences"]
    )
    words = ("preview", "-p", f"vectors={small_vectors}", "-p", "k=5", "--public-text", "the good " * 50)
    assert facts(*words) != facts(*words)


SLOW = ("adept", "dp_paraphrase", "dp_prompt", "dpbart")
"""Models that answer as `dpmlm` does, by the same path; the contract suite draws from each."""


@pytest.mark.parametrize(
    "name", quick(sorted(available(), key=SLOW.__contains__), first=sum(name not in SLOW for name in available()))
)
def test_every_mechanism_has_a_preview_or_says_what_it_lacks(name, monkeypatch):
    from dptext_etl_models.inference import language_model

    """Offline, with the installed models: nothing is downloaded, and the drawn text is another one."""
    monkeypatch.setattr(language_model, "_downloaded", None)
    done = dptext("preview", name, "--public-text", "the good hotel was clean", "--epsilon", 3, "--json")
    if done.exit_code:
        assert done.exit_code == 5
        said, hint = done.stderr.splitlines()
        assert "needs a language model" in said or "is not installed" in said
        assert hint.startswith("Hint: ")
        return
    found = json.loads(done.stdout)
    assert ("model" in found["taken"]) is ("model" in load(name).model_fields)
    (row,) = found["sentences"]
    (item,) = row["after"]
    assert item["spend"] > 0
    assert item["text"] != row["before"]


def test_a_preview_takes_the_usual_model_before_the_small_one(monkeypatch):
    """The machine decides: a model of the hub's cache, else the one that ships, else a sentence."""
    require_models()
    from dptext_etl_models.inference import language_model

    kind, here = load("dpmlm"), set()
    monkeypatch.setattr(language_model, "is_here", lambda model: model in here)
    with pytest.raises(
        PolicyError, match=r"none for it: it is meant for FacebookAI(.|\n)*pip install ./models"
    ) as caught:
        kind.preview_parameters({})
    assert "hf download" in caught.value.hint
    here.add("english-small")
    assert kind.preview_parameters({}) == {"model": "english-small"}
    here.add("FacebookAI/roberta-base")
    assert kind.preview_parameters({}) == {"model": "FacebookAI/roberta-base"}
    assert kind.preview_parameters({"model": "elsewhere"}) == {}


def test_a_preview_of_gaussian_noise_assumes_a_bound_on_the_records():
    require_models()
    kind = load("dpbart")
    assert kind.preview_parameters({"model": "m"}) == {"n_rec": 10_000}
    assert kind.preview_parameters({"model": "m", "noise": "laplace"}) == {}
    assert kind.preview_parameters({"model": "m", "n_rec": 5}) == {}


def test_a_model_is_here_by_folder_by_name_or_from_the_hubs_cache(tmp_path, monkeypatch):
    require_models()
    from dptext_etl_models.inference import language_model

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    assert language_model.is_here(str(tmp_path))
    assert not language_model.is_here(str(tmp_path / "nowhere"))
    assert not language_model.is_here("a/b")
    snapshot = tmp_path / "hub" / "models--a--b" / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").touch()
    refs = tmp_path / "hub" / "models--a--b" / "refs"
    refs.mkdir()
    (refs / "main").write_text("c0ffee")
    assert language_model.is_here("a/b")


def test_a_preview_takes_no_text_unless_it_is_called_public(small_vectors):
    refused = dptext("preview", "--text", SENTINEL)
    assert refused.exit_code == 2
    assert SENTINEL not in refused.output
    base = ("preview", "-p", f"vectors={small_vectors}", "-p", "k=5", "--public-text", "the good words", "--epsilon", 3)
    (row,) = facts(*base)["sentences"]
    assert row["before"] == "the good words"
    assert [(item["epsilon"], item["spend"]) for item in row["after"]] == [(3.0, 9.0)]


@pytest.mark.thorough
def test_a_preview_of_a_model_that_fails_shows_no_random_words(monkeypatch):
    """Its words would look like words of a small epsilon."""
    require_models()
    from dptext_etl_models.inference.masked.model import MaskedModel
    from dptext_etl_models.mechanisms.dpmlm import DPMLM

    DPMLM(epsilon=10.0, model="example-masked").scorer()  # built while the model is whole
    monkeypatch.setattr(MaskedModel, "forward", lambda *_: (_ for _ in ()).throw(RuntimeError("inside")))
    assert "fails on public texts" in refused("preview", "dpmlm", "-p", "model=example-masked")
