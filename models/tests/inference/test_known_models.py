"""Models and tokenizers that are read without transformers are those that transformers reads, to the last bit."""

import json

import numpy as np
import pytest

from dptext_etl_models.inference import language_model
from dptext_etl_models.inference.masked import vocabulary
from dptext_etl_models.inference.masked.model import MaskedModel
from dptext_etl_models.inference.masked.vocabulary import MaskedVocabulary
from dptext_etl_models.mechanisms.dpmlm import DPMLM
from models.tests.model_makers import example_folder

torch = pytest.importorskip("torch")
roberta = pytest.importorskip("dptext_etl_models.inference.masked.roberta")
save = pytest.importorskip("safetensors.torch")


@pytest.fixture(params=["example-masked", "english-small"])
def files(request):
    return language_model.model_files(request.param)


@pytest.fixture
def folder(tmp_path):
    return example_folder("masked", tmp_path / "model")


def rows():
    random = np.random.default_rng(1)
    totals, columns = random.integers(20, 39, 5), random.integers(0, 20, (5, 3))
    ids = np.where(np.arange(40) < totals[:, None], random.integers(5, 300, (5, 40)), 1)
    return ids, totals, np.zeros((5, 40), np.int64), columns


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_scores_have_the_bits_of_transformers(files, dtype):
    before = torch.random.get_rng_state()
    made, usual = roberta.masked_model(files, "cpu", dtype), language_model.masked_model(files, "cpu", dtype)
    assert isinstance(made, roberta.Roberta)
    assert type(usual).__name__ == "RobertaForMaskedLM"
    assert torch.equal(torch.random.get_rng_state(), before)
    ours, theirs = (MaskedModel(model, np.arange(50, 250), 64) for model in (made, usual))
    assert ours.shortened
    assert (ours.window, ours.parameters) == (theirs.window, theirs.parameters)
    assert torch.equal(ours.embeddings, theirs.embeddings)
    assert torch.equal(ours.forward(*rows()), theirs.forward(*rows()))
    ours._way, theirs._way = ours._whole, theirs._whole
    assert torch.equal(ours.forward(*rows()), theirs.forward(*rows()))


def test_tokens_are_those_of_transformers(files):
    made, usual = vocabulary.tokenizer(files), language_model.tokenizer(files)
    assert isinstance(made, vocabulary.Tokens)
    assert (len(made), sorted(usual.all_special_ids)) == (len(usual), made.all_special_ids)
    for name in ("mask_token_id", "pad_token_id", "sep_token_id", "unk_token_id"):
        assert getattr(made, name) == getattr(usual, name)
    usual.backend_tokenizer.no_truncation()  # anyone who pads or cuts says so again with every call
    usual.backend_tokenizer.no_padding()
    assert made.backend_tokenizer.to_str() == usual.backend_tokenizer.to_str()
    ours, theirs = MaskedVocabulary(made), MaskedVocabulary(usual)
    words = ["good", "Zxqv", "<mask>", "</s>", "naïve", "😀", "don’t"]
    assert list(map(list, ours.encode(words))) == list(map(list, theirs.encode(words)))
    assert (ours.frame(64), ours.whole_words()[0]) == (theirs.frame(64), theirs.whole_words()[0])


def test_a_release_needs_no_model_of_transformers(monkeypatch, folder):
    """A folder that no process has read: what transformers would read is asked for by no one."""
    configuration = json.loads((folder / "config.json").read_bytes())
    (folder / "config.json").write_text(json.dumps({**configuration, "layer_norm_eps": 3e-6}))
    for name in ("masked_model", "tokenizer"):
        monkeypatch.setattr(language_model, name, lambda *_: pytest.fail("transformers read it"))
    monkeypatch.setenv("DPTEXT_DEVICE", "cpu")
    made = DPMLM(epsilon=25.0, model=str(folder), clip=(-6.0, 10.0))
    assert made.scorer().model.shortened


@pytest.mark.parametrize("change", [
    {"hidden_act": "relu"}, {"is_decoder": True}, {"tie_word_embeddings": False},
    {"position_embedding_type": "relative_key"}, {"architectures": ["RobertaForCausalLM"]},
    {"model_type": "camembert"}, {"num_attention_heads": 3}, {"num_hidden_layers": 3}, {"intermediate_size": 65},
    {"pad_token_id": None}, {"quantization_config": {}},
])  # fmt: skip
def test_what_is_not_known_is_left_to_transformers(folder, change):
    assert roberta.read(folder, torch.float32) is not None
    configuration = json.loads((folder / "config.json").read_bytes())
    (folder / "config.json").write_text(json.dumps({**configuration, **change}))
    assert roberta.read(folder, torch.float32) is None


def test_other_weights_are_left_to_transformers(folder):
    weights = save.load_file(folder / "model.safetensors")
    save.save_file({**weights, "roberta.pooler.dense.bias": torch.zeros(32)}, folder / "model.safetensors")
    assert roberta.read(folder, torch.float32) is None
    save.save_file({name: weights[name] for name in list(weights)[1:]}, folder / "model.safetensors")
    assert roberta.read(folder, torch.float32) is None
    save.save_file(weights, folder / "model.safetensors")
    assert roberta.read(folder, torch.float32) is not None
    save.save_file(weights, folder / "more.safetensors")
    assert roberta.read(folder, torch.float32) is None


TOKENIZERS = [
    ("tokenizer_config.json", {"tokenizer_class": "RobertaTokenizer"}),
    ("tokenizer_config.json", {"add_prefix_space": True}), ("tokenizer_config.json", {"mask_token": "<other>"}),
    ("tokenizer_config.json", {"mask_token": {"content": "<mask>", "lstrip": True}}),
    ("tokenizer_config.json", {"extra_special_tokens": ["<x>"]}), ("tokenizer.json", {"post_processor": None}),
    ("tokenizer.json", {"truncation": {"max_length": 4}}), ("tokenizer.json", {"padding": {"x": 1}}),
    ("special_tokens_map.json", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change"), TOKENIZERS)
def test_other_tokenizers_are_left_to_transformers(folder, name, change):
    assert vocabulary.read_tokens(folder) is not None
    stated = json.loads((folder / name).read_bytes()) if (folder / name).exists() else {}
    (folder / name).write_text(json.dumps({**stated, **change}))
    assert vocabulary.read_tokens(folder) is None
