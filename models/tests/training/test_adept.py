# ruff: noqa: E402  (what needs torch is imported once it is known to be there)
"""Training of ADePT's autoencoder on a handful of words."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")


from dptext_etl_models.inference import lstm
from dptext_etl_models.inference.lstm import AutoencoderModel
from dptext_etl_models.mechanisms.adept import Adept
from dptext_etl_models.training import adept

pytestmark = pytest.mark.usefixtures("one_thread")
WORDS = ("the", "a", "cat", "dog", "bird", "house", "sings", "sleeps", "runs", "near")
SETTINGS = adept.Settings(
    vocabulary=13, embedding=16, hidden=48, length=6, clip=2.0, rows=32, steps=400, rate=1e-2, warmup=10
)  # fmt: skip


@pytest.fixture(scope="module")
def texts() -> list[str]:
    draw = np.random.default_rng(1)
    return [" ".join(draw.choice(WORDS[:-1], size=draw.integers(1, 5))) for _ in range(2000)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory, texts) -> Path:
    folder = tmp_path_factory.mktemp("adept")
    adept.train(texts, SETTINGS, folder, facts={"corpora": [{"name": "toy"}]})
    return folder


def test_texts_are_rebuilt_from_clipped_latents(trained, texts) -> None:
    model, tokenizer = lstm.load(trained)
    reader = AutoencoderModel(model, tokenizer)
    latents = torch.from_numpy(reader.encode(texts[:100]))
    rebuilt = reader.decode(lstm.clipped(latents, SETTINGS.clip).numpy())
    assert sum(one == two for one, two in zip(texts, rebuilt, strict=False)) >= 70
    assert len(set(reader.decode(np.zeros_like(latents.numpy())))) == 1


def test_the_loss_clips_latents_at_the_bound(trained, texts) -> None:
    model, tokenizer = lstm.load(trained)
    reader = AutoencoderModel(model, tokenizer)
    assert torch.equal(adept.in_front(reader.targets(texts[:50])), reader.ids(texts[:50])), "padding goes to the front"
    rows = reader.targets(texts[:50]).numpy().astype(np.int32)
    norms = torch.from_numpy(reader.encode(texts[:50])).norm(dim=1)
    assert float(norms.min()) > 0.5
    inside = float(adept.loss(model, rows, float(norms.max()) + 1))
    assert float(adept.loss(model, rows, float(norms.max()) * 2)) == pytest.approx(inside)
    assert float(adept.loss(model, rows, 0.1)) > inside + 0.5


def test_words_of_the_vocabulary_are_the_most_frequent_ones() -> None:
    assert adept.common_words(["The cat.", "the dog, the", "cat cat a"], 4) == ["cat", "the", ",", "."]


def test_a_mechanism_loads_what_was_trained_and_provenance_is_in_the_configuration(trained) -> None:
    mechanism = Adept(epsilon=500.0, n_rec=1000, model=str(trained), clip=SETTINGS.clip)
    assert mechanism.latent_model.size == 2 * SETTINGS.hidden
    written = json.loads((trained / "config.json").read_bytes())
    assert written["corpora"] == [{"name": "toy"}]
    assert (written["clip"], written["steps"], written["hidden"]) == (2.0, 400, 48)
