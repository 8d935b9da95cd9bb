"""Draw texts token by token, many at once: this is the loop of DP-Prompt and DP-Paraphrase.

The guarantee needs the following (docs/spec/privacy.md#generative, docs/spec/privacy.md#model-scores,
docs/spec/privacy.md#fail-closed, docs/spec/privacy.md#batch-independence, docs/spec/stream.md#one-stream-per-draw):

* A text takes one draw per step, from the slot whose position is the number of the step, until it draws an end token
  or has drawn `longest` tokens. Drawing the end is a step. A text that has ended draws nothing more.
* The scores of a text are a function of its own prompt and its own draws. The text is padded to a bucket that depends
  on its own length, its batch always has the same number of rows, and it stays in its row until all rows have ended.
* Tokens that cannot be scored are drawn uniformly, to the end token or to `longest`, at the same spend. A failure
  affects one text only: a batch that fails is run again with one text at a time. Earlier draws stay.
* If memory runs out, batches of that bucket have half as many rows from then on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl.scoring import TOKEN, Choices, Sampler, Slots
from dptext_etl_models.inference.running import Listener, Progress, out_of_memory, without_numbers
from dptext_etl_models.inference.server import ModelServer, Prompt, Request, probe_server

log = logging.getLogger("dptext_etl.generation")


class Batch(Protocol):
    """A batch of prompts that are continued together, row by row."""

    def scores(self) -> Any:
        """Return the scores of the next token, any floats, shape (rows, outputs): a numpy array or a tensor."""

    def append(self, chosen: npt.NDArray[np.int64]) -> None:
        """Continue every row by the output with the given index, shape (rows,)."""


class Generator(Protocol):
    """A scorer of tokens: a language model, or a toy in tests."""

    outputs: int  # size of the output set, the same for every text and step
    ends: frozenset[int]  # indices of the outputs that end a text

    def prompts(self, texts: Sequence[str]) -> list[Prompt]:
        """Return the prompt of every text; a text never fails because of another text."""

    def bucket(self, length: int) -> int:
        """Return the padded length of a prompt."""

    def rows(self, bucket: int) -> int:
        """Return the number of rows of a batch of that bucket."""

    def begin(self, prompts: Sequence[Sequence[int]], bucket: int, rows: int, longest: int) -> Batch:
        """Start a batch; rows beyond the prompts are dummies."""

    def text(self, outputs: Sequence[int]) -> str:
        """Return the released text of a sequence of outputs, the end included if it was drawn."""


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
        self._epsilon, self._epsilons, (self._low, self._high) = epsilon, epsilons, clip
        self._stream = {} if purpose == TOKEN else {"purpose": purpose}
        self._rows: dict[int, int] = {}
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

    def run(self, prompts: Sequence[Prompt], listener: Listener | None = None) -> None:
        """Draw all texts to their ends."""
        progress = Progress(log, "texts", int((~self._ended).sum()), listener)
        if isinstance(self._generator, ModelServer):
            self._serve(self._generator, prompts, progress)
        else:
            self._in_batches(self._generator, prompts, progress)
        failed = np.flatnonzero(~self._ended)
        if len(failed):
            self._finish_uniformly(failed)
            progress.add(len(failed))
        if self.failed.any():
            texts, draws = int((self.failed > 0).sum()), int(self.failed.sum())
            log.warning("the model failed on %d draws of %d texts: they are uniform, at the same spend", draws, texts)

    def _serve(self, server: ModelServer, prompts: Sequence[Prompt], progress: Progress) -> None:
        """Let a server continue all texts; after a failure, each unfinished one alone."""

        def draw(scores: Any, records: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
            if self._ended[records].any() or len(np.unique(records)) < len(records):
                raise ValueError("a server asks for a draw of a text that has ended, or for two draws at once")
            if tuple(scores.shape) != (len(records), server.outputs):
                raise ValueError("scores have another shape than the output set")
            lost = without_numbers(scores)
            self._record(records, self._choose(scores, records))
            self.failed[records] += lost
            progress.add(int(self._ended[records].sum()))
            return self._drawn[records, self.steps[records] - 1].astype(np.int64)

        def answer(records: npt.NDArray[np.int64]) -> None:
            requests = []
            for record in records.tolist():
                prompt, most = prompts[record], int(self._longest[record] - self.steps[record])
                if prompt is not None:
                    requests.append(Request(record, prompt, self.outputs(record), most))
            with suppress(Exception):  # models fail in any way, and none may quote or drop a text
                server.answer(requests, draw)

        answer(np.flatnonzero(~self._ended))
        left = np.flatnonzero(~self._ended)
        if len(left):
            log.warning("the model server failed: %d texts continue alone", len(left))
        for record in left:
            answer(np.array([record]))

    def _in_batches(self, generator: Generator, prompts: Sequence[Prompt], progress: Progress) -> None:
        """Continue texts in batches of fixed shapes, bucket after bucket."""
        for bucket, members in self._buckets(generator, prompts):
            self._rows[bucket] = generator.rows(bucket)
            first = 0
            while first < len(members):
                some = members[first : first + self._rows[bucket]]
                if self._attempt(generator, some, prompts, bucket):
                    first += len(some)
                    progress.add(len(some))

    def _buckets(self, generator: Generator, prompts: Sequence[Prompt]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
        """Group texts by bucket, which depends on their own length."""
        found: dict[int, list[int]] = {}
        for record, prompt in enumerate(prompts):
            if prompt is not None and not self._ended[record]:
                found.setdefault(generator.bucket(len(prompt)), []).append(record)
        for bucket in sorted(found):
            yield bucket, np.array(found[bucket], np.int64)

    def _attempt(
        self, generator: Generator, members: npt.NDArray[np.int64], prompts: Sequence[Prompt], bucket: int
    ) -> bool:
        """Draw some texts to their ends; a failure affects one text only. Return False to try again."""
        try:
            self._lock_step(generator, members, prompts, bucket)
        except Exception as exc:  # noqa: BLE001  (models fail in any way, and none may quote or drop a text)
            exhausted = out_of_memory(exc)
        else:
            return True
        if exhausted and self._rows[bucket] > 1:
            self._rows[bucket] //= 2
            return False
        if len(members) > 1:
            for record in members:
                while not self._attempt(generator, np.array([record]), prompts, bucket):
                    pass
        return True

    def _lock_step(
        self, generator: Generator, members: npt.NDArray[np.int64], prompts: Sequence[Prompt], bucket: int
    ) -> None:
        rows = self._rows[bucket]
        started = [prompt for prompt in (prompts[record] for record in members) if prompt is not None]
        batch = generator.begin(started, bucket, rows, self._most)
        step = 0
        while True:
            due = np.flatnonzero(~self._ended[members] & (self.steps[members] == step))
            if len(due):
                scores = scores_of(batch, rows, generator.outputs)[due]
                chosen = self._choose(scores, members[due])
                self.failed[members[due]] += without_numbers(scores)
                self._record(members[due], chosen)
            step += 1
            if self._ended[members].all():
                return
            again = np.full(rows, self._ends[0], np.int64)
            known = np.flatnonzero(self.steps[members] >= step)
            again[known] = self._drawn[members[known], step - 1]
            batch.append(again)

    def _choose(self, scores: Any, records: npt.NDArray[np.int64]) -> Choices:
        epsilon: float | npt.NDArray[np.float64] = self._epsilon
        if self._epsilons is not None:
            epsilon = np.array([self._epsilons[record][self.steps[record]] for record in records])
        slots, low, high = self._slots(records), self._low, self._high
        return self._sampler.choose(scores, slots, epsilon=epsilon, low=low, high=high, **self._stream)

    def _slots(self, records: npt.NDArray[np.int64]) -> Slots:
        return Slots(self._keys, records.astype(np.uint32), self.steps[records].astype(np.uint64))

    def _record(self, records: npt.NDArray[np.int64], chosen: Choices) -> None:
        """Keep one draw of each text."""
        self._drawn[records, self.steps[records]] = chosen
        self.steps[records] += 1
        self._ended[records] = np.isin(chosen, self._ends) | (self.steps[records] == self._longest[records])

    def _finish_uniformly(self, records: npt.NDArray[np.int64]) -> None:
        while len(records):
            self.failed[records] += 1
            slots, outputs = self._slots(records), self._generator.outputs
            self._record(records, self._sampler.choose_uniform(slots, outputs, **self._stream))
            records = records[~self._ended[records]]


def scores_of(batch: Batch, rows: int, outputs: int) -> Any:
    """Return the scores of a batch, shape (rows, outputs)."""
    scores = batch.scores()
    if tuple(scores.shape) != (rows, outputs):
        raise ValueError("scores have another shape than the output set")
    return scores


def probe_scores(generator: Generator | ModelServer, prompts: Sequence[Prompt], most: int) -> list[bool]:
    """Return whether two steps of answers to public prompts can be scored: in a batch, then alone."""
    if isinstance(generator, ModelServer):
        return [prompt is not None and probe_server(generator, prompt, most) for prompt in prompts]
    found = []
    for number, prompt in enumerate(prompts):
        bucket = generator.bucket(len(prompt or ()))
        rows = generator.rows(bucket) if number == 0 else 1
        fine = None
        while fine is None:
            try:
                fine = prompt is not None and _two_steps(generator, prompt, bucket, rows, most)
            except Exception as exc:  # noqa: BLE001  (models fail in any way)
                if out_of_memory(exc) and rows > 1:
                    rows //= 2
                else:
                    fine = False
        found.append(fine)
    return found


def _two_steps(generator: Generator, prompt: Sequence[int], bucket: int, rows: int, most: int) -> bool:
    """Score the first two tokens of an answer, and say whether there were numbers among the scores."""
    batch = generator.begin([prompt], bucket, rows, most)
    first = scores_of(batch, rows, generator.outputs)[:1]
    if most == 1:
        return not without_numbers(first).any()
    batch.append(np.zeros(rows, np.int64))
    return not (without_numbers(first).any() or without_numbers(scores_of(batch, rows, generator.outputs)[:1]).any())
