"""Draw the positions of texts in order, each given earlier draws, by a masked language model's scores.

One position is one word, one mask and one draw (docs/spec/privacy.md#dpmlm-positions). Positions are drawn in blocks
from left to right; the scores of a block depend on the text and on the draws of earlier blocks. Order and blocks depend
only on the number of positions. Two small protocols hide the scorer, which is a language model, or a toy in tests.

A position that cannot be scored is drawn uniformly at the same spend (docs/spec/privacy.md#fail-closed). A text is
never dropped, and no part of it ever passes through.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl.errors import without_panics
from dptext_etl.sampling import TOKEN, Choices, Sampler, Slots
from dptext_etl_models.inference.masked.script import Numbers, Script, Scripts, bounds, within
from dptext_etl_models.inference.running import Listener, Progress, out_of_memory, without_numbers

log = logging.getLogger("dptext_etl.score")


class DrawParameters(NamedTuple):
    """Parameters of one draw: epsilon, the public range of its scores, and the purpose of its stream."""

    epsilon: float
    low: float
    high: float
    purpose: int = TOKEN


class Drawn(NamedTuple):
    """The draws of one text."""

    outputs: Choices  # numbers of outputs, in the order of its draws
    failed: int  # draws that no score decided, because the scorer failed on them


class Answer(NamedTuple):
    """Scores of some of the requested draws of one or several texts."""

    records: Numbers  # index of the text of each draw, shape (n,)
    draws: Numbers  # index of the draw in that text, shape (n,)
    scores: Any  # scores, shape (n, outputs), any floats, numpy or torch; None if they could not be computed


class Session(Protocol):
    """A set of texts that a scorer scores.

    A block is draws of one text that see the same earlier draws: all before its first one, and none of the block.
    Blocks are an array of shape (n, 3): the indexes of the text, of the first draw in its text, and of the
    last one plus one.
    """

    def ask(self, blocks: Numbers) -> None:
        """Request the scores of all draws of some blocks."""

    def answer(self) -> Answer:
        """Return the scores of some requested draws that have no answer yet."""

    def put(self, blocks: Numbers, chosen: Choices) -> None:
        """Pass on the outputs of complete blocks, one block after the other, for texts that have more blocks."""


class Scorer(Protocol):
    """A scorer of positions."""

    outputs: int  # size of the output set, the same at every position of every text

    def open(self, scripts: Sequence[Script]) -> Session:
        """Start scoring some texts."""


def draw(
    scorer: Scorer,
    sampler: Sampler,
    scripts: Sequence[Script],
    keys: pa.Array,
    *,
    parameters: DrawParameters,
    block: int,
    epsilons: Sequence[npt.NDArray[np.float64]] | None = None,
    progress: Listener | None = None,
) -> list[Drawn]:
    """Draw every position of every text.

    Where the scorer fails on texts as a whole, they are drawn again in halves, down to the text that it fails on: only
    that one is uniform. A draw uses the same integers of its record's stream regardless of other scored texts.
    """
    scripts = Scripts.of(scripts)
    counted = Progress(log, "words", int(scripts.draws.sum()), progress)
    drawn: list[Drawn] = []
    waiting = [slice(0, len(scripts))]
    while waiting:
        batch = waiting.pop()
        of_draws = None if epsilons is None else np.concatenate([[], *epsilons[batch]])
        how: dict[str, Any] = {"parameters": parameters, "epsilons": of_draws, "block": block, "progress": counted}
        drawing = _Drawing(scorer, sampler, scripts[batch], keys[batch], **how)
        if drawing.run() or batch.stop - batch.start < 2:
            drawn.extend(drawing.finished())
            continue
        middle = (batch.start + batch.stop) // 2
        waiting += [slice(middle, batch.stop), slice(batch.start, middle)]
    return drawn


class _Drawing:
    """Hold the drawn outputs of texts, and the number of answers that each block waits for."""

    def __init__(
        self,
        scorer: Scorer,
        sampler: Sampler,
        scripts: Scripts,
        keys: pa.Array,
        *,
        parameters: DrawParameters,
        epsilons: npt.NDArray[np.float64] | None,
        block: int,
        progress: Progress,
    ) -> None:
        self._scorer, self._sampler, self._keys, self._block = scorer, sampler, keys, block
        self._parameters, self._epsilons = parameters, epsilons
        self._counts = scripts.draws
        self._starts = bounds(self._counts)
        self._drawn = np.zeros(int(self._starts[-1]), np.uint32)
        self._known = np.zeros(len(self._drawn), bool)
        self._first = np.zeros(len(scripts), np.int64)  # first draw of each text's current block
        self._waiting = np.zeros(len(scripts), np.int64)  # draws of the current block without an answer
        self._scripts = scripts
        self._failed = np.zeros(len(scripts), np.int64)  # draws of each text that no score decided
        self._progress = progress

    def run(self) -> bool:
        """Draw all texts, and say whether the scorer went through with it."""
        try:
            with without_panics():
                session = self._scorer.open(self._scripts)
                self._begin(session, np.flatnonzero(self._counts))
                while self._waiting.any():
                    self._advance(session)
        except Exception:  # noqa: BLE001  (a scorer fails in any way, and none may quote or drop a text)
            return False
        return True

    def finished(self) -> list[Drawn]:
        """Return the draws; missing ones are uniform."""
        self._finish_uniformly(np.flatnonzero(~self._known))
        parts = [self._drawn[first:last] for first, last in pairwise(self._starts.tolist())]
        return [Drawn(part, failed) for part, failed in zip(parts, self._failed.tolist(), strict=True)]

    def _blocks(self, records: Numbers) -> Numbers:
        """Return the current block of some texts, shape (texts, 3)."""
        firsts = self._first[records]
        return np.array([records, firsts, np.minimum(firsts + self._block, self._counts[records])]).T

    def _begin(self, session: Session, records: Numbers) -> None:
        """Request the next block of some texts."""
        blocks = self._blocks(records)
        self._waiting[records] = blocks[:, 2] - blocks[:, 1]
        session.ask(blocks)

    def _advance(self, session: Session) -> None:
        """Take one answer, draw, and continue the texts whose blocks are complete."""
        records, draws, scores = session.answer()
        self._choose(records, draws, scores)
        finished = np.unique(records)
        finished = finished[self._waiting[finished] == 0]
        if len(finished):
            self._go_on(session, finished)

    def _choose(self, records: Numbers, draws: Numbers, scores: Any) -> None:
        slots = Slots(self._keys, records.astype(np.uint32), draws.astype(np.uint64))
        if scores is None or tuple(scores.shape) != (len(records), self._scorer.outputs):
            chosen = self._uniform(slots)
            np.add.at(self._failed, records, 1)
        else:
            chosen = self._chosen(scores, slots)
            np.add.at(self._failed, records[without_numbers(scores)], 1)
        places = self._starts[records] + draws
        self._drawn[places] = chosen
        self._known[places] = True
        np.subtract.at(self._waiting, records, 1)
        self._progress.add(len(records))

    def _chosen(self, scores: Any, slots: Slots) -> Choices:
        """Draw; if memory runs out, draw half of them at a time, which gives the same outputs."""
        epsilon: float | npt.NDArray[np.float64]
        epsilon, low, high, purpose = self._parameters
        if self._epsilons is not None:
            epsilon = self._epsilons[self._starts[slots.records] + slots.positions.astype(np.int64)]
        try:
            return self._sampler.choose(scores, slots, epsilon=epsilon, low=low, high=high, purpose=purpose)
        except Exception as exc:
            if not out_of_memory(exc) or len(slots) == 1:
                raise
        half = len(slots) // 2
        parts = (slice(0, half), slice(half, None))
        return np.concatenate([self._chosen(scores[part], slots.take(part)) for part in parts])

    def _go_on(self, session: Session, records: Numbers) -> None:
        blocks = self._blocks(records)
        self._first[records] = blocks[:, 2]
        blocks = blocks[blocks[:, 2] < self._counts[records]]
        if len(blocks):
            sizes = blocks[:, 2] - blocks[:, 1]
            places = np.repeat(self._starts[blocks[:, 0]] + blocks[:, 1], sizes) + within(sizes)
            session.put(blocks, self._drawn[places])
            self._begin(session, blocks[:, 0])

    def _finish_uniformly(self, places: Numbers) -> None:
        if len(places):
            records = np.searchsorted(self._starts, places, side="right") - 1
            np.add.at(self._failed, records, 1)
            slots = Slots(self._keys, records.astype(np.uint32), (places - self._starts[records]).astype(np.uint64))
            self._drawn[places] = self._uniform(slots)

    def _uniform(self, slots: Slots) -> Choices:
        return self._sampler.choose_uniform(slots, self._scorer.outputs, purpose=self._parameters.purpose)
