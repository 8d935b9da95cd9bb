"""Score words by how much the other words of their text attend to them in a language model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dptext_etl.allocation.score import Score, Scores
from dptext_etl.artifacts import Artifact
from dptext_etl_models import likeness
from dptext_etl_models.inference import language_model

MODEL = "english-small"
_FOLDER = "sentence-transformers:"


class Attention(Score):
    """The attention that a word's pieces get from the other pieces, over the largest of the text.

    It is the mean over all layers and heads of the model, and the largest of a word's pieces. The model is
    `english-small`, or the folder that `encoder` names. A word beyond the model's window gets 1.
    """

    title: ClassVar[str] = "Attention"

    def compute(self, tokens: Sequence[str]) -> Scores:
        import torch

        files = self._files()
        model, tokenizer = language_model.once("attention", (), files, _read), language_model.tokenizer(files)
        given = tokenizer(list(tokens), is_split_into_words=True, truncation=True, max_length=_window(model, tokenizer))
        with torch.inference_mode():
            seen = model(torch.tensor([given["input_ids"]]), output_attentions=True).attentions
        weights = torch.stack(seen).mean(dim=(0, 1, 2)).double().numpy()  # shape (asking pieces, asked pieces)
        gets = weights.sum(axis=0) - weights.diagonal()
        scores = np.full(len(tokens), -np.inf)
        for piece, word in enumerate(given.word_ids()):
            if word is not None:
                scores[word] = max(scores[word], gets[piece])
        return np.where(np.isfinite(scores), likeness.relative(np.where(np.isfinite(scores), scores, 0.0)), 1.0)

    def artifacts(self) -> dict[str, Artifact]:
        return {f"attention_{role}": item for role, item in self._files().items()}

    def _files(self) -> Mapping[str, Artifact]:
        named = self.tools.encoder
        return language_model.model_files(named.removeprefix(_FOLDER) if named.startswith(_FOLDER) else MODEL)


def _read(folder: Path) -> Any:
    """Load the model once more: the fast form of attention, which mechanisms use, keeps no attention."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    language_model.without_code(folder)
    built = json.loads((folder / language_model.CONFIG).read_text(encoding="utf-8")).get("architectures") or ()
    kind = transformers.AutoModelForMaskedLM if "MaskedLM" in "".join(built) else transformers.AutoModel
    loaded = kind.from_pretrained(folder, attn_implementation="eager", **language_model.FROM_FOLDER)
    return loaded.float().eval().requires_grad_(requires_grad=False)


def _window(model: Any, tokenizer: Any) -> int:
    places = int(model.config.max_position_embeddings) - 2  # RoBERTa counts two more than it reads
    return min(places, int(tokenizer.model_max_length))
