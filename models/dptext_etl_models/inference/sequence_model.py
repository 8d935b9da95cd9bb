"""Run BART's decoder for beam search without copies when beams change their order, and without repeated work.

transformers reorders the keys and values of all words and latents at every step, once per beam. Here the keys and
values of latents belong to the record, and its beams are the queries. Those of words stay at their place, and a mask
selects the words that a beam continues. The numbers equal transformers' numbers up to rounding.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from dptext_etl.errors import PolicyError
from dptext_etl_models.inference.beams import Decoder, Search, beam_search

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
        places = torch.arange(taken, taken + self._width, device=ids.device).expand(self._rows, -1)
        self._places = torch.cat([behind, places[:, :, None]], dim=2)
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
        states = self._keys_and_values(layer.self_attn, hidden.view(self._rows, self._width, -1))
        for kept, new in zip(words, states, strict=True):
            kept[:, :, end - self._width : end] = new
        kept_words = words[0][:, :, :end], words[1][:, :, :end]
        hidden = layer.self_attn_layer_norm(hidden + self._attend(layer.self_attn, hidden, kept_words, mask))
        hidden = layer.encoder_attn_layer_norm(hidden + self._attend(layer.encoder_attn, hidden, latents, None))
        inner = layer.fc2(layer.activation_fn(layer.fc1(hidden)))
        normed: torch.Tensor = layer.final_layer_norm(hidden + inner)
        return normed

    def _attend(
        self, attention: Any, hidden: torch.Tensor, cached: tuple[torch.Tensor, torch.Tensor], mask: torch.Tensor | None
    ) -> torch.Tensor:
        queries = self._by_head(attention.q_proj, hidden.view(self._rows, self._width, -1))
        attended = scaled_dot_product_attention(queries, *cached, attn_mask=mask)
        out: torch.Tensor = attention.out_proj(attended.transpose(1, 2).reshape(hidden.shape))
        return out

    def _keys_and_values(self, attention: Any, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self._by_head(attention.k_proj, states), self._by_head(attention.v_proj, states)

    def _by_head(self, projection: nn.Module, states: torch.Tensor) -> torch.Tensor:
        """Project (rows, n, d) to (rows, heads, n, d / heads)."""
        by_head: torch.Tensor = projection(states).unflatten(2, (self._heads, -1)).transpose(1, 2)
        return by_head


CHARACTERS = 128
"""Characters that are read per id of the length; longer texts are cut before anything else."""

BEAMS = {"cpu": 192, "cuda": 4096}
"""Largest number of beams per batch, unless the smallest batch needs more."""
FEWEST = 16
"""Smallest number of records per batch."""
MOST = {"cpu": 64, "cuda": 1024}
"""Largest number of records per batch."""


class Ids(NamedTuple):
    """Texts in the form of the encoder's input."""

    ids: torch.Tensor  # token ids, int64, shape (rows, l)
    mask: torch.Tensor  # 1 for ids of a text and 0 for padding, int64, shape (rows, l)


class SequenceModel:
    """Encode and decode texts with an encoder-decoder of transformers."""

    def __init__(
        self, model: Any, tokenizer: Any, *, length: int, beams: int = 10, kept: Sequence[int] | None = None
    ) -> None:
        self.model, self.length, self.beams = model, length, beams
        self.width = int(model.config.d_model)
        longest = getattr(model.config, "max_position_embeddings", None) or length + 1
        if length > longest:
            raise PolicyError(f"length is {length}; this model accepts up to {longest} ids", f"set length={longest}")
        self._beyond = 1 if length < longest else 0
        self.kept = None if kept is None else torch.tensor(list(kept), dtype=torch.int64, device=model.device)
        self.rows = _records(model.device.type, beams)
        self._pad = int(tokenizer.pad_token_id)
        self._tokens = _padding(tokenizer, length, most=length - 1 + self._beyond)

    @property
    def size(self) -> int:
        """Numbers in a latent."""
        return self.length * (self.width if self.kept is None else len(self.kept))

    def ids(self, texts: Sequence[str]) -> Ids:
        """Cut and pad texts to l ids each; spelled special tokens are ordinary text."""
        read = self._tokens.encode_batch([text[: CHARACTERS * self.length] for text in texts])
        shape = (len(read), self.length)
        ids = torch.tensor([item.ids for item in read], dtype=torch.int64).view(shape)
        mask = torch.tensor([item.attention_mask for item in read], dtype=torch.int64).view(shape)
        return Ids(ids.to(self.model.device), mask.to(self.model.device))

    def reads(self, text: str) -> str:
        """Return the part of a text that fits into l ids."""
        text = text[: CHARACTERS * self.length]
        read = self._tokens.encode(text)
        return text[: max(end for _, end in read.offsets)] if read.overflowing else text

    def padded(self, read: Ids) -> Ids:
        """Put a place of padding behind every row, where the l ids leave none."""
        ids, mask = (nn.functional.pad(part, (0, self._beyond)) for part in read)
        if self._beyond:
            ids[:, -self._beyond :] = self._pad
        return Ids(ids, mask)

    @torch.inference_mode()
    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return the latents of a batch, shape (rows, size): neither clipped nor noisy, so they must go nowhere."""
        read = self.padded(self.ids(texts))
        encoder = self.model.get_encoder()
        states = encoder(input_ids=read.ids, attention_mask=read.mask).last_hidden_state[:, : self.length]
        if self.kept is not None:
            states = states[:, :, self.kept]
        return np.asarray(states.float().flatten(1).cpu().numpy())

    @torch.inference_mode()
    def decode(self, latents: npt.NDArray[np.float32]) -> list[str]:
        """Return the likeliest text of each noisy latent, shape (rows, size)."""
        states = self.states(torch.from_numpy(np.ascontiguousarray(latents)))
        end = self.model.config.eos_token_id
        search = Search(self.beams, self.length - 1, end)  # the constant start uses one of the l positions
        outputs = beam_search(self._decoder(states, search), search)
        texts: list[str] = self._tokens.decode_batch(outputs.tolist(), skip_special_tokens=True)
        return [text.strip() for text in texts]

    def _decoder(self, states: torch.Tensor, search: Search) -> Decoder:
        if self.model.config.model_type == KIND:
            return BartDecoding(self.model, states, search.beams, search.steps)
        return AnyDecoding(self.model, states)

    def states(self, latents: torch.Tensor) -> torch.Tensor:
        """Give latents the shape of the decoder's input, (rows, l, d); columns that are not kept are exactly 0."""
        given = latents.to(self.model.device, self.model.dtype).unflatten(1, (self.length, -1))
        if self.kept is None:
            return given
        return given.new_zeros((*given.shape[:2], self.width)).index_copy_(2, self.kept, given)


class AnyDecoding:
    """Hold the beams of a batch of any encoder-decoder of transformers in its own caches (`beams.Decoder`)."""

    def __init__(self, model: Any, states: torch.Tensor) -> None:
        from transformers import DynamicCache, EncoderDecoderCache

        self._model, self._states = model, states
        self._cache = EncoderDecoderCache(DynamicCache(), DynamicCache())

    def first(self) -> torch.Tensor:
        """See `beams.Decoder`."""
        start = self._model.config.decoder_start_token_id
        return self._step(torch.full((len(self._states),), start, dtype=torch.int64, device=self._states.device))

    def spread(self, beams: int) -> None:
        """See `beams.Decoder`."""
        self._cache.cross_attention_cache.batch_repeat_interleave(beams)
        self._cache.self_attention_cache.batch_repeat_interleave(beams)
        self._states = self._states.repeat_interleave(beams, 0)

    def following(self, ids: torch.Tensor, origins: torch.Tensor) -> torch.Tensor:
        """See `beams.Decoder`."""
        self._cache.self_attention_cache.reorder_cache(origins)
        return self._step(ids)

    def _step(self, ids: torch.Tensor) -> torch.Tensor:
        from transformers.modeling_outputs import BaseModelOutput

        output = self._model(
            encoder_outputs=BaseModelOutput(last_hidden_state=self._states),
            attention_mask=everywhere(self._states),
            decoder_input_ids=ids[:, None],
            past_key_values=self._cache,
            use_cache=True,
        )
        scores: torch.Tensor = output.logits[:, -1]
        return scores


def _records(where: str, beams: int) -> int:
    """Return the records per batch, a power of two, the same for every batch of a mechanism; dummy records fill it."""
    fitting = max(1, BEAMS[where] // beams)
    return max(FEWEST, min(MOST[where], 1 << fitting.bit_length() - 1))


def everywhere(states: torch.Tensor) -> torch.Tensor:
    """Return the decoder's attention mask, which covers all positions, since the end of a text must not show."""
    return torch.ones(states.shape[:2], dtype=torch.int64, device=states.device)


def _padding(tokenizer: Any, length: int, most: int) -> Any:
    """Return our own tokenizer, so that threads may share it: `length` ids of a text, at most `most` its own."""
    backend = copy.deepcopy(tokenizer.backend_tokenizer)
    backend.encode_special_tokens = True
    backend.enable_truncation(most)
    backend.enable_padding(length=length, pad_id=tokenizer.pad_token_id, pad_token=tokenizer.pad_token)
    return backend
