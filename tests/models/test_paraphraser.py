# ruff: noqa: E402  (what needs torch is imported once it is known to be there)
"""The causal model that ships: its size, its card, and that DP-Paraphrase with it keeps what its card says."""

import hashlib
import json
import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from dptext_etl.inference.clipping import CLIP_FILE, read_clip
from dptext_etl.mechanisms.dp_paraphrase import DPParaphrase

from ..computing import PRECISE, place_name
from .kept_words import kept, unseen

FOLDER = Path(__file__).resolve().parents[2] / "models" / "dptext_etl_models" / "english-paraphraser"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the small causal model does not lie beside the tests")
ROWS = 24


@pytest.fixture(scope="module")
def card():
    return (FOLDER / "README.md").read_text(encoding="utf-8")


def test_it_is_small_and_its_card_names_its_weights_and_licences(card):
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 8_000_000
    assert hashlib.sha256((FOLDER / "model.safetensors").read_bytes()).hexdigest() in card
    assert {path.suffix for path in FOLDER.iterdir()} <= {".json", ".md", ".safetensors"}
    assert "CC BY-SA 4.0" in card
    facts = json.loads((FOLDER / "training.json").read_text())
    assert (facts["training_provenance"], facts["settings"]["kind"]) == ("public", "causal")


def test_it_is_the_default_and_its_range_is_in_its_folder():
    pytest.importorskip("dptext_etl_models", reason="dptext-etl-models is not installed")
    assert DPParaphrase(epsilon=10.0).model == FOLDER.name
    assert DPParaphrase(epsilon=10.0, model=str(FOLDER)).clip_range == read_clip(FOLDER / CLIP_FILE)


@pytest.mark.parametrize("computing", PRECISE, ids=place_name, indirect=True)
def test_rarer_words_survive_a_large_epsilon_and_not_a_small_one(card, computing, shared_data):
    floors = re.search(r"at ε = (\d+): (\d+) % of Snips, (\d+) % of SST-2, and less than (\d+) %", card)
    assert floors, "the card states its floors"
    epsilon, snips, films, others = map(int, floors.groups())
    texts = unseen(shared_data, ROWS)
    mechanism = DPParaphrase(epsilon=float(epsilon), l_max=28, model=str(FOLDER))
    for name, floor in (("Snips", snips), ("SST-2", films)):
        own, blind = kept(mechanism, texts[name])
        assert own > floor / 100
        assert blind < others / 100
    own, _ = kept(mechanism.model_copy(update={"epsilon": 1.0}), texts["Snips"])
    assert own < 0.05
