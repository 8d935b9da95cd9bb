"""Read, run, and write the BART model that a training continues from, and choose C for its latents.

`Channel` transforms latents as the mechanism does (`families/latent.py`): the encoder sees its own padding mask, the
decoder sees all positions, because a mask would disclose the length, and pruned columns are exact zeros. The noise
comes from torch: the texts are public and nothing is released, so no one's privacy depends on it
(docs/spec/privacy.md#noise-on-cpu, docs/spec/privacy.md#dpbart).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dptext_etl.device import device, place
from dptext_etl.errors import PolicyError
from dptext_etl_models.inference import language_model
from dptext_etl_models.inference.sequence_model import SequenceModel
from dptext_etl_models.mechanisms.dpbart import FILE, KeptColumns, read_kept
from dptext_etl_models.training import resumable
from dptext_etl_models.training.corpus import Rows, token_rows

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
            settings = {"dtype": torch.float32, "attn_implementation": "sdpa", **language_model.FROM_FOLDER}
            return BartForConditionalGeneration.from_pretrained(folder, **settings), dtype

        model, dtype = language_model.opened(files, read)
        listed = weights.path.parent / FILE
        kept = read_kept(listed, weights.sha256) if listed.is_file() else None
        return cls(model.to(place(device())), language_model.tokenizer(files), dtype, weights.sha256, kept)

    def rows(self, texts: Sequence[str], length: int) -> Rows:
        """Encode texts to rows of token ids, as a release does."""
        read = SequenceModel(self.model, self.tokenizer, length=length)
        return token_rows(lambda batch: read.ids(batch).ids.cpu().numpy(), texts, length)

    def write(self, folder: Path, facts: Mapping[str, Any]) -> None:
        """Write the model in its present state, its tokenizer, and the facts of its training."""
        copy.deepcopy(self.model).to(self.dtype).save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        resumable.write_facts(folder, facts)


@dataclass(frozen=True)
class Channel:
    """Transform the latents between encoder and decoder."""

    clip: float  # bound of every coordinate: it is clipped to [-clip, clip]
    kept: Sequence[int] | None = None  # columns of the latent that are not pruned; None keeps all
    sigma: float = 0.0  # standard deviation of the noise on kept columns
    spread: bool = False  # draw a share of `sigma` uniformly for every row, instead of using all of it

    def apply(self, latents: Tensor, noise: torch.Generator | None = None) -> Tensor:
        """Clip, add noise and prune; the shape (rows, length, width) stays the same."""
        between = latents.clamp(-self.clip, self.clip)
        if self.sigma > 0:
            scale = torch.full((latents.shape[0], 1, 1), self.sigma)
            if self.spread:
                scale = scale * torch.rand(scale.shape, generator=noise)
            between = between + (scale * torch.randn(latents.shape, generator=noise)).to(latents.device)
        if self.kept is None:
            return between
        mask = torch.zeros(latents.shape[-1], device=latents.device)
        mask[list(self.kept)] = 1
        return between * mask


def encode(model: Any, rows: Tensor) -> Tensor:
    """Return the encoder's output, shape (rows, length, width); only the encoder sees the padding mask."""
    latents: Tensor = model.get_encoder()(
        input_ids=rows, attention_mask=(rows != model.config.pad_token_id).long()
    ).last_hidden_state
    return latents


def loss(model: Any, rows: npt.NDArray[np.int32], channel: Channel, noise: torch.Generator | None = None) -> Tensor:
    """Return the mean cross-entropy of rebuilding every token of the rows, with the end and without padding."""
    config = model.config
    tokens = torch.from_numpy(rows.astype(np.int64)).to(model.device)
    latents = channel.apply(encode(model, tokens), noise)
    start = torch.full((len(tokens), 1), config.decoder_start_token_id, device=model.device)
    hidden = model.get_decoder()(
        input_ids=torch.cat([start, tokens[:, :-1]], dim=1), encoder_hidden_states=latents, use_cache=False
    ).last_hidden_state
    counted = tokens != config.pad_token_id
    scores = model.lm_head(hidden[counted]) + model.final_logits_bias[0]
    return torch.nn.functional.cross_entropy(scores, tokens[counted])


DEVIATIONS = 0.5
"""Distance of C from the mean, in standard deviations, as the paper chooses it."""
_COMPARED = (0.25, 0.5, 1.0, 2.0, 3.0)
_ROWS = 64


@dataclass(frozen=True)
class ClipOption:
    """One value of C."""

    deviations: float  # distance from the mean in standard deviations
    clip: float  # C
    inside: float  # share of the values that clipping leaves unchanged
    loss: float  # mean cross-entropy per token of rebuilding public texts without noise


@dataclass(frozen=True)
class ClipChoice:
    """The chosen C and the statistics of the latents of public text."""

    clip: float  # the chosen C
    mean: float  # mean of all values
    deviation: float  # standard deviation of all values
    values: int  # number of values: texts x length x width
    choices: tuple[ClipOption, ...]  # several values of C with their losses, the chosen one among them


def choose_clip(base: Base, texts: Sequence[str], *, length: int = 20, deviations: float = DEVIATIONS) -> ClipChoice:
    """Choose C as |mean| + `deviations` standard deviations of all values, those at padding included."""
    rows = base.rows(texts, length)
    model, kept = base.model.eval(), None if base.kept is None else base.kept.columns
    batches = [torch.from_numpy(rows[start : start + _ROWS]).long() for start in range(0, len(rows), _ROWS)]
    with torch.inference_mode():
        values = torch.cat([encode(model, batch.to(model.device)).double().cpu() for batch in batches])
    if kept is not None:
        values = values[:, :, list(kept)]
    mean, deviation = float(values.mean()), float(values.std())

    def at(share: float) -> ClipOption:
        clip = abs(mean) + share * deviation
        channel = Channel(clip, kept=kept)
        with torch.inference_mode():
            losses = [(float(loss(model, batch.numpy(), channel)), len(batch)) for batch in batches]
        mean_loss = math.fsum(loss * count for loss, count in losses) / len(rows)
        return ClipOption(share, clip, float((values.abs() <= clip).double().mean()), mean_loss)

    choices = tuple(at(share) for share in sorted({*_COMPARED, deviations}))
    return ClipChoice(abs(mean) + deviations * deviation, mean, deviation, values.numel(), choices)
