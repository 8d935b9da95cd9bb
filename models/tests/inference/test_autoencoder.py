# ruff: noqa: E402  (what needs torch is imported once it is known to be there)
"""ADePT's autoencoder: constant shapes, its folder, its words, rows that never meet."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from dptext_etl.errors import PolicyError
from dptext_etl_models.inference import lstm
from dptext_etl_models.inference.lstm import END, PAD, UNKNOWN, Autoencoder, AutoencoderModel, Sizes
from dptext_etl_models.mechanisms.adept import Adept
from models.tests.latent_toys import Given

WORDS = ["the", "good", "film", ".", ",", "don", "'", "t", "doctor", "café"]
TEXTS = ["The good, film.", "", "  ", "<SOS> <PAD> <EOS>", "x" * 10_000, "good " * 500, "don't", "CAFÉ 😀"]
LENGTH = 6


@pytest.fixture(scope="module")
def model():
    tokenizer = lstm.word_tokenizer(WORDS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        made = Autoencoder(Sizes(tokenizer.get_vocab_size(), embedding=8, hidden=16, length=LENGTH))
    return AutoencoderModel(made.eval().requires_grad_(requires_grad=False), tokenizer, beams=2)


def words(model, row):
    return [model.tokenizer.id_to_token(number) for number in row]


def test_every_text_has_one_shape(model):
    places, targets = model.ids(TEXTS), model.targets(TEXTS)
    assert places.shape == targets.shape == (len(TEXTS), LENGTH)
    assert words(model, places[0].tolist()) == ["the", "good", ",", "film", ".", "<EOS>"]
    assert places[1].tolist() == [PAD] * (LENGTH - 1) + [END]
    assert targets[1].tolist() == [END] + [PAD] * (LENGTH - 1)
    assert words(model, targets[6].tolist())[:4] == ["don", "'", "t", "<EOS>"]
    assert (places[:, -1] == END).all()
    assert model.encode(TEXTS).shape == (len(TEXTS), model.size) == (len(TEXTS), 32)


def test_names_of_special_words_are_ordinary_text(model):
    row = model.ids(["<EOS> <PAD>"])[0].tolist()
    assert set(row[:-1]) == {UNKNOWN}


def test_a_latent_is_bit_equal_whatever_its_mates(model):
    whole = model.encode(TEXTS)
    order = np.random.default_rng(2).permutation(len(TEXTS))
    assert np.array_equal(model.encode([TEXTS[i] for i in order]), whole[order])
    mates = model.encode(["good", *["doctor " * i for i in range(7)]])
    assert np.array_equal(mates[0], model.encode(["good", *[""] * 7])[0])


def test_outputs_are_words_of_the_vocabulary(model):
    latents = np.random.default_rng(4).normal(size=(64, 32)).astype(np.float32) * 3
    for text in model.decode(latents):
        assert set(text.split()) <= set(WORDS)
        assert len(text.split()) <= LENGTH


def test_the_first_words_are_those_of_the_greatest_scores(model):
    """One beam, by hand from the module's own steps."""
    greedy = AutoencoderModel(model.model, model.tokenizer, beams=1)
    latents = np.random.default_rng(6).normal(size=(5, 32)).astype(np.float32)
    scores = model.model.scores(model.model(torch.from_numpy(latents), torch.full((5, LENGTH), END))[:, 0])
    scores[:, [PAD, 1, UNKNOWN]] = -torch.inf
    first = [words(model, [number])[0] for number in scores.argmax(1).tolist()]
    for text, word in zip(greedy.decode(latents), first, strict=True):
        assert text.split()[:1] == ([] if word == "<EOS>" else [word])


def test_a_folder_keeps_everything(model, tmp_path):
    lstm.save(tmp_path, model.model, model.tokenizer, provenance="public")
    again, tokenizer = lstm.load(tmp_path)
    assert np.array_equal(AutoencoderModel(again, tokenizer).encode(TEXTS), model.encode(TEXTS))
    assert json.loads((tmp_path / "config.json").read_bytes())["provenance"] == "public"
    before = (tmp_path / "model.safetensors").read_bytes()
    lstm.save(tmp_path, again, tokenizer)
    assert (tmp_path / "model.safetensors").read_bytes() == before
    mechanism = Adept(epsilon=500.0, n_rec=100, model=str(tmp_path))
    key = pa.array([bytes([row]) * 32 for row in range(3)], pa.binary(32))
    out = mechanism.release(pa.array(["good", None, ""]), Given(key))
    assert out.text.is_null().to_pylist() == [False, True, False]


def test_a_folder_of_something_else_is_refused(tmp_path):
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(PolicyError, match="loading the model failed"):
        Adept(epsilon=500.0, n_rec=100, model=str(tmp_path)).latent_model  # noqa: B018


def test_clipping_for_training_is_that_of_the_release():
    latents = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]], requires_grad=True)
    kept = lstm.clipped(latents, 1.0)
    assert torch.allclose(kept, torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]))
    kept.sum().backward()
    assert torch.isfinite(latents.grad).all()


def test_training_sees_what_decoding_does(model):
    """Teacher forcing with the words that decoding chose gives the scores that chose them."""
    latents = torch.randn(3, 32, generator=torch.Generator().manual_seed(8))
    state, ids, stepwise = model.model.state(latents), torch.full((3,), 1), []
    targets = []
    for _ in range(LENGTH):
        scores, state = model.model.step(ids, state)
        ids = scores.argmax(1)
        stepwise.append(scores)
        targets.append(ids)
    at_once = model.model.scores(model.model(latents, torch.stack(targets, 1)))
    assert torch.allclose(at_once, torch.stack(stepwise, 1), atol=1e-5)
