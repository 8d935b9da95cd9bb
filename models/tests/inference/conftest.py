"""Small masked models, once per session."""

import pytest

from dptext_etl.device import Computing
from dptext_etl_models.mechanisms.dpmlm import DPMLM
from models.tests.inference.barts import LENGTH, TEXTS, WIDTH
from models.tests.model_makers import CLIP, make
from tests.computing import PLACES, PRECISE, place_name, settle


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory):
    made = {}

    def of(kind):
        if kind not in made:
            made[kind] = make(kind, tmp_path_factory.mktemp(kind))
        return made[kind]

    return of


@pytest.fixture
def of_kind(folder_of):
    """DP-MLM with a model of a kind, which computes wherever the test says."""

    def of(kind="roberta", **options):
        return DPMLM(**{"epsilon": 20.0, "model": folder_of(kind), "clip": CLIP, **options})

    return of


@pytest.fixture
def mechanism(of_kind, monkeypatch):
    """The same on the CPU in float32, for what does not depend on it."""
    settle(monkeypatch, PRECISE[0])
    return of_kind


@pytest.fixture
def whole(mechanism):
    """A scorer of whole numbers in the place of a model's (`masked_loops.Whole`)."""
    from dptext_etl_models.inference.masked.session import MaskedScorer
    from models.tests.inference.masked_loops import Whole  # needs torch

    def of(**options):
        made = mechanism(**options)
        real = made.scorer()
        model = Whole(len(real.lexicon.tokens))
        frame = real.frame._replace(window=model.window)
        return made, MaskedScorer(model, frame, real.lexicon, made.clip_range)

    return of


@pytest.fixture(scope="module")
def tokenizer():
    from dptext_etl_models.inference import language_model

    return language_model.tokenizer(language_model.model_files("example-bart"))


@pytest.fixture(scope="module", params=PLACES, ids=place_name)
def bart(tokenizer, request):
    import torch
    import transformers

    sizes = {"layers": 1, "attention_heads": 2, "ffn_dim": 24}
    config = transformers.BartConfig(
        vocab_size=len(tokenizer), d_model=WIDTH, max_position_embeddings=24, init_std=0.5, dropout=0.0,
        forced_eos_token_id=None, pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2,
        **{f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sizes.items()},
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        made = transformers.BartForConditionalGeneration(config).eval().requires_grad_(requires_grad=False)
    return made.to(request.param.device, getattr(torch, request.param.dtype))


@pytest.fixture(autouse=True)
def _same_place(request, monkeypatch):
    """A mechanism loads its model where the test has its own."""
    if "bart" in request.fixturenames:
        bart = request.getfixturevalue("bart")
        settle(monkeypatch, Computing(bart.device.type, str(bart.dtype).removeprefix("torch.")))


@pytest.fixture
def model(bart, tokenizer):
    from dptext_etl_models.inference.sequence_model import SequenceModel

    made = SequenceModel(bart, tokenizer, length=LENGTH, beams=3)
    made.rows = len(TEXTS)
    return made


@pytest.fixture
def folder(bart, tokenizer, tmp_path):
    """The model as a folder; its list of kept columns is written by the tests."""
    bart.save_pretrained(tmp_path / "bart")
    tokenizer.save_pretrained(tmp_path / "bart")
    return tmp_path / "bart"
