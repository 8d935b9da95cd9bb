"""Run a masked language model of any architecture: the encoder on all tokens, the head only at masks.

The head is the largest matrix of a model. It is computed only at masked positions, and only for tokens that can be
drawn. So is the last layer: on a CPU all of it but keys and values, where the layers are BERT's (`Encoder`),
otherwise what follows its attention. Architectures name their parts differently. Each shortcut is compared once with
the model's own answer; if the scores differ, the next slower way is used, and at last the model's own.
"""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np

from dptext_etl.errors import PolicyError
from dptext_etl_models.inference.masked.script import Numbers
from dptext_etl_models.inference.running import to_device

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
            layer_parts = [_layer(layer) for layer in layers]
            heads = {int(layer.attention.self.num_attention_heads) for layer in layers}
        except AttributeError:
            return None
        matches = all(_weights(layer) == _known(parts) for layer, parts in zip(layers, layer_parts, strict=True))
        return cls(base.embeddings, layer_parts, heads.pop()) if matches and len(heads) == 1 else None

    def __call__(self, ids: Any, real: Any, places: Any, extra: dict[str, Any]) -> Any:
        """Compute hidden states."""
        hidden = self._embeddings(input_ids=ids, **extra)
        seen = real[:, None, None, :]
        *layers, last = self._layers
        for layer in layers:
            hidden = self._after(layer, hidden, hidden, seen)
        return self._after(last, hidden, hidden[places], seen)

    def _after(self, layer: _Layer, every: Any, places: Any, seen: Any) -> Any:
        """Return the output of a layer for the tokens that are asked, which attend to every token."""
        import torch

        parts = ((layer.query, places), (layer.key, every), (layer.value, every))
        split = (part(given).unflatten(-1, (self._heads, -1)).transpose(1, 2) for part, given in parts)
        mixed = torch.nn.functional.scaled_dot_product_attention(*split, attn_mask=seen)
        inner = layer.first_norm(layer.mixed(mixed.transpose(1, 2).flatten(2)) + places)
        return layer.second_norm(layer.down(layer.activation(layer.up(inner))) + inner)


def _layer(layer: Any) -> _Layer:
    """Find the modules of a layer by the names of BERT and similar models."""
    attention, after = layer.attention.self, layer.attention.output
    rise, fall = layer.intermediate, layer.output
    return _Layer(
        attention.query, attention.key, attention.value, after.dense, after.LayerNorm,
        rise.dense, rise.intermediate_act_fn, fall.dense, fall.LayerNorm,
    )  # fmt: skip


def _known(layer: _Layer) -> set[int]:
    """Return the identities of all weights that a layer is known to have."""
    return set().union(*(_weights(part) for name, part in layer._asdict().items() if name != "activation"))


def _weights(module: Any) -> set[int]:
    """Return the identities of a module's weights and buffers."""
    return {id(tensor) for tensor in (*module.parameters(), *module.buffers())}


def _names(module: Any) -> set[str]:
    """Return the names of a module's parts."""
    return {name for name, _ in module.named_children()}


_Way = Callable[[Any, Any, Any, dict[str, Any]], Any]
"""Turns tokens, which are real, places of masks, and further arguments into scores."""
_MASKS = threading.local()
"""Rows and columns of the masks that this thread is scoring."""
_HOOKED: WeakSet[Any] = WeakSet()
_HOOKING = threading.Lock()  # held to read and write `_HOOKED`: two hooks would cut an output twice


class MaskedModel:
    """Score masks with a masked language model whose head is cut to the tokens that can be drawn."""

    def __init__(self, model: Any, tokens: Numbers, window: int) -> None:
        self._model, self._base = model, model.base_model
        self.device = model.device
        self.window = min(window, _places(model))
        taken = inspect.signature(self._base.forward).parameters
        self._types = "token_type_ids" in taken and getattr(model.config, "type_vocab_size", 0) > 1
        embedded = model.get_input_embeddings()
        if len(tokens) and int(tokens.max()) >= embedded.weight.shape[0]:
            raise PolicyError(
                "the tokenizer has tokens that the model does not know", "check that both belong to the same model"
            )
        self._head: Any = _cut_head(model, tokens)
        self._columns = tokens
        self._way: _Way = self._whole
        self._way = next((way for way in self._ways() if self._agrees(way)), self._whole)

    @property
    def shortened(self) -> bool:
        """Return True if the head is computed only at masks, False if the model's own computation is used."""
        return self._way != self._whole

    @property
    def parameters(self) -> int:
        """Return the number of weights of the encoder without its word embeddings."""
        every = sum(part.numel() for part in self._base.parameters())
        return max(1, int(every - self._model.get_input_embeddings().weight.numel()))

    @property
    def embeddings(self) -> Any:
        """Return the model's word embeddings, shape (tokens, width)."""
        return self._model.get_input_embeddings().weight

    def forward(self, tokens: Numbers, totals: Numbers, types: Numbers, columns: Numbers) -> Any:
        """Score masks.

        Libraries compute differently if no token of a batch is padding, so every row has at least one.
        """
        import torch

        ids, real, places = (
            to_device(part, self.device) for part in (tokens, np.arange(tokens.shape[1]) < totals[:, None], columns)
        )
        extra = {"token_type_ids": to_device(types, self.device)} if self._types else {}
        with torch.inference_mode():
            return self._way(ids, real, (torch.arange(len(places), device=self.device)[:, None], places), extra)

    def _ways(self) -> Iterator[_Way]:
        """Return the ways to compute the scores of masks, the shortest first."""
        if self._head is None:
            return
        encoder = Encoder.of(self._base) if self.device.type == "cpu" else None
        if encoder is not None:
            yield partial(self._by_parts, encoder)
        if _hooked(self._base):
            yield self._cut_last
        yield self._cut

    def _by_parts(self, encoder: Encoder, *given: Any) -> Any:
        return self._head(encoder(*given))

    def _cut_last(self, ids: Any, real: Any, places: Any, extra: dict[str, Any]) -> Any:
        _MASKS.places = places
        try:
            return self._head(self._base(input_ids=ids, attention_mask=real.long(), **extra)[0])
        finally:
            _MASKS.places = None

    def _cut(self, ids: Any, real: Any, places: Any, extra: dict[str, Any]) -> Any:
        return self._head(self._base(input_ids=ids, attention_mask=real.long(), **extra)[0][places])

    def _whole(self, ids: Any, real: Any, places: Any, extra: dict[str, Any]) -> Any:
        import torch

        logits = self._model(input_ids=ids, attention_mask=real.long(), **extra).logits[places]
        return logits[..., torch.as_tensor(self._columns, device=self.device)]

    def _agrees(self, way: _Way) -> bool:
        """Say whether a way gives the same scores as the model's own."""
        import torch

        length = min(8, self.window)
        tokens = np.resize(self._columns, (2, length)).astype(np.int64)
        totals, types = np.full(2, length - 1), np.zeros((2, length), np.int64)
        columns = np.array([[0, length - 2], [1, 0]])
        answers = []
        for path in (way, self._whole):
            self._way = path
            try:
                answers.append(self.forward(tokens, totals, types, columns).float())
            except (RuntimeError, TypeError, AttributeError, ValueError, IndexError):
                return False
        scale = float(answers[1].abs().max()) + 1.0
        tolerance = scale * (1e-4 if self._model.dtype is torch.float32 else 0.05)
        return bool(torch.allclose(answers[0], answers[1], rtol=0.0, atol=tolerance))


def _places(model: Any) -> int:
    """Return the largest number of tokens in a row of a model."""
    places = int(getattr(model.config, "max_position_embeddings", 512) or 512)
    embedded = getattr(getattr(model.base_model, "embeddings", None), "position_embeddings", None)
    padding = getattr(embedded, "padding_idx", None)
    if padding is None and getattr(model.config, "model_type", "") == "mpnet":
        padding = 1
    return places if padding is None else places - padding - 1


def _hooked(base: Any) -> bool:
    """Have the attention of the last layer cut its output to masks; False if a model names its parts otherwise.

    After it, the layer works token by token. Its output is cut to masks in threads that are scoring; engines call one
    model from several threads.
    """
    layers = getattr(getattr(base, "encoder", None), "layer", None)
    attention = getattr(layers[-1], "attention", None) if layers else None
    with _HOOKING:
        if attention is not None and attention not in _HOOKED:
            attention.register_forward_hook(_at_masks)
            _HOOKED.add(attention)
    return attention is not None


def _at_masks(_module: Any, _given: Any, states: Any) -> Any:
    """Return an attention's output only at masks, if this thread has set their positions."""
    places = getattr(_MASKS, "places", None)
    if places is None:
        return None
    return (states[0][places], *states[1:]) if isinstance(states, tuple) else states[places]


def _cut_head(model: Any, tokens: Numbers) -> Callable[[Any], Any] | None:
    """Return a function from hidden states to scores of some tokens; None if the head is not found."""
    import torch

    head = _head(model)
    last = model.get_output_embeddings()
    if head is None or not isinstance(last, torch.nn.Linear):
        return None
    every = len(tokens) == last.out_features and bool((tokens == np.arange(len(tokens))).all())
    if every:
        whole: Callable[[Any], Any] = head
        return whole
    kept = torch.as_tensor(tokens, device=last.weight.device)
    cut = torch.nn.Linear(last.in_features, len(tokens), bias=last.bias is not None, device="meta")
    cut.weight = torch.nn.Parameter(last.weight.detach()[kept].clone(), requires_grad=False)
    if last.bias is not None:
        cut.bias = torch.nn.Parameter(last.bias.detach()[kept].clone(), requires_grad=False)
    return _replaced(head, last, cut)


def _replaced(head: Any, old: Any, new: Any) -> Callable[[Any], Any]:
    """Return a copy of a head in which one module is replaced; everything else is shared."""
    changed: Callable[[Any], Any] = copy.deepcopy(
        head, {id(old): new, **{id(part): part for part in head.parameters()}}
    )
    return changed


def _head(model: Any) -> Any:
    """Return a model's head as one module, for all known architectures."""
    import torch

    for name in ("lm_head", "cls", "predictions"):  # RoBERTa and similar models, MPNet; BERT, DeBERTa; ALBERT
        if hasattr(model, name):
            return getattr(model, name)
    chains = (
        ("head", "decoder"),  # ModernBERT
        ("generator_predictions", "generator_lm_head"),  # ELECTRA
        ("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector"),  # DistilBERT
    )
    for chain in chains:
        if all(hasattr(model, name) for name in chain):
            return torch.nn.Sequential(*(getattr(model, name) for name in chain))
    return None
