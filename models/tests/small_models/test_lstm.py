# ruff: noqa: E402  (what needs torch is imported once it is known to be there)
"""The LSTM autoencoder that ships: that it rebuilds as much as its card says."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from dptext_etl_models.mechanisms.adept import Adept
from models.tests.small_models.kept_words import share, unseen

FOLDER = Path(__file__).resolve().parents[3] / "models" / "dptext_etl_models" / "english-lstm"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the small LSTM does not lie next to the tests")


@pytest.fixture(scope="module")
def card():
    return (FOLDER / "README.md").read_text(encoding="utf-8")


def rebuilt(mechanism, texts):
    """What the decoder writes from latents that are clipped as in a release, without noise."""
    model = mechanism.latent_model
    latents = model.encode(texts).astype(np.float64)
    norms = np.linalg.norm(latents, axis=1, keepdims=True)
    return model.decode((latents * np.minimum(1, mechanism.clip / norms)).astype(np.float32))


def test_it_learnt_from_public_texts_and_is_the_default():
    assert json.loads((FOLDER / "training.json").read_text())["training_provenance"] == "public"
    assert Adept(epsilon=10.0, noise="laplace").model == FOLDER.name


def test_it_rebuilds_texts_that_it_never_saw(card, shared_data):
    floor, others = map(
        int, re.search(r"without noise: (\d+) % of Snips, and less than (\d+) % in those of other texts", card).groups()
    )
    texts = unseen(shared_data, 100)["Snips"]
    outputs = rebuilt(Adept(epsilon=10.0, noise="laplace", model=str(FOLDER)), texts)
    assert share(texts, outputs) > floor / 100
    assert share(texts, outputs[1:] + outputs[:1]) < others / 100
