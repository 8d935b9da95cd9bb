"""Draw texts token by token, many at once: this is the loop of DP-Prompt and DP-Paraphrase.

The guarantee needs the following (docs/spec/privacy.md#generative, docs/spec/privacy.md#model-scores,
docs/spec/privacy.md#fail-closed, docs/spec/privacy.md#batch-independence, docs/spec/stream.md#one-stream-per-draw):

* A text has one draw per step, from the slot whose position is the number of the step, until it draws an end token
  or has drawn `longest` tokens. Drawing the end is a step. A text that has ended draws nothing more.
* The scores of a text are a function of its own prompt and its own draws. The text is padded to a bucket that depends
  on its own length, and all batches of a bucket have the same number of rows, whatever those hold. A text that has
  ended leaves its row to one of another batch that has made as many steps, so no shape changes.
* Tokens that cannot be scored are drawn uniformly, to the end token or to `longest`, at the same spend. A failure
  affects one text only: a batch that fails is run again with one text at a time. Earlier draws stay.
* If memory runs out while batches wait, none of that bucket waits any more, which changes no shape. If it runs out for
  only one batch, the batches of that bucket have half as many rows from then on.

Scores on a GPU become draws there, and the drawn tokens continue their rows there, before the host reads them. The
host gives is the integers of the keyed stream: a draw waits once or twice for the sums of its weights
(`device_draws`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl.errors import without_panics
from dptext_etl.sampling import TOKEN, Choices, Sampler, Slots
from dptext_etl_models.inference.device_draws import Undrawn
from dptext_etl_models.inference.running import Listener, Progress, out_of_memory, without_numbers
from dptext_etl_models.inference.server import Answers, ModelServer, Prompt, Request

log = logging.getLogger("dptext_etl.generation")


class Batch(Protocol):
    """A batch of prompts that are continued together, row by row."""

    def scores(self) -> Any:
        """Return the scores of the next token, any floats, shape (rows, outputs): a numpy array or a tensor."""

    def append(self, chosen: Any) -> None:
        """Continue every row by the output with the given index, shape (rows,): an array, or a tensor on the device."""

    def adopt(self, places: npt.NDArray[np.int64], other: Any, rows: npt.NDArray[np.int64]) -> None:
        """Replace own rows by rows of another batch of that bucket, which has made as many steps."""


class Generator(Answers, Protocol):
    """A scorer of tokens: a language model, or a toy in tests."""

    stride: int  # steps after which a batch may adopt rows

    def bucket(self, length: int) -> int:
        """Return the padded length of a prompt."""

    def rows(self, bucket: int) -> int:
        """Return the number of rows of a batch of that bucket."""

    def waiting(self, bucket: int) -> int:
        """Return how many batches of that bucket may wait for rows of another; no score depends on it."""

    def begin(self, prompts: Sequence[Sequence[int]], bucket: int, rows: int, longest: int) -> Batch:
        """Start a batch; rows beyond the prompts are dummies."""


@dataclass
class _Running:
    """A batch, the record of each of its rows (-1 for none), and the steps that it has made."""

    batch: Batch
    records: npt.NDArray[np.int64]
    step: int = 0

    @property
    def live(self) -> npt.NDArray[np.int64]:
        return np.flatnonzero(self.records >= 0)


class Generation:
    """Draw the tokens of a column of texts."""

    def __init__(
        self,
        generator: Generator | ModelServer,
        sampler: Sampler,
        keys: pa.Array,
        longest: npt.NDArray[np.uint32],
        *,
        most: int,
        epsilon: float,
        clip: tuple[float, float],
        epsilons: Sequence[npt.NDArray[np.float64]] | None = None,
        purpose: int = TOKEN,
    ) -> None:
        self._generator, self._sampler, self._keys = generator, sampler, keys
        self._longest, self._most = longest, most
        self._epsilon, self._epsilons, self._clip, self._purpose = epsilon, epsilons, clip, purpose
        self._ends = np.array(sorted(generator.ends), np.int64)
        self.steps = np.zeros(len(longest), np.uint32)
        """Draws that were made, per text."""
        self.failed = np.zeros(len(longest), np.uint32)
        """Draws of these that no score decided, because the model failed, per text."""
        self._drawn = np.zeros((len(longest), int(longest.max(initial=0))), np.uint32)
        self._ended = longest == 0

    def outputs(self, record: int) -> list[int]:
        """Return the outputs that a text drew, the end included."""
        drawn: list[int] = self._drawn[record, : self.steps[record]].tolist()
        return drawn

    def run(self, prompts: Sequence[Prompt], listener: Listener | None = None, rows: int | None = None) -> None:
        """Draw all texts to their ends, in batches of as many rows as the generator says or `rows`."""
        self._progress = Progress(log, "texts", int((~self._ended).sum()), listener)
        if isinstance(self._generator, ModelServer):
            self._serve(self._generator, prompts)
        else:
            for bucket, members in self._buckets(self._generator, prompts):
                count, most = rows or self._generator.rows(bucket), self._generator.waiting(bucket)
                while (waited := self._through(self._generator, members, prompts, bucket, (count, most))) is not None:
                    count, most = (count, 0) if waited else (count // 2, most)
        self._finish_uniformly(np.flatnonzero(~self._ended))
        if self.failed.any():
            texts, draws = int((self.failed > 0).sum()), int(self.failed.sum())
            log.warning("the model failed on %d draws of %d texts: they are uniform, at the same spend", draws, texts)

    def _serve(self, server: ModelServer, prompts: Sequence[Prompt]) -> None:
        """Let a server continue all texts; after a failure, each unfinished one separately."""

        def draw(scores: Any, records: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
            if self._ended[records].any() or len(np.unique(records)) < len(records):
                raise ValueError("a server asks for a draw of a text that has ended, or for two draws at once")
            if tuple(scores.shape) != (len(records), server.outputs):
                raise ValueError("scores have another shape than the output set")
            lost = without_numbers(scores)
            self._record(records, self._choose(scores, records))
            self.failed[records] += lost
            return self._drawn[records, self.steps[records] - 1].astype(np.int64)

        def answer(records: npt.NDArray[np.int64]) -> None:
            requests = []
            for record in records.tolist():
                prompt, most = prompts[record], int(self._longest[record] - self.steps[record])
                if prompt is not None:
                    requests.append(Request(record, prompt, self.outputs(record), most))
            with suppress(Exception), without_panics():  # models fail in any way, and none may quote or drop a text
                server.answer(requests, draw)

        answer(np.flatnonzero(~self._ended))
        left = np.flatnonzero(~self._ended)
        if len(left):
            log.warning("the model server failed: %d texts continue one by one", len(left))
        for record in left:
            answer(np.array([record]))

    def _buckets(self, generator: Generator, prompts: Sequence[Prompt]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
        """Group texts by bucket, which depends on their own length."""
        records_of: dict[int, list[int]] = {}
        for record, prompt in enumerate(prompts):
            if prompt is not None and not self._ended[record]:
                records_of.setdefault(generator.bucket(len(prompt)), []).append(record)
        for bucket in sorted(records_of):
            yield bucket, np.array(records_of[bucket], np.int64)

    def _through(
        self,
        generator: Generator,
        members: npt.NDArray[np.int64],
        prompts: Sequence[Prompt],
        bucket: int,
        size: tuple[int, int],
    ) -> int | None:
        """Draw the texts of a bucket to their ends, each text of a failed batch separately.

        If memory runs out, return how many batches waited then.
        """
        (rows, most), members = size, members[~self._ended[members]]
        new = deque(members[at : at + rows] for at in range(0, len(members), rows))
        waiting: dict[int, _Running] = {}

        def begin(places: npt.NDArray[np.int64]) -> _Running:
            started = [prompt for prompt in (prompts[record] for record in places) if prompt is not None]
            records = np.concatenate([places, np.full(rows - len(places), -1)])
            return _Running(generator.begin(started, bucket, rows, self._most), records)

        def continue_one() -> None:
            begins = new and len(waiting) < max(1, most)
            running: _Running | None = begin(new.popleft()) if begins else waiting.pop(min(waiting))
            while running is not None:
                self._advance(running, generator)
                if most or not len(running.live):
                    running = _joined(running, waiting)

        def alone(record: np.int64) -> None:
            running = begin(np.array([record]))
            while len(running.live):
                self._advance(running, generator)

        def runs_short(work: Callable[..., None], *given: Any) -> bool:
            try:
                with without_panics():
                    work(*given)
            except Exception as exc:  # noqa: BLE001  (models fail in any way, and none may quote or drop a text)
                if not out_of_memory(exc):
                    log.warning("a batch of the model failed: its texts continue one by one")
                return out_of_memory(exc) and (rows > 1 or waited > 0)
            return False

        while new or waiting:
            waited = len(waiting)
            if runs_short(continue_one):
                return waited
        waited = 0
        return 0 if any(runs_short(alone, record) for record in members if not self._ended[record]) else None

    def _advance(self, running: _Running, generator: Generator) -> None:
        """Take a stride of steps, or as many as the last text of the batch needs; known draws are repeated."""
        for _ in range(generator.stride):
            live, ahead = running.live, False
            records = running.records[live]
            due = self.steps[records] == running.step
            if due.any():
                scores = scores_of(running.batch, len(running.records), generator.outputs)[live[due]]
                chosen = self._choose(scores, records[due])
                try:
                    goes_on = running.step + 1 < self._most  # a cache has no room for the last token
                    if goes_on and not isinstance(chosen, np.ndarray) and due.all() and len(live) > 1:
                        ahead = True
                        tokens = chosen.new_full((len(running.records),), int(self._ends[0]))
                        running.batch.append(tokens.index_copy_(0, chosen.new_tensor(live), chosen))
                finally:
                    self.failed[records[due]] += without_numbers(scores)
                    self._record(records[due], chosen)
            running.step += 1
            running.records[live[self._ended[records]]] = -1
            if not len(running.live):
                return
            if not ahead:
                again = np.full(len(running.records), self._ends[0], np.int64)
                again[live] = self._drawn[records, running.step - 1]
                running.batch.append(again)

    def _choose(self, scores: Any, records: npt.NDArray[np.int64]) -> Any:
        """Draw an output per row of scores; outputs from a GPU's scores stay there."""
        epsilon: float | npt.NDArray[np.float64] = self._epsilon
        if self._epsilons is not None:
            epsilon = np.array([self._epsilons[record][self.steps[record]] for record in records])
        slots, (low, high) = self._slots(records), self._clip
        stay = {"stay": True} if getattr(scores, "is_cuda", False) else {}
        return self._sampler.choose(scores, slots, epsilon=epsilon, low=low, high=high, purpose=self._purpose, **stay)

    def _slots(self, records: npt.NDArray[np.int64]) -> Slots:
        return Slots(self._keys, records.astype(np.uint32), self.steps[records].astype(np.uint64))

    def _record(self, records: npt.NDArray[np.int64], chosen: Any) -> None:
        """Keep one draw of each text."""
        chosen = chosen if isinstance(chosen, np.ndarray) else chosen.cpu().numpy()
        self._drawn[records, self.steps[records]] = chosen
        self.steps[records] += 1
        self._ended[records] = np.isin(chosen, self._ends) | (self.steps[records] == self._longest[records])
        if self._ended[records].any():
            self._progress.add(int(self._ended[records].sum()))

    def _finish_uniformly(self, records: npt.NDArray[np.int64]) -> None:
        while len(records):
            self.failed[records] += 1
            slots, outputs = self._slots(records), self._generator.outputs
            self._record(records, self._sampler.choose_uniform(slots, outputs, purpose=self._purpose))
            records = records[~self._ended[records]]


def _joined(running: _Running, waiting: dict[int, _Running]) -> _Running | None:
    """Fill free rows from a batch that waits at the same step; return a full batch, and let any other wait."""
    if not len(running.live):
        return None
    other = waiting.pop(running.step, None)
    if other is not None:
        free = np.flatnonzero(running.records < 0)[: len(other.live)]
        moved = other.live[: len(free)]
        running.batch.adopt(free, other.batch, moved)
        running.records[free], other.records[moved] = other.records[moved], -1
        if len(other.live):
            waiting[other.step] = other
    if len(running.live) == len(running.records):
        return running
    waiting[running.step] = running
    return None


def scores_of(batch: Batch, rows: int, outputs: int) -> Any:
    """Return the scores of a batch, shape (rows, outputs)."""
    scores = batch.scores()
    if tuple(scores.shape) != (rows, outputs):
        raise ValueError("scores have another shape than the output set")
    return scores


class _Continuing(Undrawn):
    """Continue every text by the first output that does not end it."""

    def __init__(self, ends: frozenset[int]) -> None:
        self._output = next(number for number in range(len(ends) + 1) if number not in ends)

    def choose(self, scores: Any, slots: Slots, **law: Any) -> Choices:  # noqa: ARG002
        return np.full(len(slots), self._output, np.uint32)


def probe_scores(generator: Generator | ModelServer, prompts: Sequence[Prompt], most: int) -> list[bool]:
    """Return whether two steps of answers to public prompts can be scored: in a batch, then separately."""
    parts = []
    for number, prompt in enumerate(prompts):
        steps, keys = np.array([min(2, most)], np.uint32), pa.array([bytes(32)], pa.binary(32))
        sampler = _Continuing(generator.ends)
        probe = Generation(generator, sampler, keys, steps, most=most, epsilon=1.0, clip=(0.0, 1.0))
        probe.run([prompt], rows=None if number == 0 else 1)
        parts.append(not probe.failed.any())
    return parts
