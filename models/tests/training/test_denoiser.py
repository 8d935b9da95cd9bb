# ruff: noqa: E402  (what needs torch is imported once it is known to be there)
"""Training of denoisers from nothing: their inputs and outputs, and mechanisms that load them."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from dptext_etl.embeddings import WordVectors
from dptext_etl_models.inference.model_generator import ModelGenerator
from dptext_etl_models.mechanisms.dp_paraphrase import DPParaphrase
from dptext_etl_models.mechanisms.dp_prompt import DPPrompt
from dptext_etl_models.training import denoiser
from dptext_etl_models.training.denoiser import Corruption, Recipe, Settings, new_model

pytestmark = pytest.mark.usefixtures("plain")
SMALL = {"vocabulary": 900, "pieces": 50, "words": 8, "places": 128, "width": 32, "layers": 1, "heads": 2, "inner": 32}
KINDS = {kind: Settings(kind=kind, **SMALL, rows=8, steps=4, warmup=1) for kind in ("seq2seq", "causal")}
MECHANISMS = {"seq2seq": DPPrompt, "causal": DPParaphrase}


@pytest.fixture(scope="module")
def texts():
    words, rng = np.array(WordVectors.load(limit=500).words), np.random.default_rng(5)
    return [" ".join(rng.choice(words, int(rng.integers(3, 8)))).capitalize() + "." for _ in range(200)]


@pytest.fixture(scope="module")
def tokenizer(texts, tmp_path_factory):
    return denoiser.tokenizer_in(tmp_path_factory.mktemp("tokens"), texts, KINDS["seq2seq"])


def test_texts_are_spoilt_as_the_recipe_says_and_targets_are_whole(tokenizer, texts):
    backend = tokenizer.backend_tokenizer
    never = Recipe(copied=1.0, random=0.0, bare=0.0)
    assert Corruption(backend, never).pair(texts[0], np.random.default_rng(1)) == (texts[0], texts[0])
    spoilt = Corruption(backend, Recipe(copied=0.0, random=0.0))
    pairs = [spoilt.pair(text, np.random.default_rng(row)) for row, text in enumerate(texts)]
    assert [written for _, written in pairs] == texts
    assert sum(read.split() != written.rstrip(".").lower().split() for read, written in pairs) > len(texts) / 2
    read, written = Corruption(backend, Recipe(random=1.0)).pair(texts[0], np.random.default_rng(1))
    assert (read, len(read.split())) == (written, len(texts[0].split()))


def test_answers_end_and_prompts_are_those_of_the_mechanisms(tokenizer, texts):
    for kind, settings in KINDS.items():
        ((prompt, answer),) = denoiser.Pairs(tokenizer, texts, settings).encoded([("the people", "The people.")])
        frame = settings.template.replace("{text}", "the people")
        assert tokenizer.decode(prompt).split()[:2] == tokenizer.decode(tokenizer(frame)["input_ids"]).split()[:2]
        assert (prompt[-1] == tokenizer.eos_token_id) == (kind == "seq2seq")
        assert tokenizer.decode(answer, skip_special_tokens=True) == "the people."
        assert answer[-1] == tokenizer.eos_token_id


def test_the_loss_counts_answers_alone(tokenizer, texts):
    for kind, settings in KINDS.items():
        model = new_model(tokenizer, settings).eval()
        rows = denoiser.Pairs(tokenizer, texts, settings).at(0)
        with torch.inference_mode():
            together = float(denoiser.loss(model, rows, kind))
            alone = [float(denoiser.loss(model, [row], kind)) * len(row[1]) for row in rows]
        assert together == pytest.approx(sum(alone) / sum(len(answer) for _, answer in rows), rel=1e-4)


def test_the_causal_model_copies_before_it_is_trained(tokenizer):
    """What follows a word is what followed it before: in four of five places of random words."""
    model, words = new_model(tokenizer, KINDS["causal"]).eval(), WordVectors.load(limit=400).words
    rows = np.random.default_rng(2).permutation(len(words))[:120].reshape(6, 20)
    ids = torch.tensor([[tokenizer.convert_tokens_to_ids(words[at]) for at in [*row, *row]] for row in rows])
    with torch.inference_mode():
        said = model(input_ids=ids).logits[:, 20:-1].argmax(-1)
    assert float((said == ids[:, 21:]).float().mean()) > 0.8


@pytest.mark.parametrize("kind", KINDS)
def test_a_mechanism_takes_what_was_trained(tokenizer, texts, tmp_path, kind):
    denoiser.train(tokenizer, texts, KINDS[kind], tmp_path / "whole", every=2)
    facts = json.loads((tmp_path / "whole" / "training.json").read_text())
    assert (facts["steps"], facts["training_provenance"]) == (4, "public")
    assert facts["settings"]["template"] == MECHANISMS[kind].model_fields["template"].default
    mechanism = MECHANISMS[kind](epsilon=20.0, l_max=4, model=str(tmp_path / "whole"), clip=(-6.0, 6.0))
    assert isinstance(mechanism.generator, ModelGenerator)
    mechanism.probe()
