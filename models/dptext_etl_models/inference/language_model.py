"""Find language models by name or folder, identify them by the hashes of their files, and load them once per process.

A model is a folder of public files: weights as safetensors (pickled weights are never read), the configuration, and a
fast tokenizer. Code in a model's folder is never run. A mechanism's configuration holds the hash of every file and no
name, so the same files under another name are the same model. A model is loaded from private copies of its files that
have these hashes, and its index names no other file.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

import dptext_etl_models
from dptext_etl import extensions
from dptext_etl.artifacts import Artifact
from dptext_etl.device import THREADS_SETTING, drops_with_gpu, place
from dptext_etl.errors import PolicyError, seam
from dptext_etl_models.inference.example_model import KINDS, PREFIX, example_model

ROLE = "model/"
"""Prefix of the role of every file of a model."""
WEIGHTS = ".safetensors"
CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
_SETTINGS = (CONFIG, "tokenizer_config.json", "special_tokens_map.json")
FILES = (
    *_SETTINGS,
    INDEX,
    "tokenizer.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "spiece.model",
    "spm.model",
    "sentencepiece.bpe.model",
    "dptext_clip.json",
)
"""Files of a model next to its weights, without generation_config.json, since we decode ourselves."""
OURS = frozenset(f"english-{name}" for name in ("autoencoder", "denoiser", "encoder", "lstm", "paraphraser", "small"))
"""Names of the models of that distribution: no hub is asked for them."""

_INSTALL = "install our small models: `pip install ./models` in a checkout, or their wheel"
_HUB_HINT = (
    "download it on a machine with a network (`hf download NAME --revision REVISION`) and give its folder as model, or "
    f"{_INSTALL}"
)
_CODE = re.compile(
    r".*_implementation(_.*)?|auto_map|custom_pipelines|use_kernels|kernel_config|transformers_weights|.*_file"
)
"""Names of entries that may name code of a hub or of the folder, kernels, or files that the hash does not cover."""
FROM_FOLDER: Mapping[str, bool] = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}
"""Options of `from_pretrained`: no hub is asked, no code of a folder is run, and no pickled weights are read."""
_LOADED: dict[tuple[Any, ...], Any] = drops_with_gpu({})
_KEPT = 3  # number of loaded models, and of tokenizers, that a process keeps per kind
_LOCK = Lock()  # held to read and write `_LOADED`, so that threads do not load a model twice


def model_files(model: str, revision: str | None = None) -> dict[str, Artifact]:
    """Find a model's files and hash them."""
    if model.startswith(PREFIX) and model.removeprefix(PREFIX) in KINDS:
        return {ROLE + name: item for name, item in example_model(model.removeprefix(PREFIX)).items()}
    folder = Path(model)
    if not folder.is_dir():
        folder = _shipped(model) or _downloaded(model, revision)
    elif revision is not None:
        raise PolicyError("only models on a hub have a revision, and this model is a folder", "leave revision out")
    names = [name for name in FILES if (folder / name).is_file()]
    weights = sorted(path.name for path in folder.glob(f"*{WEIGHTS}") if path.is_file())
    if CONFIG not in names or not weights:
        missing = CONFIG if CONFIG not in names else f"weights as *{WEIGHTS}"
        hint = "save the model with save_pretrained; pickled weights (*.bin, *.pt) are never read"
        raise PolicyError(f"the model folder {folder.name!r} holds no {missing}", hint)
    facts = {"provenance": "public, as declared by anyone who named the model", "license": "see its card"}
    files = {ROLE + name: Artifact.open(folder / name, **facts) for name in [*names, *weights]}
    _require_listed(files)
    return files


def _require_listed(files: Mapping[str, Artifact]) -> None:
    """Refuse an index of weights that names anything except safetensors files of the model."""
    if ROLE + INDEX not in files:
        return
    try:
        named = set(json.loads(files[ROLE + INDEX].read_bytes())["weight_map"].values())
        listed = named <= {role.removeprefix(ROLE) for role in files if role.endswith(WEIGHTS)}
    except (ValueError, LookupError, TypeError, AttributeError):
        listed = False
    if not listed:
        hint = "save the model with save_pretrained; weights outside of its folder and pickled weights are never read"
        raise PolicyError(f"the model's {INDEX} names weights that are no *{WEIGHTS} files of its folder", hint)


def is_here(model: str) -> bool:
    """Say whether `model_files` would find a model's files on this machine; nothing is downloaded."""
    if Path(model).is_dir() or _shipped(model) is not None:
        return True
    if model in OURS:
        return False
    from huggingface_hub import try_to_load_from_cache

    with suppress(ValueError):  # this is not a name on the hub
        return isinstance(try_to_load_from_cache(model, CONFIG), str)
    return False


def config(files: Mapping[str, Artifact]) -> dict[str, Any]:
    """Return a model's configuration; nothing if it cannot be read."""
    try:
        settings = json.loads(files[ROLE + CONFIG].read_bytes())
    except ValueError:
        return {}
    return settings if isinstance(settings, dict) else {}


def placed_files(values: Mapping[str, Any]) -> dict[str, Artifact]:
    """Return the files of a model that a worker got (`Mechanism.placed`), or nothing if it got none."""
    return {role: item for role, item in values.items() if role.startswith(ROLE) and isinstance(item, Artifact)}


def identity(files: Mapping[str, Artifact]) -> tuple[tuple[str, str], ...]:
    """Return a model's identity: the hash of every file by role, sorted."""
    return tuple(sorted((role, item.sha256) for role, item in files.items()))


def tokenizer(files: Mapping[str, Artifact]) -> Any:
    """Return the model's fast tokenizer (transformers), which treats special tokens in a text as ordinary text."""

    def read(folder: Path) -> Any:
        from transformers import AutoTokenizer

        without_code(folder)
        loaded = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, split_special_tokens=True
        )
        if not getattr(loaded, "is_fast", False):
            raise PolicyError("the model has no fast tokenizer", "save one with it: tokenizer.json")
        loaded.backend_tokenizer.encode_special_tokens = True
        return loaded

    return once("tokenizer", (), files, read, tokens_only=True)


def masked_model(files: Mapping[str, Artifact], device: str = "cpu", dtype: str = "float32") -> Any:
    """Load a masked language model (RoBERTa, BERT, ModernBERT, DeBERTa …) for scoring."""
    return model("AutoModelForMaskedLM", files, device, dtype)


def causal_model(files: Mapping[str, Artifact], device: str = "cpu", dtype: str = "float32") -> Any:
    """Load a causal language model (GPT-2 …) for scoring."""
    return model("AutoModelForCausalLM", files, device, dtype)


def sequence_model(files: Mapping[str, Artifact], device: str = "cpu", dtype: str = "float32") -> Any:
    """Load an encoder-decoder (T5, BART …) for scoring."""
    return model("AutoModelForSeq2SeqLM", files, device, dtype)


def model(kind: str, files: Mapping[str, Artifact], device: str = "cpu", dtype: str = "float32") -> Any:
    """Load a model once per process for the hashes of its files, a device and a number type."""

    def read(folder: Path) -> Any:
        import torch
        import transformers

        transformers.utils.logging.disable_progress_bar()
        without_code(folder)
        settings = {"dtype": getattr(torch, dtype), **FROM_FOLDER}
        auto = getattr(transformers, kind)
        try:
            loaded = auto.from_pretrained(folder, attn_implementation="sdpa", **settings)
        except ValueError:  # the architecture lacks it
            loaded = auto.from_pretrained(folder, attn_implementation="eager", **settings)
        return loaded.eval().requires_grad_(requires_grad=False).to(place(device))

    return once(kind, (device, dtype), files, read)


def limit_threads() -> None:
    """Limit torch to `DPTEXT_THREADS` threads if that is set, as the kernel does; every worker of Spark sets 1."""
    setting = os.environ.get(THREADS_SETTING, "").strip()
    if setting.isdecimal() and int(setting):
        import torch

        torch.set_num_threads(int(setting))


def opened(files: Mapping[str, Artifact], read: Callable[[Path], Any], *, tokens_only: bool = False) -> Any:
    """Give `read` a private folder with copies of the model's files, which have their hashes."""
    if not tokens_only:
        limit_threads()
    hint = "check that the model is of the kind that the mechanism needs, and that all of its files are there"
    with seam("loading the model", PolicyError, hint), tempfile.TemporaryDirectory(prefix="dptext-model-") as name:
        wanted = {role: item for role, item in files.items() if not (tokens_only and role.endswith(WEIGHTS))}
        copies = {
            role: Artifact.open(shutil.copyfile(item.path, Path(name) / Path(role).name), item.sha256)
            for role, item in wanted.items()
        }
        if not tokens_only:
            _require_listed(copies)
        return read(Path(name))


def without_code(folder: Path) -> None:
    """Drop the entries of a copied model's settings that name code, kernels, or other files."""
    for path in map(folder.joinpath, _SETTINGS):
        if path.is_file():
            path.write_text(json.dumps(_plain(json.loads(path.read_bytes()))), encoding="utf-8")


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_plain, value))
    if not isinstance(value, dict):
        return value
    return {name: _plain(entry) for name, entry in value.items() if not _CODE.fullmatch(name)}


def once(
    kind: str,
    settings: tuple[str, ...],
    files: Mapping[str, Artifact],
    read: Callable[[Path], Any],
    *,
    tokens_only: bool = False,
) -> Any:
    """Read a model that the process has not read yet, and drop the oldest of its kind if there are too many."""
    need_transformers()
    key = (kind, *settings, identity(files))
    with _LOCK:
        if key not in _LOADED:
            same = [other for other in _LOADED if other[0] == kind]
            if len(same) >= _KEPT:
                del _LOADED[same[0]]
            _LOADED[key] = opened(files, read, tokens_only=tokens_only)
        return _LOADED[key]


def need_transformers() -> None:
    """Refuse to continue if the libraries that run models are not installed."""
    for library in ("torch", "transformers"):
        if importlib.util.find_spec(library) is None:
            raise PolicyError(
                f"language models need {library}, which is not installed", extensions.pip_install("models")
            )


def _shipped(model: str) -> Path | None:
    """Return the folder of a model of dptext-etl-models, or None if there is none."""
    try:
        return dptext_etl_models.path(model)
    except LookupError:
        return None


def _downloaded(model: str, revision: str | None) -> Path:
    """Return the hub's snapshot of a model from the local cache, or download it."""
    if model.startswith((".", "/", "~")) or model.count("/") > 1:
        raise PolicyError(f"there is no model folder {Path(model).name!r}", "correct the path")
    if model in OURS:
        raise PolicyError(f"the model {model!r} is one of dptext-etl-models, and is not installed here", _INSTALL)
    need_transformers()
    from huggingface_hub import snapshot_download

    options: dict[str, Any] = {"repo_id": model, "revision": revision, "allow_patterns": [*FILES, f"*{WEIGHTS}"]}
    for local in (True, False):
        with suppress(Exception):  # a hub fails in many ways, and the reason does not help offline
            return Path(snapshot_download(**options, local_files_only=local))
    pinned = "" if revision is None else f" at revision {revision}"
    raise PolicyError(f"the model {model!r}{pinned} is not on this machine, and the hub does not provide it", _HUB_HINT)
