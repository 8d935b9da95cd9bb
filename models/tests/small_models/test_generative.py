# ruff: noqa: E402  (what needs torch is imported once it is known to be there)
"""The models that ship for DP-Prompt and DP-Paraphrase: a release with them keeps what their cards say."""

import json
import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from dptext_etl_models.inference.clipping import CLIP_FILE, read_clip
from dptext_etl_models.mechanisms.dp_paraphrase import DPParaphrase
from dptext_etl_models.mechanisms.dp_prompt import DPPrompt
from models.tests.small_models.kept_words import kept, unseen
from tests.computing import PRECISE, place_name

PACKAGE = Path(__file__).resolve().parents[3] / "models" / "dptext_etl_models"
pytestmark = pytest.mark.skipif(not PACKAGE.is_dir(), reason="the small models do not lie next to the tests")
MODELS = {"english-denoiser": DPPrompt, "english-paraphraser": DPParaphrase}
ROWS = 24


@pytest.fixture(params=MODELS)
def model(request):
    """The folder of a model, and the mechanism that it is for."""
    return PACKAGE / request.param, MODELS[request.param]


def test_it_learnt_from_public_texts_and_its_range_is_in_its_folder(model):
    folder, mechanism = model
    facts = json.loads((folder / "training.json").read_text())
    assert facts["training_provenance"] == "public"
    assert {item["name"] for item in facts["corpora"]} == {"sgd_utterances", "wiki_en"}
    assert facts["settings"]["kind"] == ("causal" if mechanism is DPParaphrase else "seq2seq")
    assert mechanism(epsilon=10.0, model=str(folder)).clip_range == read_clip(folder / CLIP_FILE)


def test_the_causal_one_is_the_default_of_its_mechanism():
    pytest.importorskip("dptext_etl_models", reason="dptext-etl-models is not installed")
    assert DPParaphrase(epsilon=10.0).model == "english-paraphraser"


@pytest.mark.parametrize("computing", PRECISE, ids=place_name, indirect=True)
def test_rarer_words_survive_a_large_epsilon_and_not_a_small_one(model, computing, shared_data):
    folder, mechanism = model
    card = (folder / "README.md").read_text(encoding="utf-8")
    floors = re.search(r"at ε = (\d+): (\d+) % of Snips, (\d+) % of SST-2, and less than (\d+) %", card)
    assert floors, "the card states its floors"
    epsilon, snips, films, others = map(int, floors.groups())
    texts = unseen(shared_data, ROWS)
    made = mechanism(epsilon=float(epsilon), l_max=28, model=str(folder))
    for name, floor in (("Snips", snips), ("SST-2", films)):
        own, blind = kept(made, texts[name])
        assert own > floor / 100
        assert blind < others / 100
    own, _ = kept(made.model_copy(update={"epsilon": 1.0}), texts["Snips"])
    assert own < 0.05
