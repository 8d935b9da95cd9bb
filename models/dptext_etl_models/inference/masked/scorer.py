"""Score positions with a masked language model, many texts at once.

The scores of a text do not depend on other texts of its batch (docs/spec/privacy.md#batch-independence). A row is
padded to a length that depends on its own tokens, a batch of that length has a fixed number of rows with dummies if
needed, and no operation mixes rows. If memory runs out, batches of that shape have half the rows from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dptext_etl.sampling import Clip
from dptext_etl_models.inference.masked.layout import Asked, Frame, Layout, Pieces, Rows
from dptext_etl_models.inference.masked.model import MaskedModel
from dptext_etl_models.inference.masked.script import Numbers
from dptext_etl_models.inference.running import to_device

BUCKET = 8
"""Rows are padded to a multiple of the first number of tokens, and to a multiple of the second number of masks."""
_CPU_TOKENS = (256, 512)  # smallest and largest number of tokens of a batch
_CPU_WORK = 2**31  # tokens times parameters that make a batch worth its overhead
_CPU_MASKS, _CUDA_MASKS = 128, 8192  # largest number of masks of a batch; each has a score per output
_CUDA_TOKENS = 2**15
_SMALL = 2**24  # parameters up to which threads compute a batch each instead of sharing one
_AT_A_TIME = 8


class Shape(NamedTuple):
    """The shape of a batch: padded tokens and padded masks of a row."""

    length: int
    masks: int


class Batch(NamedTuple):
    """Rows of one shape for the model."""

    asked: Asked  # the draws to score, one row each; rows after these are dummies
    shape: Shape  # padded tokens and masks of a row
    tokens: Numbers  # token ids, shape (rows, length)
    totals: Numbers  # number of real tokens of each row
    types: Numbers  # segment numbers, shape (rows, length)
    columns: Numbers  # positions of each row's masks, shape (rows, masks)
    real: npt.NDArray[np.bool_]  # True for masks inside the window, shape (asked rows, masks)


class Lexicon(NamedTuple):
    """Words and outputs as token ids."""

    encode: Callable[[Sequence[str]], list[Pieces]]  # turns words into token ids, one list per word
    # token ids of every output in the context of later words; none for the padding of hidden lengths
    outputs: Sequence[Pieces]
    tokens: Numbers  # token ids whose scores are the scores of the outputs, shape (m,), without the padding
    pads: bool  # True if the last output is the padding, which has no token


class Adjustment(NamedTuple):
    """An adjustment of scores before they are clipped."""

    # weight of the model's clipped scores next to the similarity of words, or None to use only scores (appendix A of
    # the paper, bounded: docs/spec/privacy.md#dpmlm-appendix-a)
    likeness: float | None = None
    # outputs that get the lowest score in the place of a word (the paper's filter of antonyms)
    excluded: Callable[[str], Sequence[int]] | None = None


class Made(NamedTuple):
    """Scores that a model computed, or computes; `event` is when it has, in the stream of a GPU."""

    scores: Any
    event: Any = None


class BatchScorer:
    """Fill batches with rows of texts, and score them with a masked language model."""

    def __init__(
        self, model: MaskedModel, frame: Frame, lexicon: Lexicon, clip: Clip, adjustment: Adjustment | None = None
    ) -> None:
        self.model, self.frame, self.lexicon, self.clip = model, frame, lexicon, clip
        self.adjustment = adjustment or Adjustment()
        self.outputs = len(lexicon.tokens) + lexicon.pads
        self.longest = max(map(len, lexicon.outputs))
        self.single = None
        if self.longest == 1 and all(map(len, lexicon.outputs)):
            self.single = np.array([piece[0] for piece in lexicon.outputs], np.int64)
        self.most = max(1, (frame.room // 2) // 2)
        """Largest number of masks of one row; the rest of a copy's half of the window is context."""
        self.batch_rows: dict[Shape, int] = {}
        self.likeness = None if self.adjustment.likeness is None else _unit(model.embeddings)

    def shapes(self, totals: Numbers, masks: Numbers) -> npt.NDArray[np.int64]:
        """Return the padded tokens and masks of rows, shape (n, 2); they depend only on each row."""
        lengths = np.minimum((totals // BUCKET + 1) * BUCKET, self.frame.window)
        return np.array([lengths, np.where(masks == 1, 1, -(-masks // BUCKET) * BUCKET)]).T

    def rows(self, shape: Shape) -> int:
        """Return the number of rows of a batch of a shape on this device."""
        if shape not in self.batch_rows:
            if self.model.device.type == "cpu":
                least, most = _CPU_TOKENS
                tokens, masks = min(most, max(least, _CPU_WORK // self.model.parameters)), _CPU_MASKS
            else:
                tokens, masks = _CUDA_TOKENS, _CUDA_MASKS
            self.batch_rows[shape] = max(1, min(tokens // shape.length, masks // shape.masks))
        return self.batch_rows[shape]

    def halve(self, shape: Shape) -> None:
        """Halve the rows of batches of a shape from now on."""
        self.batch_rows[shape] = max(1, self.rows(shape) // 2)

    @property
    def batches_at_once(self) -> int:
        """Return how many batches are under way at a time.

        Of a small model on a CPU, several are computed. A GPU computes one while the outputs of the one before it are
        drawn, and while the next one is filled.
        """
        import torch

        if self.model.device.type == "cuda":
            return 2
        if self.model.device.type != "cpu" or self.model.parameters > _SMALL:
            return 1
        return min(_AT_A_TIME, int(torch.get_num_threads()))

    @property
    def batch_threads(self) -> int:
        """Return how many threads compute batches: one for a GPU, which computes them one after the other."""
        return 1 if self.model.device.type == "cuda" else self.batches_at_once

    @cached_property
    def _stream(self) -> Any:
        """A stream of a GPU, separate from the draws, so that a batch is computed meanwhile; None elsewhere."""
        import torch

        if self.model.device.type != "cuda":
            return None
        torch.cuda.synchronize(self.model.device)  # so that the weights are there
        return torch.cuda.Stream(self.model.device)

    def batch(self, layout: Layout, draws: Asked, rows: Rows, shape: Shape) -> Batch:
        """Fill a batch with some rows of one shape."""
        count = self.rows(shape)
        columns = np.zeros((count, shape.masks), np.int64)
        columns[: len(draws.first)], real = layout.columns(rows, draws, shape.masks)
        return Batch(draws, shape, *layout.fill(rows, count, shape.length), columns, real)

    def forward(self, batch: Batch) -> Made:
        """Return the model's scores of the masks inside the window, shape (draws, tokens); any thread may call this.

        On a CPU, the work continues in numbers of 32 bits, so that they are widened here, in the batch's thread.
        """
        import torch

        if self._stream is None:
            return Made(self._forward(batch))
        with torch.cuda.stream(self._stream):
            return Made(self._forward(batch), self._stream.record_event())

    def _forward(self, batch: Batch) -> Any:
        import torch

        logits = self.model.forward(batch.tokens, batch.totals, batch.types, batch.columns)
        with torch.inference_mode():
            flat = logits.reshape(-1, logits.shape[-1])
            if not (len(batch.asked.first) == len(batch.tokens) and batch.real.all()):
                flat = flat[to_device(np.flatnonzero(batch.real), flat.device)]
            return flat.float() if flat.device.type == "cpu" and flat.dtype.itemsize < 4 else flat

    def scores(self, batch: Batch, computed: Made, layout: Layout) -> tuple[Numbers, Any]:
        """Return draws and their scores, adjusted; what follows on a GPU comes after the batch was computed."""
        import torch

        if computed.event is not None:
            now = torch.cuda.current_stream(computed.scores.device)
            now.wait_event(computed.event)
            computed.scores.record_stream(now)
        draws = (batch.asked.first[:, None] + np.arange(batch.shape.masks))[batch.real]
        with torch.inference_mode():
            return draws, self._adjusted(computed.scores, layout, draws)

    def _adjusted(self, scores: Any, layout: Layout, draws: Numbers) -> Any:
        import torch

        adjusted = self.likeness is not None or self.adjustment.excluded is not None
        replaced = layout.replaced[draws].tolist() if adjusted else ()
        if self.likeness is not None:
            low, high = self.clip
            pieces = [self.lexicon.encode([layout.word(number)])[0] if number >= 0 else [] for number in replaced]
            like = torch.stack([_mean(self.likeness, piece) for piece in pieces])
            unit = like @ self.likeness[torch.as_tensor(self.lexicon.tokens, device=like.device)].T
            scores = unit.clamp(-1.0, 1.0) + self.adjustment.likeness * scores.float().clamp(low, high)
        if self.adjustment.excluded is not None:
            for row, number in enumerate(replaced):
                if number >= 0:
                    scores[row, list(self.adjustment.excluded(layout.word(number)))] = float("-inf")
        if self.lexicon.pads:
            least = scores.new_full((len(scores), 1), float("-inf"))
            scores = torch.cat([scores, least], dim=1)
        return scores

    def beyond(self, count: int) -> npt.NDArray[np.float32]:
        """Return the scores of draws after the end of a text: highest for the padding, lowest for all others."""
        scores = np.full((count, self.outputs), -np.inf, np.float32)
        scores[:, -1] = np.inf
        return scores


def _unit(embeddings: Any) -> Any:
    import torch

    return torch.nn.functional.normalize(embeddings.detach().float(), dim=1)


def _mean(embeddings: Any, piece: Pieces) -> Any:
    import torch

    if not len(piece):
        return embeddings.new_zeros(embeddings.shape[1])
    return torch.nn.functional.normalize(embeddings[list(piece)].mean(dim=0), dim=0)
