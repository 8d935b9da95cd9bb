"""Draw the positions of texts in order, each given what was drawn before, by a masked language model's scores.

One position is one word, one mask and one draw (docs/spec/privacy.md#dpmlm-positions). Positions are drawn in blocks
from left to right; a block's scores know the text, and what earlier blocks drew. Order and blocks follow from the
number of positions alone. Whatever scores the positions (a language model, or a toy in tests) is behind two small
protocols.

A position that cannot be scored is drawn uniformly at the same spend (docs/spec/privacy.md#fail-closed): a text is
never dropped, and nothing of it is ever passed through.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl.inference.memory import out_of_memory
from dptext_etl.inference.numbers import without_numbers
from dptext_etl.inference.sampler import Sampler
from dptext_etl.scoring import Choices, Slots

log = logging.getLogger("dptext_etl.score")

Numbers = npt.NDArray[np.int64]
Progress = Callable[[int, int], None]
"""Called with draws done and draws in all."""

INSERTED = -1
"""In the place of a word's number: a draw that replaces no word."""
PADDED = -2
"""In the place of a word's number: a draw beyond the end of the text, where its length is hidden."""
_EVERY = 30.0  # seconds between two lines of the log


class Law(NamedTuple):
    """One draw: epsilon, and the public range of its scores."""

    epsilon: float
    low: float
    high: float


class Item(NamedTuple):
    """What becomes of a place of a text, in the order in which places are reached.

    Attributes:
        word: Number of the word in its text, `INSERTED` or `PADDED`.
        drawn: Whether it takes a draw, or the word is kept as it is.
        tail: Number of the first word of the text that still follows when this place is drawn.
    """

    word: int
    drawn: bool
    tail: int


@dataclass(frozen=True)
class Script:
    """A text as its draws see it.

    Attributes:
        words: Its words, as the model is to read them.
        items: What becomes of them, in order.
    """

    words: Sequence[str]
    items: Sequence[Item]

    @classmethod
    def plain(cls, words: Sequence[str], kept: Sequence[bool] | None = None, padding: int = 0) -> Script:
        """Every word is drawn, but for those that are kept; then come draws beyond the text.

        Args:
            words: Words of the text.
            kept: Which of them are released as they are; none where None.
            padding: Draws beyond the text, 0 or more.
        """
        told = kept or [False] * len(words)
        items = [Item(number, not keep, number + 1) for number, keep in enumerate(told)]
        return cls(words, items + [Item(PADDED, True, len(words))] * padding)

    @cached_property
    def draws(self) -> int:
        """How many draws it takes."""
        return sum(item.drawn for item in self.items)


class Block(NamedTuple):
    """Draws of one text that see the same transcript: all before `first`, none of the block.

    Attributes:
        record: Which text.
        first: Number of the first draw in its text.
        last: One more than the number of the last.
    """

    record: int
    first: int
    last: int


class Drawn(NamedTuple):
    """What was drawn of one text.

    Attributes:
        outputs: Numbers of outputs, in the order of its draws.
        failed: Draws that no score decided, because the scorer failed on them.
    """

    outputs: Choices
    failed: int


class Answer(NamedTuple):
    """Scores of some of the draws that were asked for, all of one or several texts.

    Attributes:
        records: Which text each draw belongs to, shape (n,).
        draws: Its number in that text, shape (n,).
        scores: Shape (n, outputs), any floats, numpy or torch; None where they could not be computed.
    """

    records: Numbers
    draws: Numbers
    scores: Any


class Session(Protocol):
    """Texts that are being scored."""

    def ask(self, blocks: Sequence[Block]) -> None:
        """Ask for the scores of all draws of some blocks."""

    def answer(self) -> Answer:
        """Return scores of some draws that were asked for and not answered yet."""

    def put(self, blocks: Sequence[Block], chosen: Sequence[Choices]) -> None:
        """Say what was drawn in blocks that are complete, of texts that go on."""


class Scorer(Protocol):
    """What scores positions.

    Attributes:
        outputs: Size of the output set, the same at every position of every text.
    """

    outputs: int

    def open(self, scripts: Sequence[Script]) -> Session:
        """Begin to score some texts."""


def draw(
    scorer: Scorer,
    sampler: Sampler,
    scripts: Sequence[Script],
    keys: pa.Array,
    *,
    law: Law,
    block: int,
    progress: Progress | None = None,
) -> list[Drawn]:
    """Draw every position of every text.

    Where the scorer fails on texts as a whole, they are drawn again in halves, down to the text that it fails on: that
    one alone is uniform. A draw takes the same integers of its record's stream whoever is scored beside it.

    Args:
        scorer: What scores.
        sampler: What draws.
        scripts: The texts.
        keys: Record keys, fixed-size binary of 32 bytes, one per text.
        law: Of one draw.
        block: Positions that are drawn at once; 1 is one after the other.
        progress: Told after every batch.

    Returns:
        One per text.
    """
    report = _Report(sum(script.draws for script in scripts), progress)
    drawn: list[Drawn] = []
    waiting = [slice(0, len(scripts))]
    while waiting:
        some = waiting.pop()
        drawing = _Drawing(scorer, sampler, scripts[some], keys[some], law=law, block=block, report=report)
        if drawing.run() or some.stop - some.start < 2:
            drawn.extend(drawing.finished())
            continue
        middle = (some.start + some.stop) // 2
        waiting += [slice(middle, some.stop), slice(some.start, middle)]
    return drawn


class _Drawing:
    """Texts under way: what was drawn, and what each block still waits for."""

    def __init__(
        self,
        scorer: Scorer,
        sampler: Sampler,
        scripts: Sequence[Script],
        keys: pa.Array,
        *,
        law: Law,
        block: int,
        report: _Report,
    ) -> None:
        self._scorer, self._sampler, self._keys, self._law, self._block = scorer, sampler, keys, law, block
        counts = [script.draws for script in scripts]
        self._counts = np.array(counts, np.int64)
        self._starts = np.concatenate([[0], np.cumsum(self._counts)]).astype(np.int64)
        self._drawn = np.zeros(int(self._starts[-1]), np.uint32)
        self._known = np.zeros(len(self._drawn), bool)
        self._first = np.zeros(len(scripts), np.int64)  # of each text's block under way
        self._waiting = np.zeros(len(scripts), np.int64)  # draws of that block without an answer
        self._scripts = scripts
        self._failed = np.zeros(len(scripts), np.int64)  # draws of each text that no score decided
        self._report = report

    def run(self) -> bool:
        """Draw all texts, and say whether the scorer went through with it."""
        try:
            session = self._scorer.open(self._scripts)
            self._begin(session, np.flatnonzero(self._counts))
            while self._waiting.any():
                self._advance(session)
        except Exception:  # noqa: BLE001  (a scorer fails in any way, and none may quote or drop a text)
            return False
        return True

    def finished(self) -> list[Drawn]:
        """Return what was drawn; what is missing is drawn uniformly."""
        self._finish_uniformly(np.flatnonzero(~self._known))
        parts = [self._drawn[first:last] for first, last in pairwise(self._starts.tolist())]
        return [Drawn(part, failed) for part, failed in zip(parts, self._failed.tolist(), strict=True)]

    def _begin(self, session: Session, records: Numbers) -> None:
        """Ask for the next block of some texts."""
        firsts = self._first[records]
        lasts = np.minimum(firsts + self._block, self._counts[records])
        self._waiting[records] = lasts - firsts
        session.ask([Block(*block) for block in zip(records.tolist(), firsts.tolist(), lasts.tolist(), strict=True)])

    def _advance(self, session: Session) -> None:
        """Take one answer, draw, and let the texts whose blocks are complete go on."""
        records, draws, scores = session.answer()
        self._choose(records, draws, scores)
        finished = np.unique(records)
        finished = finished[self._waiting[finished] == 0]
        if len(finished):
            self._go_on(session, finished)

    def _choose(self, records: Numbers, draws: Numbers, scores: Any) -> None:
        slots = Slots(self._keys, records.astype(np.uint32), draws.astype(np.uint64))
        if scores is None or tuple(scores.shape) != (len(records), self._scorer.outputs):
            chosen = self._sampler.choose_uniform(slots, self._scorer.outputs)
            np.add.at(self._failed, records, 1)
        else:
            chosen = self._chosen(scores, slots)
            np.add.at(self._failed, records[without_numbers(scores)], 1)
        places = self._starts[records] + draws
        self._drawn[places] = chosen
        self._known[places] = True
        np.subtract.at(self._waiting, records, 1)
        self._report.add(len(records))

    def _chosen(self, scores: Any, slots: Slots) -> Choices:
        """Draw; where memory runs out, half of the draws at a time, which changes none of them."""
        try:
            law = self._law
            return self._sampler.choose(scores, slots, epsilon=law.epsilon, low=law.low, high=law.high)
        except Exception as exc:
            if not out_of_memory(exc) or len(slots) == 1:
                raise
        half = len(slots) // 2
        parts = (slice(0, half), slice(half, None))
        return np.concatenate([self._chosen(scores[part], slots.take(part)) for part in parts])

    def _go_on(self, session: Session, records: Numbers) -> None:
        firsts = self._first[records]
        lasts = np.minimum(firsts + self._block, self._counts[records])
        self._first[records] = lasts
        more = lasts < self._counts[records]
        if not more.any():
            return
        records, firsts, lasts = records[more], firsts[more], lasts[more]
        starts = self._starts[records]
        blocks = [Block(*block) for block in zip(records.tolist(), firsts.tolist(), lasts.tolist(), strict=True)]
        bounds = zip((starts + firsts).tolist(), (starts + lasts).tolist(), strict=True)
        session.put(blocks, [self._drawn[first:last] for first, last in bounds])
        self._begin(session, records)

    def _finish_uniformly(self, places: Numbers) -> None:
        if len(places):
            records = np.searchsorted(self._starts, places, side="right") - 1
            np.add.at(self._failed, records, 1)
            slots = Slots(self._keys, records.astype(np.uint32), (places - self._starts[records]).astype(np.uint64))
            self._drawn[places] = self._sampler.choose_uniform(slots, self._scorer.outputs)


class _Report:
    """Tells how many draws are done, and when the rest will be."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total, self._progress, self._done = total, progress, 0
        self._began = self._said = time.monotonic()

    def add(self, draws: int) -> None:
        self._done = min(self._total, self._done + draws)
        if self._progress is not None:
            self._progress(self._done, self._total)
        now = time.monotonic()
        if now - self._said >= _EVERY:
            self._said = now
            left = (now - self._began) * (self._total - self._done) / self._done
            log.info("%d of %d words are drawn; about %d s are left", self._done, self._total, left)
