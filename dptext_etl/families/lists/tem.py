"""Compute the truncated exponential mechanism (TEM) over the places of a list, and what its integers certify.

Paper: Carvalho et al. 2023, "TEM: High Utility Metric Differential Privacy on Text", as 1-Diffractor uses it: one
integer weight per distance up to a reach, and one for all places beyond (docs/spec/privacy.md#diffractor-tem).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dptext_etl.sampling import integer_weights, stated

Order = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

_PAIRS = 2**25  # of a word and a near output, up to which the exact ratio of a mixture is computed
_CELLS = 2**20  # of those held at once


@dataclass(frozen=True)
class TemLaw:
    """Integer weights by distance: `near[d]` at distance d below `reach`, `outside` at every other place.

    Attributes:
        near: Weights of the distances 0, 1, ..., reach - 1, never growing.
        outside: The weight beyond.
    """

    near: tuple[int, ...]
    outside: int

    @classmethod
    def of(cls, epsilon: float, gamma: int, places: int) -> TemLaw:
        """Return the weights of exp(-epsilon * min(d, gamma) / 2) on a list.

        Specification: docs/spec/privacy.md#integer-sampler, range gamma.

        Args:
            epsilon: Per place, above 0.
            gamma: Distance from which places are told no longer apart, in places, 1 or more.
            places: Words on the list, 2 or more.
        """
        distances = np.minimum(np.arange(places), gamma)
        weights = integer_weights(-distances, epsilon * gamma, low=-gamma, high=0.0)
        reach = min(gamma, places - 1)
        return cls(tuple(map(int, weights[:reach])), int(weights[reach]))

    def written(self) -> dict[str, Any]:
        """The law as the kernel reads it."""
        return {"tem": {"weights": list(self.near), "outside": self.outside}}

    @property
    def reach(self) -> int:
        """The distance from which all places weigh the same."""
        return len(self.near)

    def weights(self, place: int, places: int) -> npt.NDArray[np.uint64]:
        """Integer weights of every place, seen from one of them, shape (places,)."""
        by_distance = np.array([*self.near, self.outside], dtype=np.uint64)
        return by_distance[np.minimum(np.abs(np.arange(places) - place), self.reach)]

    def totals(self, places: int) -> npt.NDArray[np.uint64]:
        """Sum of the weights of each place's row: near an end of the list there are fewer near places."""
        running = np.cumsum(self.weights(0, places), dtype=np.uint64)
        return running + running[::-1] - np.uint64(self.near[0])

    def chances(self, place: int, places: int) -> list[Fraction]:
        """Exact probabilities of every place, seen from one of them."""
        weights = self.weights(place, places).tolist()
        total = sum(weights)
        chance = {weight: Fraction(weight, total) for weight in set(weights)}
        return [chance[weight] for weight in weights]

    def stays(self, place: int, places: int) -> Fraction:
        """The probability of the place itself."""
        return Fraction(self.near[0], int(self.totals(places)[place]))

    def agrees(self, place: int, places: int) -> float:
        """An upper bound of the probability that two draws from one place agree."""
        weights = self.weights(place, places).astype(np.float64)
        return min(1.0, float(np.dot(weights, weights) / weights.sum() ** 2) * (1 + 1e-9))

    def realised(self, lists: Sequence[Order]) -> dict[str, Any]:
        """What the integers realise on lists of one vocabulary, as plain data.

        Returns:
            "epsilon_table": worst log ratio of any output between any two words, unknown ones included.
            "epsilon_table_is": "exact", or "bound" where the exact value of a mixture takes long and that of one list
            stands for it. "epsilon_metric": worst log ratio per place, places beyond the reach counting as the reach.
        """
        bound, steepest = self.loss(len(lists[0]))
        mixture = bound if len(lists) == 1 else self.mixture_loss(lists)
        return {
            "epsilon_table": stated(bound if mixture is None else mixture),
            "epsilon_table_is": "bound" if mixture is None else "exact",
            "epsilon_metric": stated(steepest),
        }

    def loss(self, places: int) -> tuple[float, float]:
        """Worst log ratio of any output between two places of one list, computed from the integers for every pair.

        For places i < i' at distance D the worst output lies at or before i: its ratio is that of the weights at
        distances d and d + D, for the d up to i that is worst, times that of the rows' totals. The reverse of a list
        has the same distributions, so pairs i > i' give nothing new.

        Args:
            places: Length of the list.

        Returns:
            The largest log ratio; the unknown word, whose outputs are uniform, counts as one more input. And the
            largest value of log ratio / min(D, reach), the metric parameter that the integers realise.
        """
        logs = np.log(np.array([*self.near, self.outside], dtype=np.float64))
        totals = np.log(self.totals(places).astype(np.float64))
        distances = np.arange(places)
        logs = logs[np.minimum(distances, self.reach)]
        rarest = totals - logs[np.maximum(distances, distances[::-1])]
        uniform = math.log(places)
        worst = max(float(logs[0] - totals.min()) + uniform, float(rarest.max()) - uniform)
        steepest = 0.0
        for gap in range(1, self.reach):
            steps = np.maximum.accumulate(logs[:-gap] - logs[gap:])
            ratio = float((steps + totals[gap:] - totals[:-gap]).max())
            worst, steepest = max(worst, ratio), max(steepest, ratio / gap)
        beyond = np.maximum.accumulate(totals[::-1])[::-1][self.reach :]
        ratio = float((logs[0] - logs[-1] + beyond - totals[: places - self.reach]).max())
        return max(worst, ratio), max(steepest, ratio / self.reach)

    def mixture_loss(self, lists: Sequence[Order]) -> float | None:
        """The worst log ratio of a uniform mixture over lists of one vocabulary, exact; None where that takes long.

        Every pair of inputs and every output are covered: words that are near an output in some list one by one, all
        others through their rows' totals, which is all that they differ in.

        Args:
            lists: Permutations of the same words.
        """
        places = len(lists[0])
        if places * len(lists) * (2 * self.reach - 1) > _PAIRS:
            return None
        place_of = np.empty((len(lists), places), dtype=np.int64)
        for own, order in zip(place_of, lists, strict=True):
            own[order] = np.arange(places)
        inverse = (1 / self.totals(places).astype(np.float64))[place_of]
        far = self.outside * inverse.sum(axis=0)  # by input: its chance of an output that is near it in no list
        by_distance = np.array([*self.near, self.outside], dtype=np.float64)
        most, least = np.full(places, far.max()), self._least_far(far, place_of, lists)
        step = max(1, _CELLS // (len(lists) * (2 * self.reach - 1)))
        for start in range(0, places, step):
            outputs = np.arange(start, min(places, start + step))
            inputs = self._near(outputs, place_of, lists)
            gaps = np.abs(place_of[:, inputs] - place_of[:, outputs][:, :, None])
            chances = (by_distance[np.minimum(gaps, self.reach)] * inverse[:, inputs]).sum(axis=0)
            most[outputs] = np.maximum(most[outputs], chances.max(axis=1))
            least[outputs] = np.minimum(least[outputs], chances.min(axis=1))
        uniform = len(lists) / places
        return float(np.log(np.maximum(most, uniform) / np.minimum(least, uniform)).max())

    def _near(self, words: Places, place_of: Places, lists: Sequence[Order]) -> Places:
        """Words within reach of each word in some list, shape (words, lists * window), some of them repeated."""
        steps = np.arange(1 - self.reach, self.reach)
        last = place_of.shape[1] - 1
        found = [
            order[np.clip(own[words][:, None] + steps, 0, last)] for own, order in zip(place_of, lists, strict=True)
        ]
        return np.concatenate(found, axis=1).astype(np.int64)

    def _least_far(self, far: Floats, place_of: Places, lists: Sequence[Order]) -> Floats:
        """For each output, the least chance that a word has that is near it in no list; infinite where all are near."""
        least = np.full(len(far), np.inf)
        pending = np.arange(len(far))
        for word in np.argsort(far, kind="stable"):
            near = np.isin(pending, self._near(np.array([word]), place_of, lists))
            least[pending[~near]] = far[word]
            pending = pending[near]
            if not len(pending):
                break
        return least
