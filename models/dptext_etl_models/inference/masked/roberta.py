"""Read masked models of RoBERTa's kind without the library of all models, whose import is slower than many runs.

A model is read here only if its configuration and its weights are known to the last name; every other one is read by
transformers. Parts have the same names as in transformers, so scoring a model shows no difference; operations
and their order are, too, so that scores have the same bits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from dptext_etl.artifacts import Artifact
from dptext_etl_models.inference import language_model

_FIXED: dict[str, Any] = {
    "model_type": "roberta",
    "architectures": ["RobertaForMaskedLM"],
    "hidden_act": "gelu",
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
    "position_embedding_type": "absolute",
}
"""Entries of a configuration that change a model's results, with the only value that is read here."""
_WHOLE = {
    "pad_token_id", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
    "max_position_embeddings", "type_vocab_size",
}  # fmt: skip
"""Entries that are whole numbers, all of them needed."""
_NEEDED = _WHOLE | {"model_type", "architectures", "layer_norm_eps"}
_IDLE = {
    "attention_probs_dropout_prob", "hidden_dropout_prob", "classifier_dropout", "initializer_range", "use_cache",
    "bos_token_id", "eos_token_id", "dtype", "torch_dtype", "transformers_version", "_name_or_path",
}  # fmt: skip
"""Entries that change nothing about scores."""
_FILE = "model.safetensors"
_HEAD_BIAS = "lm_head.bias"
_WORDS = "roberta.embeddings.word_embeddings.weight"


def masked_model(files: Mapping[str, Artifact], device: str, dtype: str) -> Any:
    """Load a masked language model for scoring, once per process."""
    model = None
    if device == "cpu":
        model = language_model.once("roberta", (dtype,), files, lambda folder: read(folder, getattr(torch, dtype)))
    return language_model.masked_model(files, device, dtype) if model is None else model


def read(folder: Path, dtype: torch.dtype) -> Roberta | None:
    """Read a folder; return None if it holds anything except a masked model that is known here."""
    from safetensors.torch import load_file

    try:
        given = json.loads((folder / language_model.CONFIG).read_bytes())
        if not _known(given) or [path.name for path in folder.glob(f"*{language_model.WEIGHTS}")] != [_FILE]:
            return None
        weights = {name: weight.to(dtype) for name, weight in load_file(folder / _FILE).items()}
        weights["lm_head.decoder.weight"], weights["lm_head.decoder.bias"] = weights[_WORDS], weights[_HEAD_BIAS]
        with torch.device("meta"):
            model = Roberta(SimpleNamespace(**given))
        model.load_state_dict(weights, strict=True, assign=True)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OSError):
        return None  # transformers reports the error, or knows better
    model.eval().requires_grad_(requires_grad=False)
    return model


def _known(given: Any) -> bool:
    """Say whether a configuration holds only known entries."""
    if not isinstance(given, dict) or not _NEEDED <= given.keys() <= _NEEDED | _IDLE | _FIXED.keys():
        return False
    if any(given.get(name, value) != value for name, value in _FIXED.items()):
        return False
    whole = all(isinstance(given[name], int) for name in _WHOLE)
    return whole and given["num_attention_heads"] > 0 and given["hidden_size"] % given["num_attention_heads"] == 0


class Roberta(nn.Module):
    """A masked model with the parts and names of transformers' `RobertaForMaskedLM`."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.roberta = _Base(config)
        self.lm_head = _Head(config)

    @property
    def base_model(self) -> nn.Module:
        """Return the model without its head."""
        return self.roberta

    @property
    def device(self) -> torch.device:
        """Return the device of the weights."""
        return self.lm_head.bias.device

    @property
    def dtype(self) -> torch.dtype:
        """Return the number type of the weights."""
        return self.lm_head.bias.dtype

    def get_input_embeddings(self) -> nn.Module:
        """Return the embeddings of tokens."""
        return self.roberta.embeddings.word_embeddings

    def get_output_embeddings(self) -> nn.Module:
        """Return the last product of the head, which shares the embeddings' weights."""
        return self.lm_head.decoder

    def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any = None) -> SimpleNamespace:
        """Return scores of all tokens at all places as `logits`, shape (rows, length, tokens)."""
        return SimpleNamespace(logits=self.lm_head(self.roberta(input_ids, attention_mask, token_type_ids)[0]))


class _Base(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.embeddings = _Embeddings(config)
        self.encoder = nn.Module()
        self.encoder.layer = nn.ModuleList([_Layer(config) for _ in range(config.num_hidden_layers)])

    def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any = None) -> tuple[Any]:
        """Return hidden states of all tokens, shape (rows, length, width), as the only member of a tuple."""
        hidden = self.embeddings(input_ids, token_type_ids)
        for layer in self.encoder.layer:
            hidden = layer(hidden, attention_mask.bool()[:, None, None, :])
        return (hidden,)


class _Embeddings(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        width, pad = config.hidden_size, config.pad_token_id
        self.word_embeddings = _embedding(config.vocab_size, width)
        self.token_type_embeddings = _embedding(config.type_vocab_size, width)
        self.position_embeddings = _embedding(config.max_position_embeddings, width, pad)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, input_ids: Any, token_type_ids: Any = None) -> Any:
        """Return the sum of the embeddings of tokens, segments and positions, with its norm.

        Positions count from the padding's id plus one; padding has the padding's position.
        """
        pad = self.position_embeddings.padding_idx
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        real = input_ids.ne(pad).int()
        positions = (torch.cumsum(real, dim=1).type_as(real) * real).long() + pad
        summed = self.word_embeddings(input_ids) + self.token_type_embeddings(types)
        return self.LayerNorm(summed + self.position_embeddings(positions))


class _Layer(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        width, inner = config.hidden_size, config.intermediate_size
        self.attention = _Attention(config)
        self.intermediate = nn.Module()
        self.intermediate.dense = nn.Linear(width, inner)
        self.intermediate.intermediate_act_fn = nn.GELU()
        self.output = _normed(inner, width, config)

    def forward(self, hidden: Any, seen: Any) -> Any:
        """Return hidden states after attention and the two products that follow it."""
        hidden = self.attention(hidden, seen)
        inner = self.intermediate.intermediate_act_fn(self.intermediate.dense(hidden))
        return self.output.LayerNorm(self.output.dense(inner) + hidden)


class _Attention(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        width = config.hidden_size
        self.self = nn.Module()
        self.self.num_attention_heads = config.num_attention_heads
        self.self.query, self.self.key, self.self.value = (nn.Linear(width, width) for _ in range(3))
        self.output = _normed(width, width, config)

    def forward(self, hidden: Any, seen: Any) -> Any:
        """Add to every token a mixture of the tokens that are seen, shape (rows, length, width)."""
        attention = self.self
        split = (
            part(hidden).unflatten(-1, (attention.num_attention_heads, -1)).transpose(1, 2)
            for part in (attention.query, attention.key, attention.value)
        )
        mixed = nn.functional.scaled_dot_product_attention(*split, attn_mask=seen)
        return self.output.LayerNorm(self.output.dense(mixed.transpose(1, 2).flatten(2)) + hidden)


class _Head(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, features: Any) -> Any:
        """Return scores of all tokens."""
        return self.decoder(self.layer_norm(nn.functional.gelu(self.dense(features))))


def _normed(given: int, width: int, config: Any) -> nn.Module:
    """Return a product and the norm after it, under transformers' names."""
    part = nn.Module()
    part.dense, part.LayerNorm = nn.Linear(given, width), nn.LayerNorm(width, eps=config.layer_norm_eps)
    return part


def _embedding(rows: int, width: int, pad: int | None = None) -> nn.Embedding:
    """Return an embedding without numbers; to fill it with random ones would import torch's compiler, a second."""
    return nn.Embedding.from_pretrained(torch.empty(rows, width), padding_idx=pad)
