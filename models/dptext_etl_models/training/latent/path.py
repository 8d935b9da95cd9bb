"""Take texts through DP-BART in training: encode, clip, prune, add noise, decode.

These are the steps of the mechanism (`families/latent/latent.py`). The encoder sees its own padding mask. The decoder
sees all positions, because a mask would disclose the length. Pruned columns are exact zeros. The noise here comes from
torch: the texts are public and nothing is released, so no one's privacy depends on it
(docs/spec/privacy.md#noise-on-cpu, docs/spec/privacy.md#dpbart).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


@dataclass(frozen=True)
class Path:
    """Transform the latents between encoder and decoder."""

    clip: float  # bound of every coordinate: it is clipped to [-clip, clip]
    kept: Sequence[int] | None = None  # columns of the latent that are not pruned; None keeps all
    sigma: float = 0.0  # standard deviation of the noise on kept columns
    spread: bool = False  # draw a share of `sigma` uniformly for every row, instead of taking all of it

    def apply(self, latents: Tensor, noise: torch.Generator | None = None) -> Tensor:
        """Clip, add noise and prune; the shape (rows, length, width) stays the same."""
        between = latents.clamp(-self.clip, self.clip)
        if self.sigma > 0:
            scale = torch.full((latents.shape[0], 1, 1), self.sigma)
            if self.spread:
                scale = scale * torch.rand(scale.shape, generator=noise)
            between = between + scale * torch.randn(latents.shape, generator=noise)
        if self.kept is None:
            return between
        mask = torch.zeros(latents.shape[-1])
        mask[list(self.kept)] = 1
        return between * mask


def encode(model: Any, rows: Tensor) -> Tensor:
    """Return the encoder's output, shape (rows, length, width); only the encoder sees the padding mask."""
    latents: Tensor = model.get_encoder()(
        input_ids=rows, attention_mask=(rows != model.config.pad_token_id).long()
    ).last_hidden_state
    return latents


def loss(
    model: Any, rows: npt.NDArray[np.int32], path: Path, noise: torch.Generator | None = None, smoothing: float = 0.0
) -> Tensor:
    """Return the mean cross-entropy of rebuilding every token of the rows, with the end and without padding."""
    config = model.config
    tokens = torch.from_numpy(rows.astype(np.int64))
    latents = path.apply(encode(model, tokens), noise)
    start = torch.full((len(tokens), 1), config.decoder_start_token_id)
    hidden = model.get_decoder()(
        input_ids=torch.cat([start, tokens[:, :-1]], dim=1), encoder_hidden_states=latents, use_cache=False
    ).last_hidden_state
    counted = tokens != config.pad_token_id
    scores = model.lm_head(hidden[counted]) + model.final_logits_bias[0]
    return torch.nn.functional.cross_entropy(scores, tokens[counted], label_smoothing=smoothing)
