"""Make an untrained BART whose decoder attends near the word to copy, which saves most of a training.

A transformer with random weights needs thousands of steps until it copies at all. Here positions are sinusoids, and the
first decoder layer projects queries and keys equally, so that attention starts at the position to copy. Training then
changes all weights.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from dptext_etl_models.training.words.vocabulary import END, PADDING, START


class Sizes(NamedTuple):
    """The sizes of a model."""

    width: int  # columns of its states
    layers: int  # layers of the encoder, and of the decoder
    heads: int  # attention heads of a layer
    inner: int  # width of the feed-forward part of a layer
    places: int  # largest number of tokens of a row


def copying_bart(entries: int, sizes: Sizes, before: int = 0) -> Any:
    """Return the model, whose weights follow from the state of torch's generator."""
    from transformers import BartConfig, BartForConditionalGeneration

    std = 0.7 / math.sqrt(sizes.width)
    each = {"layers": sizes.layers, "attention_heads": sizes.heads, "ffn_dim": sizes.inner}
    config = BartConfig(
        vocab_size=entries,
        d_model=sizes.width,
        max_position_embeddings=sizes.places,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        init_std=std,
        bos_token_id=START,
        pad_token_id=PADDING,
        eos_token_id=END,
        decoder_start_token_id=END,
        forced_bos_token_id=None,
        forced_eos_token_id=None,
        tie_word_embeddings=True,
        **{f"{side}_{what}": value for side in ("encoder", "decoder") for what, value in each.items()},
    )
    model = BartForConditionalGeneration(config)
    with torch.no_grad():
        waves = std * _sinusoids(sizes.places + before, sizes.width)
        model.model.encoder.embed_positions.weight[2:].copy_(waves[: sizes.places])
        model.model.decoder.embed_positions.weight[2:].copy_(waves[before:])
        attention = model.model.decoder.layers[0].encoder_attn
        attention.k_proj.weight.copy_(attention.q_proj.weight)
    return model


def _sinusoids(count: int, width: int) -> torch.Tensor:
    """Return positions as sinusoids whose root mean square is 1, shape (count, width)."""
    place = torch.arange(count)[:, None] / 10_000 ** (torch.arange(0, width, 2)[None, :] / width)
    return torch.stack([place.sin(), place.cos()], dim=-1).reshape(count, width) * 2**0.5
