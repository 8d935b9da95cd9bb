"""Read tokenizers that are one file of the library `tokenizers`, without transformers, whose import takes a second.

A tokenizer is taken only if its settings are known to the last name and change nothing about the file; every other one
is read by transformers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dptext_etl.artifacts import Artifact
from dptext_etl_models.inference import language_model

_FILE, _SETTINGS = "tokenizer.json", "tokenizer_config.json"
_CLASSES = ("TokenizersBackend", "PreTrainedTokenizerFast")
"""Names in a tokenizer's settings for: the file as it stands."""
_NAMED = ("bos_token", "cls_token", "eos_token", "mask_token", "pad_token", "sep_token", "unk_token")
_IDLE = {
    "backend", "tokenizer_class", "model_max_length", "clean_up_tokenization_spaces", "is_local", "local_files_only",
}  # fmt: skip
"""Entries that change nothing about the ids of a word."""


class Tokens:
    """A tokenizer with the names that transformers gives to its parts.

    Attributes:
        backend_tokenizer: The tokenizer of the library `tokenizers`; a special token that a text spells is ordinary.
        all_special_ids: Ids of the special tokens.
        mask_token_id: Id of the mask, or None; so are `pad_token_id`, `sep_token_id` and `unk_token_id`.
    """

    def __init__(self, backend: Any, special: Mapping[str, str]) -> None:
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = True
        self.backend_tokenizer = backend
        ids = {name: backend.token_to_id(token) for name, token in special.items()}
        self.all_special_ids = sorted(set(ids.values()))
        self.mask_token_id, self.pad_token_id = ids.get("mask_token"), ids.get("pad_token")
        self.sep_token_id, self.unk_token_id = ids.get("sep_token"), ids.get("unk_token")

    def __len__(self) -> int:
        return int(self.backend_tokenizer.get_vocab_size(with_added_tokens=True))


def tokenizer(files: Mapping[str, Artifact]) -> Any:
    """Return a model's tokenizer, read once per process, by transformers where its settings are not known here."""
    found = language_model.once("tokens", (), files, read, tokens_only=True)
    return language_model.tokenizer(files) if found is None else found


def read(folder: Path) -> Tokens | None:
    """Read a folder; return None if its tokenizer is more than the one file."""
    from tokenizers import Tokenizer

    extra_files = {
        "special_tokens_map.json",
        "added_tokens.json",
        "spiece.model",
        "spm.model",
        "vocab.json",
        "vocab.txt",
    }
    try:
        settings = json.loads((folder / _SETTINGS).read_bytes())
        special = {name: settings[name] for name in _NAMED if settings.get(name) is not None}
        stated = json.loads((folder / _FILE).read_bytes())
        if settings["tokenizer_class"] not in _CLASSES or not settings.keys() <= _IDLE | set(_NAMED):
            return None
        known = {token["content"] for token in stated["added_tokens"] if token["special"]}
        if not set(special.values()) <= known or not stated["post_processor"]:
            return None
        if any(stated[name] for name in ("truncation", "padding")) or any(
            (folder / name).exists() for name in extra_files
        ):
            return None
        return Tokens(Tokenizer.from_file(str(folder / _FILE)), special)
    except (KeyError, TypeError, ValueError, AttributeError, OSError):
        return None  # transformers says what is wrong, or knows better
