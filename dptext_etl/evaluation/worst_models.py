"""Stand in for a mechanism's model: the worst model there can be, so that a release loses as much as is claimed.

What a mechanism with a model claims holds for any scores and any vectors. So trials need no real model: these answer
one public word with the highest score for one output, and every other word with the lowest; or with vectors that lie as
far apart as the clip lets them. All else is the mechanism's own: its clip, its integers, its draws, what it writes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dptext_etl.inference.generative.steps import Prompt
from dptext_etl.inference.masked.steps import Answer, Block, Script
from dptext_etl.scoring import Choices

_CELLS = 2**22
"""Scores that are made at once."""
COORDINATES = 16
"""Of the vectors of a stand-in."""
_PARTS = 4.0
"""Into how many steps a standard deviation is cut, where noisy vectors are written as text."""

Scores = npt.NDArray[np.float32]


def _extremes(outputs: int) -> Scores:
    """Return the two most different rows of scores: one output far above all others, and far below them."""
    rows = np.zeros((2, outputs), np.float32)
    rows[0, 0], rows[1, 0] = np.inf, -np.inf
    rows[0, 1:], rows[1, 1:] = -np.inf, np.inf
    return rows


class WorstScorer:
    """A scorer of masked words: `word` gets the first output's highest score, every other draw the lowest.

    Args:
        outputs: Size of the output set.
        word: A public word.
    """

    def __init__(self, outputs: int, word: str) -> None:
        self.outputs, self.word = outputs, word
        self.rows = _extremes(outputs)

    def open(self, scripts: Sequence[Script]) -> WorstSession:
        """Begin to score some texts."""
        return WorstSession(self, scripts)


class WorstSession:
    """Texts that are being scored by a `WorstScorer`."""

    def __init__(self, scorer: WorstScorer, scripts: Sequence[Script]) -> None:
        self._scorer = scorer
        drawn = [[item.word for item in script.items if item.drawn] for script in scripts]
        self._lowest = [
            [number < 0 or script.words[number] != scorer.word for number in numbers]
            for script, numbers in zip(scripts, drawn, strict=True)
        ]
        self._asked: list[tuple[int, int]] = []

    def ask(self, blocks: Sequence[Block]) -> None:
        """Remember which draws are asked for."""
        self._asked += [(record, draw) for record, first, last in blocks for draw in range(first, last)]

    def answer(self) -> Answer:
        """Score as many of them as are made at once."""
        most = max(1, _CELLS // self._scorer.outputs)
        some, self._asked = self._asked[:most], self._asked[most:]
        records, draws = np.array(some, np.int64).T
        lowest = np.array([self._lowest[record][draw] for record, draw in some], np.int64)
        return Answer(records, draws, self._scorer.rows[lowest])

    def put(self, blocks: Sequence[Block], chosen: Sequence[Choices]) -> None:
        """Look at nothing: scores follow from the words alone."""


class WorstGenerator:
    """A scorer of answers: a step whose letter is "a" gets the first output's highest score, any other the lowest.

    Args:
        outputs: Size of the output set; none of them ends an answer.
    """

    def __init__(self, outputs: int) -> None:
        self.outputs, self.ends = outputs, frozenset([outputs])
        self.extremes = _extremes(outputs)

    def prompts(self, texts: Sequence[str]) -> list[Prompt]:
        """Return the letters of every text."""
        return [list(text.encode()) or [0] for text in texts]

    def bucket(self, length: int) -> int:
        """All prompts are as long."""
        return length + 1

    def rows(self, bucket: int) -> int:  # noqa: ARG002
        """As many as are made at once."""
        return max(1, min(4096, _CELLS // self.outputs))

    def begin(self, prompts: Sequence[Sequence[int]], bucket: int, rows: int, longest: int) -> WorstBatch:  # noqa: ARG002
        """Start a batch; rows beyond the prompts are dummies."""
        return WorstBatch(self.extremes, [*prompts, *[[0]] * (rows - len(prompts))])

    def text(self, outputs: Sequence[int]) -> str:
        """Return the numbers of the outputs."""
        return " ".join(str(number) for number in outputs)


class WorstBatch:
    """Answers that a `WorstGenerator` scores, step by step."""

    def __init__(self, extremes: Scores, prompts: Sequence[Sequence[int]]) -> None:
        self._extremes, self._prompts, self._step = extremes, prompts, 0

    def scores(self) -> Scores:
        """Return the scores of the next token, shape (rows, outputs)."""
        lowest = [prompt[min(self._step, len(prompt) - 1)] != ord("a") for prompt in self._prompts]
        scores: Scores = self._extremes[np.array(lowest, np.int64)]
        return scores

    def append(self, chosen: npt.NDArray[np.int64]) -> None:  # noqa: ARG002
        """Take the next step; what was drawn changes nothing."""
        self._step += 1


class WorstLatents:
    """A model of vectors: what it reads decides in which corner they lie, what it writes is where noise moved them.

    Args:
        deviation: Of the noise of one coordinate; texts tell noisy vectors apart in parts of it.
        along: The text from whose corner they are told: "b", opposite to that of "a" in every coordinate, or "c", in
            every second one, where noise that coordinates share would cancel.
    """

    rows, size = 512, COORDINATES

    def __init__(self, deviation: float, along: str) -> None:
        signs = np.where(np.arange(COORDINATES) % 2, -1.0, 1.0)
        self._corners = {"a": np.ones(COORDINATES), "b": -np.ones(COORDINATES), "c": signs}
        self._direction = self._corners[along] / (deviation * np.sqrt(COORDINATES)) * _PARTS

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return corners outside of any clip, those of the first letter; the middle for another."""
        middle = np.zeros(COORDINATES)
        return np.stack([self._corners.get(text[:1], middle) for text in texts]) * 1e6

    def decode(self, latents: npt.NDArray[np.float32]) -> list[str]:
        """Write how far vectors lie along the direction, in parts of the noise."""
        far = np.floor(np.clip(latents @ self._direction, -1e9, 1e9))
        return [str(int(part)) for part in far.tolist()]
