"""Queue the rows of texts by shape, and answer with the scores of batches, several in progress at a time.

The next batch uses the shape with the most waiting rows, so that few dummies are computed. Answers come in the order
in which batches were started. A row that cannot be scored fails by itself.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import pairwise
from typing import Any

import numpy as np

from dptext_etl.errors import without_panics
from dptext_etl.sampling import Choices
from dptext_etl_models.inference.masked.layout import Asked, Layout, Rows
from dptext_etl_models.inference.masked.scorer import Batch, BatchScorer, Shape
from dptext_etl_models.inference.masked.script import PADDED, Numbers, Script, Scripts
from dptext_etl_models.inference.masked.steps import Answer
from dptext_etl_models.inference.running import out_of_memory
from dptext_etl_models.inference.torch_threads import single_threads


class BatchThreads:
    """Threads that compute this number of batches (`width`), at most one each; for one batch, the caller's own thread.

    Batches begin in their order, and so they end where there is one thread.
    """

    def __init__(self, width: int, threads: int | None = None) -> None:
        self.width = width
        self._pool = single_threads(threads or width) if width > 1 else None

    def begin(self, work: Callable[..., Any], *given: Any) -> Future[Any]:
        """Begin a piece of work, and return the future of its result or of its exception."""
        if self._pool is not None:
            return self._pool.submit(work, *given)
        done: Future[Any] = Future()
        try:
            with without_panics():
                done.set_result(work(*given))
        except Exception as exc:  # noqa: BLE001  (the caller of the result gets it)
            done.set_exception(exc)
        return done


_MASK_BITS = 20  # of a shape's number, which sorts as the shape does
_PADS = 256  # draws after the ends of texts that are answered at once
_WORTH = 0.5  # share of a batch's rows that makes it worth a thread while others are under way


class MaskedSession:
    """Hold the texts that a masked language model is scoring."""

    def __init__(self, scorer: BatchScorer, scripts: Sequence[Script]) -> None:
        self._scorer, every = scorer, Scripts.of(scripts)
        self._layout = Layout(every, scorer.lexicon.encode, scorer.frame, scorer.longest)
        self._inside = every.counted(every.drawn & (every.word != PADDED))  # draws before the end of each text
        self._workers = BatchThreads(scorer.batches_at_once, scorer.batch_threads)
        self._under_way: deque[tuple[Batch, Future[Any]]] = deque()
        self._waiting: dict[Shape, list[tuple[Asked, Rows]]] = {}
        self._counts: Counter[Shape] = Counter()  # rows that wait
        self._beyond: list[tuple[int, int]] = []
        self._lost: list[Numbers] = []

    def ask(self, blocks: Numbers) -> None:
        """Find the rows of some blocks, and queue them by shape."""
        layout = self._layout
        inside = np.minimum(blocks[:, 2], np.maximum(self._inside[blocks[:, 0]], blocks[:, 1]))
        if (inside < blocks[:, 2]).any():
            past = np.array([blocks[:, 0], inside, blocks[:, 2]]).T.tolist()
            self._beyond.extend((record, draw) for record, first, last in past for draw in range(first, last))
            blocks = np.array([blocks[:, 0], blocks[:, 1], inside]).T[blocks[:, 1] < inside]
        if not len(blocks):
            return
        draws = layout.asked(blocks, self._scorer.most)
        rows = layout.rows(draws)  # they stay so until these draws are put, which is after they are answered
        shapes = self._scorer.shapes(rows.totals, draws.last - draws.first)
        kind = shapes[:, 0] << _MASK_BITS | shapes[:, 1]
        order = np.argsort(kind, kind="stable")
        kind = kind[order]
        ends = np.flatnonzero(np.append(kind[1:] != kind[:-1], True)) + 1
        for first, last in pairwise([0, *ends.tolist()]):
            places, number = order[first:last], int(kind[first])
            shape = Shape(number >> _MASK_BITS, number & (1 << _MASK_BITS) - 1)
            self._waiting.setdefault(shape, []).append((draws.take(places), rows.take(places)))
            self._counts[shape] += len(places)

    def answer(self) -> Answer:
        """Take the batch that was begun first; failed draws get no scores."""
        if self._beyond:
            asked, self._beyond = self._beyond[:_PADS], self._beyond[_PADS:]
            records, draws = np.array(asked, np.int64).T
            return Answer(records, draws, self._scorer.beyond(len(asked)))
        if self._lost:
            return self._answered(self._lost.pop(), None)
        self._begin()
        batch, computed = self._under_way.popleft()
        try:
            with without_panics():
                draws, scores = self._scorer.scores(batch, computed.result(), self._layout)
        except Exception as exc:  # noqa: BLE001  (models fail in any way, and none may quote or drop a text)
            if out_of_memory(exc) and len(batch.tokens) > 1:
                if len(batch.tokens) == self._scorer.rows(batch.shape):
                    self._scorer.halve(batch.shape)
                self._waiting.setdefault(batch.shape, []).insert(0, (batch.asked, self._layout.rows(batch.asked)))
                self._counts[batch.shape] += len(batch.asked.first)
                return self.answer()
            draws, scores = self._one_by_one(batch.asked, batch.shape)
        if len(draws) < (batch.asked.last - batch.asked.first).sum():
            self._lost.append(np.setdiff1d(_every(batch.asked), draws))
            if not len(draws):
                return self.answer()
        return self._answered(draws, scores)

    def _begin(self) -> None:
        """Begin as many batches as are computed at a time; one that is hardly filled waits for more rows."""
        while self._waiting and len(self._under_way) < self._workers.width:
            shape = max(self._waiting, key=lambda shape: (self._filled(shape), shape))
            if self._under_way and self._filled(shape) < _WORTH:
                return
            batch = self._scorer.batch(self._layout, *self._take(shape), shape)
            self._under_way.append((batch, self._workers.begin(self._scorer.forward, batch)))

    def put(self, blocks: Numbers, chosen: Choices) -> None:
        """Write the drawn outputs into the texts' second copies."""
        self._layout.released(blocks, chosen, self._scorer.lexicon.outputs, self._scorer.single)

    def _answered(self, draws: Numbers, scores: Any) -> Answer:
        records = np.searchsorted(self._layout.starts, draws, side="right") - 1
        return Answer(records, draws - self._layout.starts[records], scores)

    def _take(self, shape: Shape) -> tuple[Asked, Rows]:
        """Take waiting rows of a shape, as many as a batch of it has."""
        parts, left = self._waiting.pop(shape), self._scorer.rows(shape)
        taken = []
        while parts and left:
            draws, rows = parts.pop(0)
            taken.append((draws.take(slice(0, left)), rows.take(slice(0, left))))
            if len(draws.first) > left:
                parts.insert(0, (draws.take(slice(left, None)), rows.take(slice(left, None))))
            left -= len(taken[-1][0].first)
        if parts:
            self._waiting[shape] = parts
        self._counts[shape] -= self._scorer.rows(shape) - left
        if len(taken) == 1:
            return taken[0]
        every = [[np.concatenate(fields) for fields in zip(*parts, strict=True)] for parts in zip(*taken, strict=True)]
        return Asked(*every[0]), Rows(*every[1])

    def _filled(self, shape: Shape) -> float:
        return min(1.0, self._counts[shape] / self._scorer.rows(shape))

    def _one_by_one(self, lost: Asked, shape: Shape) -> tuple[Numbers, Any]:
        """Score each row of a failed batch in its own batch; rows that fail again get no scores."""
        draws, scores = [np.zeros(0, np.int64)], []
        for row in range(len(lost.first)):
            try:
                with without_panics():
                    row_lost = lost.take(slice(row, row + 1))
                    alone = self._scorer.batch(self._layout, row_lost, self._layout.rows(row_lost), shape)
                    computed = self._workers.begin(self._scorer.forward, alone).result()
                    places, row_scores = self._scorer.scores(alone, computed, self._layout)
            except Exception:  # noqa: BLE001, S112  (uniform draws follow; a reason might quote the text)
                continue
            draws.append(places)
            scores.append(row_scores.float().cpu().numpy())
        return np.concatenate(draws), np.concatenate(scores) if scores else None


def _every(draws: Asked) -> Numbers:
    """Return all draws of some rows."""
    counts = draws.last - draws.first
    inside = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.asarray(np.repeat(draws.first, counts) + inside)


class MaskedScorer(BatchScorer):
    """Score positions with a masked language model (`steps.Scorer`)."""

    def open(self, scripts: Sequence[Script]) -> MaskedSession:
        """Start scoring some texts."""
        return MaskedSession(self, scripts)
