"""Divide one budget of a record among draws of words from integer weights (CusText, SanText, TEM).

Weights are made from scores draw by draw, each at its own epsilon, from the slots that a table's draws take. The
theorem needs a floor of every probability, so it holds for these families and for no mechanism without one. A bound per
distance does not survive: two texts may give one word two epsilons (docs/spec/privacy.md#allocation-by-mechanism).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel, scoring
from dptext_etl.allocation import Epsilons
from dptext_etl.families.divided_words import DividedWords, Indices
from dptext_etl.families.words import Exact
from dptext_etl.guarantee import exact
from dptext_etl.scoring import TOKEN, Slots, WordSampler

UNKNOWN = 2**32 - 1
"""Number of every word outside the vocabulary."""


class Scored(NamedTuple):
    """Draws over output sets of one size.

    Attributes:
        places: Indices of the draws, shape (n,).
        scores: Scores of their outputs, shape (n, m).
        outputs: Numbers of the outputs, shape (n, m) or (m,).
    """

    places: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float64]
    outputs: npt.NDArray[np.integer[Any]]


class AllocatedWords(DividedWords):
    """A mechanism that draws words from weights, and can divide one budget among the words of a record."""

    @abstractmethod
    def scored(self, words: Indices, slots: Slots, offset: int) -> Iterator[Scored]:
        """Score the outputs of known words, in groups of one size."""

    @property
    @abstractmethod
    def score_bounds(self) -> tuple[float, float]:
        """Return the public bounds of scores, low and high."""

    @property
    @abstractmethod
    def uniform_ids(self) -> npt.NDArray[np.integer[Any]]:
        """Return the outputs of an unknown word, which are drawn uniformly."""

    @property
    def loss_range(self) -> Exact:
        """Return the range of scores."""
        low, high = self.score_bounds
        return exact(high - low)

    def draw_divided(
        self,
        words: Indices,
        slots: Slots,
        sampler: WordSampler,
        epsilons: Sequence[Epsilons],
        purpose: int = scoring.TOKEN,
    ) -> Indices:
        """Draw an output for every word at its epsilon; unknown ones uniformly."""
        each, chosen, known = np.concatenate([[], *epsilons]), np.empty_like(words), words != UNKNOWN
        width, ids, offset = scoring.slot_width(self.largest_set), self.uniform_ids, purpose - TOKEN
        drawn = _kernel.uniform_choices(*slots.take(~known).arrays(), purpose, width, len(ids))
        chosen[~known] = ids[pa.array(drawn).to_numpy()]
        at, (low, high) = np.flatnonzero(known), self.score_bounds
        for places, scores, outputs in self.scored(words[at], slots.take(at), offset):
            some = at[places]
            mine, one = slots.take(some), each[some]
            index = sampler.choose(scores, mine, epsilon=one, low=low, high=high, purpose=purpose)
            chosen[some] = outputs[index] if outputs.ndim == 1 else outputs[np.arange(len(some)), index]
        return chosen
