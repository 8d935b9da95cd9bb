"""Score positions with a masked language model, many texts at once.

The scores of a text do not depend on other texts of its batch (docs/spec/privacy.md#batch-independence). A row is
padded to a length that depends on its own tokens, a batch of that length has a fixed number of rows with dummies if
needed, and no operation mixes rows. The next batch takes the shape with the most waiting rows, so that few dummies are
computed. If memory runs out, batches of that shape have half the rows from then on. A row that cannot be scored fails
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dptext_etl.inference.masked.layout import Asked, Frame, Layout, Pieces
from dptext_etl.inference.masked.model import MaskedModel
from dptext_etl.inference.masked.steps import PADDED, Answer, Block, Item, Numbers, Script, Session
from dptext_etl.inference.memory import out_of_memory
from dptext_etl.inference.sampler import Clip
from dptext_etl.scoring import Choices

BUCKET = 8
"""Rows are padded to a multiple of the first number of tokens, and to a multiple of the second number of masks."""
_CPU_TOKENS = (256, 512)  # smallest and largest number of tokens of a batch
_CPU_WORK = 2**31  # tokens times parameters that make a batch worth its overhead
_CPU_MASKS, _CUDA_MASKS = 128, 2048  # largest number of masks of a batch; each has a score per output
_CUDA_TOKENS = 2**15
_PADS = 256  # draws after the ends of texts that are answered at once


class Shape(NamedTuple):
    """The shape of a batch: padded tokens and padded masks of a row."""

    length: int
    masks: int


class Lexicon(NamedTuple):
    """Words and outputs as token ids.

    Attributes:
        encode: Turns words into token ids, one list per word.
        outputs: Token ids of every output in the context of later words; none for the padding of hidden lengths.
        tokens: Token ids whose scores are those of the outputs, shape (m,), without the padding.
        pads: True if the last output is the padding, which has no token.
    """

    encode: Callable[[Sequence[str]], list[Pieces]]
    outputs: Sequence[Pieces]
    tokens: Numbers
    pads: bool


class Adjustment(NamedTuple):
    """An adjustment of scores before they are clipped.

    Attributes:
        likeness: Weight of the model's clipped scores beside the similarity of words, or None to use scores alone
            (appendix A of the paper, bounded: docs/spec/privacy.md#dpmlm-appendix-a).
        excluded: Outputs that get the lowest score in the place of a word (the paper's filter of antonyms).
    """

    likeness: float | None = None
    excluded: Callable[[str], Sequence[int]] | None = None


class MaskedScorer:
    """Score positions with a masked language model.

    Args:
        model: The model with the columns of `lexicon.tokens`.
        frame: The tokens that the tokenizer puts around a pair of texts.
        lexicon: Words and outputs.
        clip: Public range of the model's scores.
        adjustment: Adjustment of scores, or None.
    """

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
        self._rows: dict[Shape, int] = {}
        self.likeness = None if self.adjustment.likeness is None else _unit(model.embeddings)

    def open(self, scripts: Sequence[Script]) -> Session:
        """Start scoring some texts."""
        return MaskedSession(self, scripts)

    def shapes(self, totals: Numbers, masks: Numbers) -> npt.NDArray[np.int64]:
        """Return the padded tokens and masks of rows, shape (n, 2); they depend on each row alone."""
        lengths = np.minimum((totals // BUCKET + 1) * BUCKET, self.frame.window)
        return np.stack([lengths, np.where(masks == 1, 1, -(-masks // BUCKET) * BUCKET)], axis=1)

    def rows(self, shape: Shape) -> int:
        """Return the number of rows of a batch of a shape on this device."""
        if shape not in self._rows:
            if self.model.device.type == "cpu":
                least, most = _CPU_TOKENS
                tokens, masks = min(most, max(least, _CPU_WORK // self.model.parameters)), _CPU_MASKS
            else:
                tokens, masks = _CUDA_TOKENS, _CUDA_MASKS
            self._rows[shape] = max(1, min(tokens // shape.length, masks // shape.masks))
        return self._rows[shape]

    def halve(self, shape: Shape) -> None:
        """Halve the rows of batches of a shape from now on."""
        self._rows[shape] = max(1, self.rows(shape) // 2)

    def forward(self, layout: Layout, asked: Asked, shape: Shape, words: Sequence[str]) -> tuple[Numbers, Any]:
        """Score some rows of one shape.

        Args:
            layout: The texts.
            asked: The draws to score, at most as many as a batch of that shape has rows.
            shape: Padded tokens and masks of a row.
            words: The words of the layout's texts by index, for the similarity or the antonyms of a word.

        Returns:
            The draws whose masks are inside the window, and their scores, shape (draws, outputs).
        """
        import torch

        rows, count = layout.rows(asked), self.rows(shape)
        tokens, totals, types = layout.fill(rows, count, shape.length)
        columns = np.zeros((count, shape.masks), np.int64)
        columns[: len(asked.first)], real = layout.columns(rows, asked, shape.masks)
        logits = self.model.forward(tokens, totals, types, columns)
        draws = (asked.first[:, None] + np.arange(shape.masks))[real]
        with torch.inference_mode():
            flat = logits.reshape(-1, logits.shape[-1])
            if not (len(asked.first) == count and real.all()):
                flat = flat[torch.as_tensor(np.flatnonzero(real), device=flat.device)]
            return draws, self._adjusted(flat, layout, draws, words)

    def _adjusted(self, scores: Any, layout: Layout, draws: Numbers, words: Sequence[str]) -> Any:
        import torch

        replaced = layout.replaced[draws].tolist()
        if self.likeness is not None:
            low, high = self.clip
            pieces = [self.lexicon.encode([words[number]])[0] if number >= 0 else [] for number in replaced]
            like = torch.stack([_mean(self.likeness, piece) for piece in pieces])
            unit = like @ self.likeness[torch.as_tensor(self.lexicon.tokens, device=like.device)].T
            scores = unit.clamp(-1.0, 1.0) + self.adjustment.likeness * scores.float().clamp(low, high)
        if self.adjustment.excluded is not None:
            for row, number in enumerate(replaced):
                if number >= 0:
                    scores[row, list(self.adjustment.excluded(words[number]))] = float("-inf")
        if self.lexicon.pads:
            least = scores.new_full((len(scores), 1), float("-inf"))
            scores = torch.cat([scores, least], dim=1)
        return scores

    def beyond(self, count: int) -> npt.NDArray[np.float32]:
        """Return the scores of draws after the end of a text: highest for the padding, lowest for all others."""
        scores = np.full((count, self.outputs), -np.inf, np.float32)
        scores[:, -1] = np.inf
        return scores


class MaskedSession:
    """Hold the texts that a masked language model is scoring."""

    def __init__(self, scorer: MaskedScorer, scripts: Sequence[Script]) -> None:
        self._scorer = scorer
        self._words = [word for script in scripts for word in script.words]
        self._layout = Layout(scripts, scorer.lexicon.encode(self._words), scorer.frame, scorer.longest)
        self._inside = np.array([_inside(script.items) for script in scripts], np.int64)
        self._waiting: dict[Shape, list[Asked]] = {}
        self._beyond: list[tuple[int, int]] = []
        self._lost: list[Numbers] = []

    def ask(self, blocks: Sequence[Block]) -> None:
        """Find the rows of some blocks, and queue them by shape."""
        layout = self._layout
        given = np.array(blocks, np.int64).reshape(-1, 3)
        inside = np.minimum(given[:, 2], np.maximum(self._inside[given[:, 0]], given[:, 1]))
        for record, last, first in zip(given[:, 0].tolist(), given[:, 2].tolist(), inside.tolist(), strict=True):
            if first < last:
                self._beyond.extend((record, draw) for draw in range(first, last))
        given[:, 2] = inside
        given = given[given[:, 1] < inside]
        if not len(given):
            return
        asked = layout.asked(given, self._scorer.most)
        shapes = self._scorer.shapes(layout.rows(asked).totals, asked.last - asked.first)
        kinds, kind = np.unique(shapes, axis=0, return_inverse=True)
        for number, (length, masks) in enumerate(kinds.tolist()):
            some = asked.take(np.flatnonzero(kind.ravel() == number))
            self._waiting.setdefault(Shape(length, masks), []).append(some)

    def answer(self) -> Answer:
        """Score a batch of the shape with the most waiting rows; failed draws get no scores."""
        if self._beyond:
            some, self._beyond = self._beyond[:_PADS], self._beyond[_PADS:]
            records, draws = np.array(some, np.int64).T
            return Answer(records, draws, self._scorer.beyond(len(some)))
        if self._lost:
            return self._answered(self._lost.pop(), None)
        shape, asked = self._next()
        try:
            draws, scores = self._scorer.forward(self._layout, asked, shape, self._words)
        except Exception as exc:  # noqa: BLE001  (models fail in any way, and none may quote or drop a text)
            if out_of_memory(exc) and self._scorer.rows(shape) > 1:
                self._scorer.halve(shape)
                self._waiting.setdefault(shape, []).insert(0, asked)
                return self.answer()
            draws, scores = self._one_by_one(asked, shape)
        missing = np.setdiff1d(_every(asked), draws)
        if len(missing):
            self._lost.append(missing)
            if not len(draws):
                return self.answer()
        return self._answered(draws, scores)

    def put(self, blocks: Sequence[Block], chosen: Sequence[Choices]) -> None:
        """Write the drawn outputs into the texts' second copies."""
        self._layout.released(blocks, chosen, self._scorer.lexicon.outputs, self._scorer.single)

    def _answered(self, draws: Numbers, scores: Any) -> Answer:
        records = np.searchsorted(self._layout.starts, draws, side="right") - 1
        return Answer(records, draws - self._layout.starts[records], scores)

    def _next(self) -> tuple[Shape, Asked]:
        """Take rows of the shape whose batch is filled best."""
        shape = max(self._waiting, key=lambda shape: (self._filled(shape), shape))
        parts, rows = self._waiting.pop(shape), self._scorer.rows(shape)
        taken, left = [], rows
        while parts and left:
            part = parts.pop(0)
            taken.append(part.take(slice(0, left)))
            if len(part.first) > left:
                parts.insert(0, part.take(slice(left, None)))
            left -= len(taken[-1].first)
        if parts:
            self._waiting[shape] = parts
        return shape, Asked(*(np.concatenate(columns) for columns in zip(*taken, strict=True)))

    def _filled(self, shape: Shape) -> float:
        return min(1.0, sum(len(part.first) for part in self._waiting[shape]) / self._scorer.rows(shape))

    def _one_by_one(self, asked: Asked, shape: Shape) -> tuple[Numbers, Any]:
        """Score each row of a failed batch in a batch of its own; rows that fail again get no scores."""
        draws, scores = [np.zeros(0, np.int64)], []
        for row in range(len(asked.first)):
            try:
                alone = asked.take(slice(row, row + 1))
                found, row_scores = self._scorer.forward(self._layout, alone, shape, self._words)
            except Exception:  # noqa: BLE001, S112  (uniform draws follow; a reason might quote the text)
                continue
            draws.append(found)
            scores.append(row_scores.float().cpu().numpy())
        return np.concatenate(draws), np.concatenate(scores) if scores else None


def _every(asked: Asked) -> Numbers:
    """Return all draws of some rows."""
    counts = asked.last - asked.first
    inside = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.asarray(np.repeat(asked.first, counts) + inside)


def _inside(items: Sequence[Item]) -> int:
    """Count the draws of a text before its end."""
    return sum(item.drawn and item.word != PADDED for item in items)


def _unit(embeddings: Any) -> Any:
    import torch

    return torch.nn.functional.normalize(embeddings.detach().float(), dim=1)


def _mean(embeddings: Any, piece: Pieces) -> Any:
    import torch

    if not len(piece):
        return embeddings.new_zeros(embeddings.shape[1])
    return torch.nn.functional.normalize(embeddings[list(piece)].mean(dim=0), dim=0)
