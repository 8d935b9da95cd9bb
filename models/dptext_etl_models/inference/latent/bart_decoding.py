"""Run BART's decoder for beam search without copies when beams change their order, and without repeated work.

transformers reorders the keys and values of all words and latents at every step, once per beam. Here the keys and
values of latents belong to the record, and its beams are the queries. Those of words stay at their place, and a mask
selects the words that a beam continues. The numbers equal those of transformers up to rounding.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

KIND = "bart"
"""The `model_type` whose layers this module computes."""


class BartDecoding:
    """Hold the beams of a batch (`beams.Decoder`)."""

    def __init__(self, model: Any, states: torch.Tensor, beams: int, steps: int) -> None:
        self._model, self._decoder = model, model.get_decoder()
        self._heads = int(model.config.decoder_attention_heads)
        self._rows, self._width, self._beams, self._step = len(states), 1, beams, 0
        shape = (self._rows, self._heads, 1 + beams * (steps - 1), states.shape[2] // self._heads)
        self._words = [(states.new_empty(shape), states.new_empty(shape)) for _ in self._decoder.layers]
        self._latents = [self._keys_and_values(layer.encoder_attn, states) for layer in self._decoder.layers]
        self._places = torch.zeros((self._rows, 1, 1), dtype=torch.int64, device=states.device)
        self._scores = states.new_empty((self._rows * beams, model.config.vocab_size))

    def first(self) -> torch.Tensor:
        """See `beams.Decoder`."""
        start = self._model.config.decoder_start_token_id
        return self._advance(torch.full((self._rows,), start, dtype=torch.int64, device=self._places.device))

    def spread(self, beams: int) -> None:
        """See `beams.Decoder`."""
        self._width = beams
        self._places = self._places.expand(-1, beams, -1)

    def following(self, ids: torch.Tensor, origins: torch.Tensor) -> torch.Tensor:
        """See `beams.Decoder`."""
        taken = 1 + self._width * (self._step - 1)
        behind = self._places.flatten(0, 1)[origins].view(self._rows, self._width, -1)
        own = torch.arange(taken, taken + self._width, device=ids.device).expand(self._rows, -1)
        self._places = torch.cat([behind, own[:, :, None]], dim=2)
        return self._advance(ids)

    def _advance(self, ids: torch.Tensor) -> torch.Tensor:
        """Write one id per beam and return scores of the next, shape (rows * beams, ids)."""
        end = 1 + self._width * self._step if self._step else 1
        mask = torch.zeros((self._rows, self._width, end), dtype=torch.bool, device=ids.device)
        mask = mask.scatter_(2, self._places, value=True)[:, None]
        decoder = self._decoder
        position = decoder.embed_positions.weight[self._step + decoder.embed_positions.offset]
        hidden = decoder.layernorm_embedding(decoder.embed_tokens(ids) + position)
        for layer, words, latents in zip(decoder.layers, self._words, self._latents, strict=True):
            hidden = self._layer(layer, hidden, words, latents, mask)
        self._step += 1
        scores = self._scores[: len(hidden)]
        torch.mm(hidden, self._model.lm_head.weight.T, out=scores)
        return scores.add_(self._model.final_logits_bias)

    def _layer(
        self,
        layer: Any,
        hidden: torch.Tensor,
        words: tuple[torch.Tensor, torch.Tensor],
        latents: tuple[torch.Tensor, torch.Tensor],
        mask: torch.Tensor,
    ) -> torch.Tensor:
        end = mask.shape[3]
        made = self._keys_and_values(layer.self_attn, hidden.view(self._rows, self._width, -1))
        for kept, new in zip(words, made, strict=True):
            kept[:, :, end - self._width : end] = new
        kept_words = words[0][:, :, :end], words[1][:, :, :end]
        hidden = layer.self_attn_layer_norm(hidden + self._attend(layer.self_attn, hidden, kept_words, mask))
        hidden = layer.encoder_attn_layer_norm(hidden + self._attend(layer.encoder_attn, hidden, latents, None))
        inner = layer.fc2(layer.activation_fn(layer.fc1(hidden)))
        normed: torch.Tensor = layer.final_layer_norm(hidden + inner)
        return normed

    def _attend(
        self, attention: Any, hidden: torch.Tensor, held: tuple[torch.Tensor, torch.Tensor], mask: torch.Tensor | None
    ) -> torch.Tensor:
        queries = self._by_head(attention.q_proj, hidden.view(self._rows, self._width, -1))
        found = scaled_dot_product_attention(queries, *held, attn_mask=mask)
        out: torch.Tensor = attention.out_proj(found.transpose(1, 2).reshape(hidden.shape))
        return out

    def _keys_and_values(self, attention: Any, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self._by_head(attention.k_proj, states), self._by_head(attention.v_proj, states)

    def _by_head(self, projection: nn.Module, states: torch.Tensor) -> torch.Tensor:
        """Project (rows, n, d) to (rows, heads, n, d / heads)."""
        by_head: torch.Tensor = projection(states).unflatten(2, (self._heads, -1)).transpose(1, 2)
        return by_head
