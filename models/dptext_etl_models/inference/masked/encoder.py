"""Run the encoder of BERT's kind with few calls, and its last layer at masks alone.

Libraries spend as long around the matrix products of a small model as in them. Here a layer is its products, its
attention and its norms, and nothing else. The last layer needs queries, and all that follows attention, only at masks;
keys and values come from every token. A model is taken only if every weight of its layers has a known place. Whether
the answer is the model's own is asked by `dptext_etl_models.inference.masked.model`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

_PARTS = {"embeddings", "encoder", "pooler"}


class _Layer(NamedTuple):
    """The modules of one layer in the order of their use."""

    query: Any
    key: Any
    value: Any
    mixed: Any
    first_norm: Any
    up: Any
    activation: Callable[[Any], Any]
    down: Any
    second_norm: Any


class Encoder:
    """Compute hidden states at masks."""

    def __init__(self, embeddings: Any, layers: list[_Layer], heads: int) -> None:
        self._embeddings, self._layers, self._heads = embeddings, layers, heads

    @classmethod
    def of(cls, base: Any) -> Encoder | None:
        """Return the encoder of a model; None if the model has another structure."""
        layers = getattr(getattr(base, "encoder", None), "layer", None)
        if not layers or getattr(base.config, "is_decoder", False):
            return None
        if not _names(base) <= _PARTS or _names(base.encoder) != {"layer"}:
            return None
        try:
            found = [_layer(layer) for layer in layers]
            heads = {int(layer.attention.self.num_attention_heads) for layer in layers}
        except AttributeError:
            return None
        known = all(_weights(layer) == _known(parts) for layer, parts in zip(layers, found, strict=True))
        return cls(base.embeddings, found, heads.pop()) if known and len(heads) == 1 else None

    def __call__(self, ids: Any, real: Any, places: Any, extra: dict[str, Any]) -> Any:
        """Compute hidden states."""
        hidden = self._embeddings(input_ids=ids, **extra)
        seen = real[:, None, None, :]
        *layers, last = self._layers
        for layer in layers:
            hidden = self._after(layer, hidden, hidden, seen)
        return self._after(last, hidden, hidden[places], seen)

    def _after(self, layer: _Layer, every: Any, asked: Any, seen: Any) -> Any:
        """Return the output of a layer for the tokens that are asked, which attend to every token."""
        import torch

        parts = ((layer.query, asked), (layer.key, every), (layer.value, every))
        split = (part(given).unflatten(-1, (self._heads, -1)).transpose(1, 2) for part, given in parts)
        mixed = torch.nn.functional.scaled_dot_product_attention(*split, attn_mask=seen)
        inner = layer.first_norm(layer.mixed(mixed.transpose(1, 2).flatten(2)) + asked)
        return layer.second_norm(layer.down(layer.activation(layer.up(inner))) + inner)


def _layer(layer: Any) -> _Layer:
    """Find the modules of a layer by the names of BERT and similar models."""
    own, after = layer.attention.self, layer.attention.output
    rise, fall = layer.intermediate, layer.output
    return _Layer(
        own.query, own.key, own.value, after.dense, after.LayerNorm,
        rise.dense, rise.intermediate_act_fn, fall.dense, fall.LayerNorm,
    )  # fmt: skip


def _known(layer: _Layer) -> set[int]:
    """Return the identities of all weights that a layer is known to have."""
    return set().union(*(_weights(part) for name, part in layer._asdict().items() if name != "activation"))


def _weights(module: Any) -> set[int]:
    """Return the identities of a module's weights and buffers."""
    return {id(one) for one in (*module.parameters(), *module.buffers())}


def _names(module: Any) -> set[str]:
    """Return the names of a module's parts."""
    return {name for name, _ in module.named_children()}
