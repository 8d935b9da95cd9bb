"""Read a masked language model's tokenizer, encode words with it, and find its tokens that are whole words.

Words are encoded one by one, each as if after a blank; special tokens that a text spells are ordinary text. The output
set of strict mode is public and depends only on the tokenizer: every token that is one whole word.

Importing transformers needs a second. So a tokenizer that is one file of the library `tokenizers` is read without it,
if its settings are all known and change nothing about the file; transformers reads every other one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dptext_etl import _kernel
from dptext_etl.artifacts import Artifact
from dptext_etl.errors import PolicyError, without_panics
from dptext_etl_models.inference import language_model
from dptext_etl_models.inference.masked.layout import Frame, Pieces
from dptext_etl_models.inference.masked.script import Numbers

_FILE, _SETTINGS = "tokenizer.json", "tokenizer_config.json"
_CLASSES = ("TokenizersBackend", "PreTrainedTokenizerFast")
"""Names in a tokenizer's settings that mean: use the file unchanged."""
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
    fast = language_model.once("tokens", (), files, read_tokens, tokens_only=True)
    return language_model.tokenizer(files) if fast is None else fast


def read_tokens(folder: Path) -> Tokens | None:
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
        special_tokens = {token["content"] for token in stated["added_tokens"] if token["special"]}
        if not set(special.values()) <= special_tokens or not stated["post_processor"]:
            return None
        if any(stated[name] for name in ("truncation", "padding")) or any(
            (folder / name).exists() for name in extra_files
        ):
            return None
        return Tokens(Tokenizer.from_file(str(folder / _FILE)), special)
    except (KeyError, TypeError, ValueError, AttributeError, OSError):
        return None  # transformers reports the error, or knows better


CHARACTERS = 2**16
"""Characters of a word that are read: more than the tokens of the longest window."""
_KEPT_WORDS = 2**20  # encoded words in the cache for later texts
_VOCABULARIES: dict[tuple[tuple[str, str], ...], MaskedVocabulary] = {}


class MaskedVocabulary:
    """Encode words with a tokenizer.

    Attributes:
        mask: Token id of the mask.
        size: Number of token ids of the tokenizer.
    """

    def __init__(self, tokenizer: Any) -> None:
        if tokenizer.mask_token_id is None:
            raise PolicyError("the model has no mask token", "name a masked language model (RoBERTa, BERT, DeBERTa …)")
        self._tokenizer, self._backend = tokenizer, tokenizer.backend_tokenizer
        self.mask = int(tokenizer.mask_token_id)
        self.size = len(tokenizer)
        self._special = frozenset(map(int, tokenizer.all_special_ids)) - {tokenizer.unk_token_id}
        self._pieces: dict[str, Pieces] = {}

    @classmethod
    def of(cls, files: Mapping[str, Artifact]) -> MaskedVocabulary:
        """Return the vocabulary of a model, which a process reads once."""
        key = tuple(item for item in language_model.identity(files) if not item[0].endswith(language_model.WEIGHTS))
        if key not in _VOCABULARIES:
            _VOCABULARIES[key] = cls(tokenizer(files))
        return _VOCABULARIES[key]

    def encode(self, words: Sequence[str]) -> list[Pieces]:
        """Return the token ids of every word after a blank; an empty list for a word that cannot be encoded.

        A word is cut to `CHARACTERS` first.
        """
        cache = self._pieces
        new = list({word for word in words if word not in cache})
        if new:
            if len(cache) > _KEPT_WORDS:
                cache = self._pieces = {}
                new = list(set(words))
            cache.update(zip(new, self._encoded(new), strict=True))
        return [cache[word] for word in words]

    def _encoded(self, words: Sequence[str]) -> list[Pieces]:
        try:
            with without_panics():
                texts = [f" {word[:CHARACTERS]}" for word in words]
                encoded = [item.ids for item in self._backend.encode_batch(texts, add_special_tokens=False)]
                return [
                    piece if self._special.isdisjoint(piece) else self._spelt(word[:CHARACTERS])
                    for word, piece in zip(words, encoded, strict=True)
                ]
        except Exception:  # noqa: BLE001  (one word failed; the others do not depend on it)
            return [self._encoded([word])[0] for word in words] if len(words) > 1 else [[]]

    def _spelt(self, word: str) -> Pieces:
        """Encode a word character by character, because it spells a special token."""
        spellings = self._backend.encode_batch([f" {word[:1]}", *word[1:]], add_special_tokens=False)
        return [token for item in spellings for token in item.ids if token not in self._special]

    def whole_words(self) -> tuple[tuple[str, ...], Numbers]:
        """Return the texts and the ids of all tokens that are one whole word in lower case, sorted by id.

        A token counts if its text is a single word as the kernel segments texts, and if that word is encoded as this
        token only.
        """
        texts = self.texts()
        words = [text if _is_word(text) else None for text in texts]
        pieces = iter(self.encode([word for word in words if word is not None]))
        number_of: dict[str, int] = {}
        for number, word in enumerate(words):
            if word is not None and list(next(pieces)) == [number] and number not in self._special:
                number_of.setdefault(word, number)
        return tuple(number_of), np.array(list(number_of.values()), np.int64)

    def texts(self) -> list[str]:
        """Return the text of every token by id, without blanks around it."""
        return [
            text.strip()
            for text in self._backend.decode_batch([[number] for number in range(self.size)], skip_special_tokens=False)
        ]

    def frame(self, window: int) -> Frame:
        """Find the tokens that the tokenizer puts around a pair of texts."""
        both = self._backend.encode("a", "a")
        sides = both.sequence_ids
        first = [place for place, side in enumerate(sides) if side == 0]
        second = [place for place, side in enumerate(sides) if side == 1]
        between = both.ids[first[-1] + 1 : second[0]] or [self._tokenizer.sep_token_id]
        pad = self._tokenizer.pad_token_id
        if pad is None or between == [None]:
            raise PolicyError(
                "the model's tokenizer has no padding or no separator", "use the tokenizer of a masked language model"
            )
        kinds = both.type_ids
        types = (kinds[0], kinds[first[0]], kinds[second[0] - 1], kinds[second[0]], kinds[-1])
        frame = Frame(
            tuple(both.ids[: first[0]]),
            tuple(between),
            tuple(both.ids[second[-1] + 1 :]),
            types,
            self.mask,
            pad,
            window,
        )
        if frame.room < 8:
            raise PolicyError(f"a window of {window} tokens is too small", "give window as 32 or more")
        return frame


def _is_word(text: str) -> bool:
    """Say whether a text is one word in the form of lookups."""
    return _kernel.split(text) == [(text, True)] and text == text.lower() and "\u2019" not in text
