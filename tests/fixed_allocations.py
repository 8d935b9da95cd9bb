"""Divisions of budgets that a test dictates, and a sampler that is forced through every pass."""

import math
from collections.abc import Mapping
from fractions import Fraction

import numpy as np
from pydantic import Field

from dptext_etl import sampling
from dptext_etl.allocation import Allocation, score

MICRO = 1_000_000


def scores_exist(monkeypatch):
    """Let an allocation name a score, the one that ones there are: its values are dictated."""
    monkeypatch.setattr(score, "available", lambda: ("fixed",))


class FixedAllocation(Allocation):
    """An allocation whose divisions are dictated: {words: epsilons}; everything else is the real one."""

    divisions: Mapping[tuple[str, ...], tuple[float, ...]] = Field(default_factory=dict)
    scores: tuple[str, ...] = ("fixed",)

    def over(self, tokens, places=None, *, draws=None):
        parts = [round(part * MICRO) for part in self.divisions[tuple(tokens)]]
        assert sum(parts) <= round(self.total * MICRO)
        return parts


class Forced:
    """A sampler that draws the given outputs in each purpose, and multiplies up the exact probability of that."""

    def __init__(self, by_purpose):
        self.by_purpose, self.probability, self.used = by_purpose, Fraction(1), set()

    def choose(self, scores, slots, *, epsilon, low, high, purpose=sampling.TOKEN):
        weights = sampling.weights(np.asarray(scores), epsilon, low, high)
        return self._take(slots, [(list(map(int, row)), sum(map(int, row))) for row in weights], purpose)

    def choose_uniform(self, slots, m, *, purpose=sampling.TOKEN):
        return self._take(slots, [([1] * m, m)] * len(slots), purpose)

    def move(self, places, length, rates, slots, *, purpose=sampling.TOKEN):
        """Move to the given places: a step k has probability (1 - a) / (1 + a) a^|k|, where a = exp(-rate)."""
        chosen = []
        for at, rate, record, position in zip(places, rates, slots.records, slots.positions, strict=True):
            assert (purpose, record, position) not in self.used, "two draws never share a slot"
            self.used.add((purpose, record, position))
            to, a = self.by_purpose[purpose][int(position)], math.exp(-rate)
            beyond = to in (0, length - 1)
            self.probability *= a ** abs(to - at) * (1 if beyond else 1 - a) / (1 + a)
            chosen.append(to)
        return np.array(chosen)

    def _take(self, slots, laws, purpose):
        chosen = []
        for (row, total), record, position in zip(laws, slots.records, slots.positions, strict=True):
            assert (purpose, record, position) not in self.used, "two draws never share a slot"
            self.used.add((purpose, record, position))
            output = self.by_purpose[purpose][int(position)]
            self.probability *= Fraction(row[output], total)
            chosen.append(output)
        return np.array(chosen, np.uint32)
