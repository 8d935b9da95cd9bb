"""Models as artifacts: found, hashed, refused, loaded once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import dptext_etl_models
from dptext_etl.artifacts import Artifact
from dptext_etl.errors import ArtifactError, PolicyError
from dptext_etl_models.inference import language_model
from dptext_etl_models.inference.example_model import KINDS
from models.tests.model_makers import example_folder

torch = pytest.importorskip("torch")
CLASSES = {
    "masked": ("masked_model", "RobertaForMaskedLM"),
    "causal": ("causal_model", "GPT2LMHeadModel"),
    "seq2seq": ("sequence_model", "T5ForConditionalGeneration"),
    "bart": ("sequence_model", "BartForConditionalGeneration"),
}


@pytest.fixture
def folder(tmp_path):
    return example_folder("masked", tmp_path / "a model")


@pytest.mark.parametrize("kind", KINDS)
def test_examples_are_models_with_tokenizers(kind):
    files = language_model.model_files(f"example-{kind}")
    assert all(role.startswith("model/") for role in files)
    loader, name = CLASSES[kind]
    loaded = getattr(language_model, loader)(files)
    assert type(loaded).__name__ == name
    assert not loaded.training
    assert not any(part.requires_grad for part in loaded.parameters())
    assert loaded.config._attn_implementation == "sdpa"
    assert getattr(language_model, loader)(files) is loaded
    half = getattr(language_model, loader)(files, "cpu", "bfloat16")
    assert half.dtype is torch.bfloat16


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["good film", "zxqv <mask> </s> <pad> <s>", "naïve 😀 我们 \x00", ""])
def test_any_text_is_ordinary_text(kind, text):
    if kind == "seq2seq" and "</s>" in text:
        pytest.skip("pieces of a unigram model may spell a special token: `generative_prompts` spells them out")
    tokenizer = language_model.tokenizer(language_model.model_files(f"example-{kind}"))
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert not set(ids) & set(tokenizer.all_special_ids)
    assert tokenizer.decode(ids).strip() == text.strip()


def test_a_model_is_its_files_and_not_its_name(folder):
    here = language_model.model_files(str(folder))
    assert language_model.identity(here) == language_model.identity(language_model.model_files("example-masked"))
    configuration = json.loads((folder / "config.json").read_bytes())
    (folder / "config.json").write_text(json.dumps({**configuration, "layer_norm_eps": 1e-6}))
    assert language_model.identity(language_model.model_files(str(folder))) != language_model.identity(here)


def test_models_are_read_from_where_they_were_put(folder, tmp_path):
    arrived = {}
    for number, (role, item) in enumerate(language_model.model_files(str(folder)).items()):
        path = tmp_path / f"{number}.bin"
        path.write_bytes(item.path.read_bytes())
        arrived[role] = Artifact.open(path, item.sha256)
    assert language_model.placed_files({**arrived, "other": 1, "clip": arrived["model/config.json"]}) == arrived
    language_model._LOADED.clear()
    assert type(language_model.masked_model(arrived)).__name__ == "RobertaForMaskedLM"


def test_pickled_weights_are_never_read(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(PolicyError, match="pickled weights"):
        language_model.model_files(str(folder))


def test_a_model_s_own_code_is_never_run(folder, tmp_path):
    """A configuration that names a module of the folder is loaded only as a model that transformers itself knows."""
    configuration = json.loads((folder / "config.json").read_bytes())
    trap = {"auto_map": {"AutoModelForMaskedLM": "trap.Model", "AutoConfig": "trap.Config"}, "model_type": "unknown-x"}
    (folder / "config.json").write_text(json.dumps({**configuration, **trap}))
    (folder / "trap.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w').write('x')")
    with pytest.raises(PolicyError, match="loading the model failed") as caught:
        language_model.masked_model(language_model.model_files(str(folder)))
    assert caught.value.__context__ is None
    assert not (tmp_path / "sprung").exists()


OUTSIDE = {
    "a path outside": "../elsewhere/model.safetensors", "an absolute path": "/elsewhere/model.safetensors",
    "a file that is not there": "other.safetensors", "pickled weights": "pytorch_model.bin", "a number": 5,
}  # fmt: skip


@pytest.mark.parametrize("name", OUTSIDE.values(), ids=OUTSIDE)
def test_an_index_names_only_weights_of_the_folder(folder, tmp_path, name):
    (tmp_path / "elsewhere").mkdir()
    (folder / "model.safetensors").rename(tmp_path / "elsewhere/model.safetensors")
    (folder / "unused.safetensors").write_bytes(b"")
    (folder / "pytorch_model.bin").write_bytes(b"")
    index = {"metadata": {}, "weight_map": {"lm_head.bias": name}}
    (folder / language_model.INDEX).write_text(json.dumps(index))
    with pytest.raises(PolicyError, match=r"no \*\.safetensors files of its folder"):
        language_model.model_files(str(folder))
    files = {f"model/{path.name}": Artifact.open(path) for path in folder.iterdir()}  # as a worker gets them
    with pytest.raises(PolicyError, match=r"no \*\.safetensors files of its folder"):
        language_model.masked_model(files)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_files_that_change_after_they_were_hashed_are_not_loaded(folder, name):
    files = language_model.model_files(str(folder))
    path = folder / name
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(ArtifactError, match="is not the one that was named"):
        language_model.opened(files, lambda _: pytest.fail("it was read"))
    if name == "config.json":
        with pytest.raises(ArtifactError, match="is not the one that was named"):
            language_model.config(files)


def test_a_file_that_keeps_its_size_and_time_is_hashed_again(folder):
    path = folder / "config.json"
    before, times = language_model.model_files(str(folder)), path.stat()
    content = path.read_bytes()
    path.write_bytes(content.replace(b"0.1", b"0.2"))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert path.stat().st_size == len(content)
    after = language_model.model_files(str(folder))
    assert content != path.read_bytes()
    assert language_model.identity(before) != language_model.identity(after)


def test_settings_name_no_code_and_no_other_file(folder, tmp_path):
    """Nothing of a hub, no kernel, and no file outside of the folder; the model computes the same."""
    expected = language_model.masked_model(language_model.model_files(str(folder))).state_dict()
    (tmp_path / "tokenizer.json").write_text("{}")
    code = {
        "_attn_implementation": "someone/kernel",
        "auto_map": {"AutoModelForMaskedLM": "someone/code--a.B", "AutoTokenizer": ["someone/code--a.B", None]},
        "text_config": {"_experts_implementation": "someone/kernel"},
        "transformers_weights": "../elsewhere.safetensors",
        "tokenizer_file": str(tmp_path / "tokenizer.json"),
    }
    for name in ("config.json", "tokenizer_config.json"):
        (folder / name).write_text(json.dumps({**json.loads((folder / name).read_bytes()), **code}))
    (folder / "special_tokens_map.json").write_text(json.dumps({"tokenizer_file": code["tokenizer_file"]}))
    files = language_model.model_files(str(folder))
    made = language_model.masked_model(files)
    assert made.config._attn_implementation == "sdpa"
    assert not hasattr(made.config, "auto_map")
    assert all(torch.equal(weight, expected[name]) for name, weight in made.state_dict().items())
    assert language_model.tokenizer(files)("good film")["input_ids"]


def test_what_is_missing_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(PolicyError, match="no config"):
        language_model.model_files(str(tmp_path))
    with pytest.raises(PolicyError, match="no model folder"):
        language_model.model_files(str(tmp_path / "nothing"))
    with pytest.raises(PolicyError, match="only models on a hub have a revision"):
        language_model.model_files(str(tmp_path), "main")
    with pytest.raises(PolicyError, match="hf download"):
        language_model.model_files("nobody/no-such-model", "v1")


@pytest.mark.parametrize("model", sorted(language_model.OURS))
def test_no_hub_is_asked_for_a_model_of_ours(model, monkeypatch):
    asked = []
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda **given: asked.append(given))
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *given: asked.append(given))
    monkeypatch.setattr(dptext_etl_models, "names", lambda: ())
    with pytest.raises(PolicyError, match=r"is one of dptext-etl-models(.|\n)*pip install ./models"):
        language_model.model_files(model)
    assert not language_model.is_here(model)
    assert asked == []


def test_every_model_that_ships_is_one_of_ours():
    folder = Path(__file__).resolve().parents[3] / "models" / "dptext_etl_models"
    assert {path.parent.name for path in folder.glob("*/config.json")} == language_model.OURS


def test_importing_a_mechanism_needs_no_torch():
    code = (
        "import sys; from dptext_etl_models.mechanisms import dpmlm; "
        "assert not {'torch', 'transformers', 'tokenizers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
