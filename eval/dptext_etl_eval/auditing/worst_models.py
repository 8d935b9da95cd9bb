"""Replace a mechanism's model by the worst possible one, so that a release has the largest loss that is claimed.

The claim of a mechanism with a model holds for any scores and any vectors, so trials need no real model. The
substitutes here give one public word the highest score for one output, and every other word the lowest. Substitutes for
latent models give vectors at the largest distance under the clip. Everything else belongs to the mechanism: its clip,
its integers, its draws, and its output.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dptext_etl.sampling import Choices
from dptext_etl_models.inference.masked.script import Numbers, Script
from dptext_etl_models.inference.masked.steps import Answer
from dptext_etl_models.inference.server import Prompt

_CELLS = 2**22
"""Number of scores that are made at once."""
COORDINATES = 16
"""Size of the vectors of a substitute."""
_PARTS = 4.0
"""Number of steps per standard deviation when noisy vectors are written as text."""

Scores = npt.NDArray[np.float32]


def extreme_scores(outputs: int) -> Scores:
    """Return the two most different rows of scores: one output far above all others, and far below them."""
    rows = np.zeros((2, outputs), np.float32)
    rows[0, 0], rows[1, 0] = np.inf, -np.inf
    rows[0, 1:], rows[1, 1:] = -np.inf, np.inf
    return rows


class WorstScorer:
    """Score masked words: `word` gives the first output the highest score, every other word the lowest."""

    def __init__(self, outputs: int, word: str) -> None:
        self.outputs, self.word = outputs, word
        self.rows = extreme_scores(outputs)

    def open(self, scripts: Sequence[Script]) -> WorstSession:
        """Start scoring some texts."""
        return WorstSession(self, scripts)


class WorstSession:
    """Hold the texts that a `WorstScorer` scores."""

    def __init__(self, scorer: WorstScorer, scripts: Sequence[Script]) -> None:
        self._scorer = scorer
        drawn = [script.word[script.drawn].tolist() for script in scripts]
        self._lowest = [
            [number < 0 or script.words[number] != scorer.word for number in numbers]
            for script, numbers in zip(scripts, drawn, strict=True)
        ]
        self._asked: list[tuple[int, int]] = []

    def ask(self, blocks: Numbers) -> None:
        """Store the requested draws."""
        self._asked += [(record, draw) for record, first, last in blocks.tolist() for draw in range(first, last)]

    def answer(self) -> Answer:
        """Score as many requested draws as fit into one answer."""
        most = max(1, _CELLS // self._scorer.outputs)
        requests, self._asked = self._asked[:most], self._asked[most:]
        records, draws = np.array(requests, np.int64).T
        lowest = np.array([self._lowest[record][draw] for record, draw in requests], np.int64)
        return Answer(records, draws, self._scorer.rows[lowest])

    def put(self, blocks: Numbers, chosen: Choices) -> None:
        """Ignore the outputs, because scores depend only on the words."""


class WorstGenerator:
    """Score answers: a step whose letter is "a" gives the first output the highest score, any other the lowest."""

    stride = 8

    def __init__(self, outputs: int) -> None:
        self.outputs, self.ends = outputs, frozenset([outputs])
        self.extremes = extreme_scores(outputs)

    def prompts(self, texts: Sequence[str]) -> list[Prompt]:
        """Return the letters of every text."""
        return [list(text.encode()) or [0] for text in texts]

    def bucket(self, length: int) -> int:
        """Return the common length of all prompts."""
        return length + 1

    def rows(self, bucket: int) -> int:  # noqa: ARG002
        """Return the number of rows that are scored at once."""
        return max(1, min(4096, _CELLS // self.outputs))

    def waiting(self, bucket: int) -> int:  # noqa: ARG002
        """Return how many batches may wait for rows of another."""
        return 8

    def begin(self, prompts: Sequence[Sequence[int]], bucket: int, rows: int, longest: int) -> WorstBatch:  # noqa: ARG002
        """Start a batch; rows beyond the prompts are dummies."""
        return WorstBatch(self.extremes, [*prompts, *[[0]] * (rows - len(prompts))])

    def text(self, outputs: Sequence[int]) -> str:
        """Return the indices of the outputs as text."""
        return " ".join(str(number) for number in outputs)


class WorstBatch:
    """Hold the answers that a `WorstGenerator` scores step by step."""

    def __init__(self, extremes: Scores, prompts: Sequence[Sequence[int]]) -> None:
        self.extreme_scores, self._prompts, self._step = extremes, [*prompts], 0

    def scores(self) -> Scores:
        """Return the scores of the next token, shape (rows, outputs)."""
        lowest = [prompt[min(self._step, len(prompt) - 1)] != ord("a") for prompt in self._prompts]
        scores: Scores = self.extreme_scores[np.array(lowest, np.int64)]
        return scores

    def append(self, chosen: npt.NDArray[np.int64]) -> None:  # noqa: ARG002
        """Take the next step; the drawn outputs change nothing."""
        self._step += 1

    def adopt(self, places: npt.NDArray[np.int64], other: WorstBatch, rows: npt.NDArray[np.int64]) -> None:
        """Replace own rows by rows of another batch."""
        for place, row in zip(places, rows, strict=True):
            self._prompts[place] = other._prompts[row]


class WorstLatents:
    """Encode texts as corners of the clip, and decode noisy vectors as their position between two corners."""

    rows, size = 512, COORDINATES

    def __init__(self, deviation: float, along: str) -> None:
        signs = np.where(np.arange(COORDINATES) % 2, -1.0, 1.0)
        self._corners = {"a": np.ones(COORDINATES), "b": -np.ones(COORDINATES), "c": signs}
        self._direction = self._corners[along] / (deviation * np.sqrt(COORDINATES)) * _PARTS

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return a corner outside of any clip by the first letter of each text; the middle for other letters."""
        middle = np.zeros(COORDINATES)
        return np.stack([self._corners.get(text[:1], middle) for text in texts]) * 1e6

    def decode(self, latents: npt.NDArray[np.float32]) -> list[str]:
        """Write the position of vectors along the direction, in parts of the noise."""
        far = np.floor(np.clip(latents @ self._direction, -1e9, 1e9))
        return [str(int(part)) for part in far.tolist()]
