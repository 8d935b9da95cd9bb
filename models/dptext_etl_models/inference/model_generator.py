"""Score next tokens with causal models and encoder-decoders, with a cache of fixed size.

The scores of a text do not depend on other texts (docs/spec/privacy.md#batch-independence). A prompt is padded to a
bucket that depends on its own length, a batch has a fixed number of rows, and the cache is reserved for the longest
output at the start. So no shape depends on the contents or draws of other texts. Libraries compute differently if no
row of a batch is padded, so every row has at least one padding token. On a GPU, the number of rows follows from the
memory that was free before any text was read, and from the memory of a batch of dummies.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from dptext_etl.errors import PolicyError, seam, without_panics
from dptext_etl_models.inference.prompts import SPARE, Prompts
from dptext_etl_models.inference.server import Prompt

SHORTEST_BUCKET = 32
_STRIDE = 8
_WAITING, _CPU_WAITING = 8, 2**30  # batches that wait, at most, and their memory on a CPU, bytes
_CPU_ROWS = 16
_MOST_ROWS = 1024  # dummies of small tables are computed, too
_MEASURED = 2  # rows of the batch whose memory is measured
_SHARE = 0.5  # of the free memory; other tasks, draws and fragments use the rest
_KEYS_AND_VALUES = {"DynamicLayer", "StaticLayer", "StaticSlidingWindowLayer"}


class _Outputs(NamedTuple):
    """Token ids that can be drawn, and their indices among the scores; None if these are all scores."""

    columns: npt.NDArray[np.int64]
    kept: Any


class ModelGenerator:
    """Score next tokens with a language model."""

    def __init__(
        self, model: Any, prompts: Prompts, columns: npt.NDArray[np.int64], ends: frozenset[int], longest: int
    ) -> None:
        import torch

        self._model, self._prompts = model, prompts
        self._longest = longest
        self.outputs = len(columns)
        self.ends = frozenset(np.flatnonzero(np.isin(columns, sorted(ends))).tolist())
        self._dummy = [int(columns[min(self.ends)])]
        self._start = _EncoderDecoderBatch if model.config.is_encoder_decoder else _CausalBatch
        every = len(columns) == model.config.get_text_config(decoder=True).vocab_size
        self._drawn_from = _Outputs(columns, None if every else torch.as_tensor(columns, device=model.device))
        with seam(
            "scoring with the model", PolicyError, "check that the model is of the kind that the mechanism needs"
        ):
            first = self.begin([], self.bucket(1), 1, longest)
        if tuple(first.scores().shape) != (1, self.outputs):
            raise PolicyError(
                "the model scores another number of tokens than its configuration says",
                "use an unchanged copy of the model",
            )
        self.stride = _STRIDE if first.adopts else longest
        self._token_bytes = first.size // (self.bucket(1) + longest) + 1
        self._rows: dict[int, int] = {}
        self._free = 0
        if model.device.type == "cuda":
            idle = torch.cuda.memory_reserved(model.device) - torch.cuda.memory_allocated(model.device)
            self._free = torch.cuda.mem_get_info(model.device)[0] + idle

    def prompts(self, texts: Sequence[str]) -> list[Prompt]:
        """Return the prompt of every text; a prompt without tokens becomes one end token."""
        return [self._dummy if prompt == [] else prompt for prompt in self._prompts.encode(texts)]

    def bucket(self, length: int) -> int:
        """Return the next power of two above a length, at most the length of the longest prompt."""
        return min(max(SHORTEST_BUCKET, 1 << length.bit_length()), self._prompts.limit + SPARE)

    def rows(self, bucket: int) -> int:
        """Return the number of rows of a batch, a power of two: on a GPU, as many as its memory holds."""
        if self._model.device.type == "cpu":
            return _CPU_ROWS
        if bucket not in self._rows:
            fitting = int(_SHARE * self._free) // self._row_bytes(bucket)
            self._rows[bucket] = min(_MOST_ROWS, 1 << max(0, fitting.bit_length() - 1))
        return self._rows[bucket]

    def waiting(self, bucket: int) -> int:
        """Return how many batches may wait: on a GPU, as many as `rows` counts."""
        batch = _CPU_ROWS * self._token_bytes * (bucket + self._longest)
        return _WAITING if self._model.device.type == "cuda" else min(_WAITING, _CPU_WAITING // batch)

    def _row_bytes(self, bucket: int) -> int:
        """Measure the memory of a row while it is computed, and in all batches that wait."""
        import torch

        cuda, device = torch.cuda, self._model.device
        before = cuda.memory_allocated(device)
        cuda.reset_peak_memory_stats(device)
        with suppress(Exception), without_panics():  # models fail in any way; batches of one row follow
            batch = self.begin([], bucket, _MEASURED, self._longest)
            batch.append(np.zeros(_MEASURED, np.int64))
            peak, kept = (taken(device) - before for taken in (cuda.max_memory_allocated, cuda.memory_allocated))
            return int(peak + _WAITING * kept) // _MEASURED + 1
        return self._free + 1

    def begin(self, prompts: Sequence[Sequence[int]], bucket: int, rows: int, longest: int) -> _ModelBatch:
        """Start a batch (see `steps.Generator.begin`); dummy rows continue a prompt of one token."""
        import torch

        started = [*prompts, *[self._dummy] * (rows - len(prompts))]
        with torch.inference_mode():
            return self._start(self._model, started, bucket, longest, self._drawn_from)

    def text(self, outputs: Sequence[int]) -> str:
        """Return the text of a sequence of outputs."""
        return self._prompts.decode([int(self._drawn_from.columns[number]) for number in outputs])


class _ModelBatch:
    """Common base of both kinds of models: hold the last scores, and select the scores of the outputs."""

    left: ClassVar[bool]
    """True if prompts are padded on the left."""
    _mask: Any
    _layers: Sequence[Any]  # of the cache
    _beside: Any  # what else is held of each row

    def __init__(
        self, model: Any, prompts: Sequence[Sequence[int]], bucket: int, longest: int, outputs: _Outputs
    ) -> None:
        self._model, self._outputs = model, outputs
        ids, mask = _padded(prompts, bucket, left=self.left)
        self._last = self._begin(ids, mask, longest)

    def scores(self) -> Any:
        """Return the scores of the outputs, shape (rows, outputs)."""
        logits = self._last[:, -1]
        return logits if self._outputs.kept is None else logits[:, self._outputs.kept]

    def append(self, chosen: Any) -> None:
        """Continue every row by one token, and score the next."""
        import torch

        tokens = torch.as_tensor(chosen, device=self._model.device)
        if self._outputs.kept is not None:
            tokens = self._outputs.kept[tokens]
        with torch.inference_mode():
            self._last = self._forward(tokens[:, None])

    @property
    def adopts(self) -> bool:
        """Return whether all that the cache holds of a row are its keys and values."""
        return {type(layer).__name__ for layer in self._layers} <= _KEYS_AND_VALUES

    def adopt(self, places: npt.NDArray[np.int64], other: _ModelBatch, rows: npt.NDArray[np.int64]) -> None:
        """Replace own rows by rows of another batch of that bucket, which has made as many steps."""
        import torch

        here, there = (torch.as_tensor(numbers, device=self._model.device) for numbers in (places, rows))
        with torch.inference_mode():
            for own, given in zip(self._state(), other._state(), strict=True):
                own.index_copy_(0, here, given.index_select(0, there))

    @property
    def size(self) -> int:
        """Return the memory of all rows, bytes."""
        return sum(part.nbytes for part in self._state())

    def _state(self) -> list[Any]:
        """Return all tensors that hold something of each row."""
        cached = [part for layer in self._layers for part in (layer.keys, layer.values) if part is not None]
        return [self._last, self._mask, self._beside, *cached]

    def _begin(self, ids: npt.NDArray[np.int64], mask: npt.NDArray[np.bool_], longest: int) -> Any:
        """Read the prompts, shape (rows, bucket), and score the next token."""
        raise NotImplementedError

    def _forward(self, tokens: Any) -> Any:
        """Score the next token after one more token per row, shape (rows, 1)."""
        raise NotImplementedError


class _CausalBatch(_ModelBatch):
    """Pad prompts on the left, so that all rows continue at one column; positions count only a row's own tokens."""

    left: ClassVar[bool] = True

    def _begin(self, ids: npt.NDArray[np.int64], mask: npt.NDArray[np.bool_], longest: int) -> Any:
        import torch
        from transformers import StaticCache

        model, (rows, bucket) = self._model, ids.shape
        wide = np.zeros((rows, bucket + longest), bool)
        wide[:, :bucket] = mask
        self._mask = torch.as_tensor(wide, device=model.device)
        self._cache = StaticCache(model.config, max_cache_len=bucket + longest)
        self._layers = self._cache.layers
        taken = inspect.signature(model.forward).parameters
        self._positions = "position_ids" in taken
        self._options = {"logits_to_keep": 1} if "logits_to_keep" in taken else {}
        self._seen = bucket
        self._beside = torch.as_tensor(mask.sum(1), device=model.device)[:, None]
        first = torch.as_tensor(np.maximum(np.cumsum(mask, axis=1) - 1, 0), device=model.device)
        return self._score(torch.as_tensor(ids, device=model.device), first)

    def _forward(self, tokens: Any) -> Any:
        self._mask[:, self._seen] = True
        self._seen += 1
        positions, self._beside = self._beside, self._beside + 1
        return self._score(tokens, positions)

    def _score(self, tokens: Any, positions: Any) -> Any:
        placed = {"position_ids": positions} if self._positions else {}
        return self._model(
            input_ids=tokens,
            attention_mask=self._mask,
            past_key_values=self._cache,
            use_cache=True,
            **placed,
            **self._options,
        ).logits


class _EncoderDecoderBatch(_ModelBatch):
    """Pad prompts on the right and encode them once; the decoder starts from the model's start token."""

    left: ClassVar[bool] = False

    def _begin(self, ids: npt.NDArray[np.int64], mask: npt.NDArray[np.bool_], longest: int) -> Any:
        import torch
        from transformers import DynamicCache, EncoderDecoderCache, StaticCache
        from transformers.modeling_outputs import BaseModelOutput

        model = self._model
        self._mask = torch.as_tensor(mask, device=model.device)
        self._beside = model.get_encoder()(
            input_ids=torch.as_tensor(ids, device=model.device), attention_mask=self._mask
        ).last_hidden_state
        self._encoded = BaseModelOutput(last_hidden_state=self._beside)
        decoder = model.config.get_text_config(decoder=True)
        cache, given = StaticCache(decoder, max_cache_len=longest), DynamicCache(config=decoder)
        self._cache, self._layers = EncoderDecoderCache(cache, given), [*cache.layers, *given.layers]
        start = np.full((len(ids), 1), _start_token(model), np.int64)
        return self._forward(torch.as_tensor(start, device=model.device))

    def _forward(self, tokens: Any) -> Any:
        return self._model(
            encoder_outputs=self._encoded,
            attention_mask=self._mask,
            decoder_input_ids=tokens,
            past_key_values=self._cache,
            use_cache=True,
        ).logits


def _start_token(model: Any) -> int:
    """Return the first token of a decoder: the start token of its configuration, or the start token of its texts."""
    for name in ("decoder_start_token_id", "bos_token_id"):
        for settings in (model.config, model.generation_config):
            token = getattr(settings, name, None)
            if isinstance(token, int):
                return token
    raise PolicyError("the model's configuration names no token to start from", "add decoder_start_token_id to it")


def _padded(
    prompts: Sequence[Sequence[int]], bucket: int, *, left: bool
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Put prompts into rows of a bucket's length; return token ids (0 for padding) and the mask of tokens."""
    ids = np.zeros((len(prompts), bucket), np.int64)
    mask = np.zeros((len(prompts), bucket), bool)
    for row, prompt in enumerate(prompts):
        if not 0 < len(prompt) < bucket:
            raise ValueError("a prompt is longer than its bucket")
        place = slice(bucket - len(prompt), None) if left else slice(None, len(prompt))
        ids[row, place] = prompt
        mask[row, place] = True
    return ids, mask
