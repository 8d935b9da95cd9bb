"""Toys that stand in for a masked language model and for the sampler, so that releases can be enumerated."""

import numpy as np
import pyarrow as pa

from dptext_etl import sampling
from dptext_etl_models.inference.masked.steps import Answer
from tests import fixed_allocations

KEY = pa.array([bytes(range(100, 132))], pa.binary(32))


def Forced(transcript):  # noqa: N802
    """A sampler of one pass that draws these outputs, and multiplies up the exact probability of that."""
    return fixed_allocations.Forced({sampling.TOKEN: transcript})


def keys(count, first=1):
    return pa.array([bytes([first + number]) * 32 for number in range(count)], pa.binary(32))


class ToyScorer:
    """Scores by a function of (words, transcript, number of the draw); `rows` answers at once."""

    def __init__(self, outputs, score, rows=3, newest_first=False):
        self.outputs, self.score, self.rows, self.newest_first = outputs, score, rows, newest_first

    def open(self, scripts):
        return ToySession(self, scripts)


class ToySession:
    def __init__(self, scorer, scripts):
        self._scorer, self._scripts = scorer, scripts
        self._drawn = [[] for _ in scripts]
        self._waiting = []

    def ask(self, blocks):
        for record, first, last in blocks:
            assert first == len(self._drawn[record]), "a block sees what all before it drew"
            self._waiting.extend((record, draw) for draw in range(first, last))

    def answer(self):
        if self._scorer.newest_first:
            self._waiting.reverse()
        some, self._waiting = self._waiting[: self._scorer.rows], self._waiting[self._scorer.rows :]
        if self._scorer.newest_first:
            self._waiting.reverse()
        scores = [
            self._scorer.score(tuple(self._scripts[record].words), tuple(self._drawn[record]), draw)
            for record, draw in some
        ]
        records, draws = np.array(some, np.int64).T
        return Answer(records, draws, np.array(scores, np.float64).reshape(len(some), -1))

    def put(self, blocks, chosen):
        outputs = iter(chosen.tolist())
        for record, first, last in blocks.tolist():
            assert len(self._drawn[record]) == first
            self._drawn[record].extend(next(outputs) for _ in range(first, last))
        assert not list(outputs)


class Recorded:
    """The real sampler, which keeps the scores that it was given by record key and position."""

    def __init__(self):
        self.scores, self.uniform = {}, set()

    def choose(self, scores, slots, **law):
        rows = scores if isinstance(scores, np.ndarray) else scores.float().cpu().numpy()
        for row, place in zip(rows, self._places(slots), strict=True):
            self.scores[place] = np.array(row)
        return sampling.choose(scores, slots, **law)

    def choose_uniform(self, slots, m, **stream):
        self.uniform.update(self._places(slots))
        return sampling.choose_uniform(slots, m, **stream)

    def _places(self, slots):
        named = slots.keys.to_pylist()
        return [
            (named[int(record)], int(position)) for record, position in zip(slots.records, slots.positions, strict=True)
        ]
