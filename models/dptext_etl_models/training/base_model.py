"""Load the checkpoint that a training starts from, and write the folder of the trained model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dptext_etl.errors import PolicyError
from dptext_etl_models.inference import language_model
from dptext_etl_models.inference.latent.kept_columns import FILE, KeptColumns, read_kept
from dptext_etl_models.inference.latent.sequence_model import SequenceModel
from dptext_etl_models.training.token_rows import Rows, token_rows

_WEIGHTS = f"{language_model.ROLE}model.safetensors"


@dataclass(frozen=True)
class Base:
    """Hold a BART model that a training continues from."""

    model: Any  # the model in float32, its weights with gradients
    tokenizer: Any  # the model's tokenizer
    dtype: torch.dtype  # number type of the weights file; the trained model is written in the same type
    sha256: str  # hash of the weights
    kept: KeptColumns | None  # columns that an earlier pruning kept; None if it kept all

    @classmethod
    def load(cls, name: str, revision: str | None = None) -> Base:
        """Load a model by folder, by the name of a model that ships, or by hub name."""
        files = language_model.model_files(name, revision)
        weights = files.get(_WEIGHTS)
        if weights is None:
            raise PolicyError("the weights are in several files", "save the model as one model.safetensors")

        def read(folder: Path) -> tuple[Any, torch.dtype]:
            from transformers import BartConfig, BartForConditionalGeneration, logging

            logging.disable_progress_bar()
            dtype = BartConfig.from_pretrained(folder, local_files_only=True).dtype or torch.float32
            model = BartForConditionalGeneration.from_pretrained(
                folder, dtype=torch.float32, local_files_only=True, use_safetensors=True, attn_implementation="sdpa"
            )
            return model, dtype

        model, dtype = language_model.opened(files, read)
        listed = weights.path.parent / FILE
        kept = read_kept(listed, weights.sha256) if listed.is_file() else None
        return cls(model, language_model.tokenizer(files), dtype, weights.sha256, kept)

    def rows(self, texts: Sequence[str], length: int) -> Rows:
        """Encode texts to rows of token ids, as a release does."""
        read = SequenceModel(self.model, self.tokenizer, length=length)
        return token_rows(lambda some: read.ids(some).ids.numpy(), texts, length)

    def write(self, folder: Path, facts: Mapping[str, Any]) -> None:
        """Write the model in its present state, its tokenizer, and the facts of its training."""
        import copy

        copy.deepcopy(self.model).to(self.dtype).save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        (folder / "training.json").write_text(json.dumps(dict(facts), indent=2) + "\n", encoding="utf-8")
