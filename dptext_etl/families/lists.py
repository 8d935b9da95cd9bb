"""Draw words by their places on public lists: geometric, and truncated exponential (TEM, Carvalho et al. 2021).

The geometric one adds a discrete Laplace number and clamps the sum. A table of integer weights cannot express it:
rounding up in the tails breaks the claim per place (docs/spec/privacy.md#metric-certificate). The kernel draws it
exactly; its probabilities here are irrational (docs/spec/privacy.md#diffractor-geometric). TEM has one integer weight
per distance below a reach, and one for all places beyond (docs/spec/privacy.md#diffractor-tem).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

from dptext_etl.allocation import Epsilons
from dptext_etl.guarantee import MICRO
from dptext_etl.mechanism import Loss
from dptext_etl.sampling import integer_weights, stated

GRID_BITS = 1_100
"""Probabilities are rounded to multiples of 2**-1100, so that every float above 0 is right to its last bit."""


@dataclass(frozen=True)
class GeometricDistribution:
    """The discrete Laplace distribution of a rational rate, added to the place and clamped to the list."""

    rate: Fraction  # rate per place: a = exp(-rate), P[step = k] = (1 - a) / (1 + a) * a**|k|

    def written(self) -> dict[str, Any]:
        return {"geometric": {"rate": [self.rate.numerator, self.rate.denominator]}}

    def realized(self, lists: Sequence[npt.NDArray[np.uint32]]) -> dict[str, Any]:
        """Return the loss on lists of one vocabulary: rate * (N - 1), attained at the ends of a single list."""
        worst = float(self.largest_loss(len(lists[0])).pure)
        return {"epsilon_table": repr(worst), "epsilon_table_is": "exact" if len(lists) == 1 else "bound"}

    def largest_loss(self, places: int) -> Loss:
        """Return an upper bound of the loss on lists of that length, which one list attains."""
        return Loss.of(self.rate * (places - 1))

    def chances(self, place: int, places: int) -> list[Fraction]:
        """Return the probabilities of all places, multiples of 2**-GRID_BITS that sum to 1 exactly.

        They are irrational, so each is rounded to the grid, and the place itself gets the rest of the sum. The error of
        an entry is at most half a grid step; the entry of the place itself is as much per place of the list.
        """
        inner, end = _tails(self.rate, places)
        steps = [inner[abs(other - place)] for other in range(places)]
        steps[0], steps[-1] = end[place], end[places - 1 - place]
        steps[place] += (1 << GRID_BITS) - sum(steps)
        return [Fraction(step, 1 << GRID_BITS) for step in steps]

    def stays(self, place: int, places: int) -> Fraction:
        with localcontext() as context:
            context.prec = 40
            a = _ratio(self.rate)
            edge = place in (0, places - 1)
            chance = 1 / (1 + a) if edge else (1 - a) / (1 + a)
            return min(Fraction(1), Fraction(math.ceil(chance * 2**64), 2**64))

    def agrees(self, place: int, places: int) -> float:
        a = math.exp(-float(self.rate))
        chances = (1 - a) / (1 + a) * a ** np.abs(np.arange(places, dtype=np.float64) - place)
        chances[0], chances[-1] = a**place / (1 + a), a ** (places - 1 - place) / (1 + a)
        return min(1.0, float(np.dot(chances, chances)) * (1 + 1e-9))


def rates_of(epsilons: Sequence[Epsilons], distance: Fraction) -> list[Fraction]:
    """Return the rate per place of draws, exactly, by their epsilons over the largest distance of two places."""
    parts = np.rint(np.concatenate([np.zeros(0), *epsilons]) * MICRO).astype(np.int64).tolist()
    return [part / (MICRO * distance) for part in parts]


def _ratio(rate: Fraction) -> Decimal:
    return (-Decimal(rate.numerator) / Decimal(rate.denominator)).exp()


@lru_cache(maxsize=4)
def _tails(rate: Fraction, places: int) -> tuple[list[int], list[int]]:
    """Return the probabilities of a place inside the list and of its ends, in grid steps, by distance."""
    guard = GRID_BITS + 64 + places.bit_length()
    with localcontext() as context:
        context.prec = int((guard + 64) * math.log10(2)) + 1
        a = _ratio(rate)
        ratio, inside, end = (int(value * 2**guard) for value in (a, (1 - a) / (1 + a), 1 / (1 + a)))
    inner, outer, power = [], [], 1 << guard
    shift = 2 * guard - GRID_BITS
    half = 1 << (shift - 1)
    for _ in range(places):
        inner.append((power * inside + half) >> shift)
        outer.append((power * end + half) >> shift)
        power = (power * ratio) >> guard
    return inner, outer


Order = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

_PAIRS = 2**25  # largest number of pairs of a word and a near output for the exact ratio of a mixture
_CELLS = 2**20  # pairs in memory at once


@dataclass(frozen=True)
class TemDistribution:
    """Integer weights by distance: `near[d]` at distance d below `reach`, `outside` at every other place."""

    near: tuple[int, ...]  # weights of the distances 0, 1, ..., reach - 1, not increasing
    outside: int  # weight of all other distances

    @classmethod
    def of(cls, epsilon: float, gamma: int, places: int) -> TemDistribution:
        """Return the weights of exp(-epsilon * min(d, gamma) / 2) on a list."""
        weights = integer_weights(-np.minimum(np.arange(places), gamma), epsilon * gamma, low=-gamma, high=0.0)
        reach = min(gamma, places - 1)
        return cls(tuple(map(int, weights[:reach])), int(weights[reach]))

    def written(self) -> dict[str, Any]:
        return {"tem": {"weights": list(self.near), "outside": self.outside}}

    @property
    def reach(self) -> int:
        """Return the distance from which all places have the same weight."""
        return len(self.near)

    def weights(self, place: int, places: int) -> npt.NDArray[np.uint64]:
        """Return the integer weights of all places for one place, shape (places,)."""
        by_distance = np.array([*self.near, self.outside], dtype=np.uint64)
        return by_distance[np.minimum(np.abs(np.arange(places) - place), self.reach)]

    def totals(self, places: int) -> npt.NDArray[np.uint64]:
        """Return the sum of weights for each place; a place close to an end of the list has fewer near places."""
        running = np.cumsum(self.weights(0, places), dtype=np.uint64)
        return running + running[::-1] - np.uint64(self.near[0])

    def chances(self, place: int, places: int) -> list[Fraction]:
        weights = self.weights(place, places).tolist()
        total = sum(weights)
        chance = {weight: Fraction(weight, total) for weight in set(weights)}
        return [chance[weight] for weight in weights]

    def stays(self, place: int, places: int) -> Fraction:
        return Fraction(self.near[0], int(self.totals(places)[place]))

    def agrees(self, place: int, places: int) -> float:
        weights = self.weights(place, places).astype(np.float64)
        return min(1.0, float(np.dot(weights, weights) / weights.sum() ** 2) * (1 + 1e-9))

    def realized(self, lists: Sequence[Order]) -> dict[str, Any]:
        bound, steepest = self.loss(len(lists[0]))
        mixture = bound if len(lists) == 1 else self.mixture_loss(lists)
        return {
            "epsilon_table": stated(bound if mixture is None else mixture),
            "epsilon_table_is": "bound" if mixture is None else "exact",
            "epsilon_metric": stated(steepest),
        }

    def largest_loss(self, places: int) -> Loss:
        """Return an upper bound of the loss on lists of that length, which one list attains."""
        weights = [*self.near, self.outside]
        if self.reach >= places or not self.outside or weights != sorted(weights, reverse=True):
            return Loss.of(math.inf)
        return Loss.of(_loss_of_tem(self, places)[0], math.log(self.near[0] / self.outside))

    def loss(self, places: int) -> tuple[float, float]:
        """Return the largest log ratio of any output between two places of one list, from the integers of all pairs.

        For places i < i' at distance D, the worst output is at or before i. Its ratio is the product of two ratios: of
        the weights at distances d and d + D, for the worst d up to i, and of the sums of weights. The reversed list has
        the same distributions, so pairs i > i' add nothing.
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
        """Return the exact largest log ratio of a uniform mixture over lists of one vocabulary; None if that is slow.

        The computation covers every pair of inputs and every output. Words that are near an output in some list are
        compared one by one; all others differ only in their sums of weights.
        """
        places = len(lists[0])
        if places * len(lists) * (2 * self.reach - 1) > _PAIRS:
            return None
        place_of = np.empty((len(lists), places), dtype=np.int64)
        for places_of_words, order in zip(place_of, lists, strict=True):
            places_of_words[order] = np.arange(places)
        inverse = (1 / self.totals(places).astype(np.float64))[place_of]
        far = self.outside * inverse.sum(axis=0)  # by input: probability of an output that is near it in no list
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
        neighbors = [
            order[np.clip(places_of_words[words][:, None] + steps, 0, last)]
            for places_of_words, order in zip(place_of, lists, strict=True)
        ]
        return np.concatenate(neighbors, axis=1).astype(np.int64)

    def _least_far(self, far: Floats, place_of: Places, lists: Sequence[Order]) -> Floats:
        """Return for each output the smallest probability from words that are near it in no list; infinite if none."""
        least = np.full(len(far), np.inf)
        pending = np.arange(len(far))
        for word in np.argsort(far, kind="stable"):
            near = np.isin(pending, self._near(np.array([word]), place_of, lists))
            least[pending[~near]] = far[word]
            pending = pending[near]
            if not len(pending):
                break
        return least


_loss_of_tem = lru_cache(maxsize=16)(TemDistribution.loss)
LISTS_FORMAT = "dptext-lists/1"
PlaceDistribution = GeometricDistribution | TemDistribution
"""The distribution of the places of a list for each of its places."""


@lru_cache(maxsize=16)
def loss_in_lists(path: Path, sha256: str, law: str) -> tuple[Loss, dict[str, Any]]:  # noqa: ARG001
    """Return the loss of a file of lists, and facts; infinite where a list lacks a word."""
    orders, ((kind, facts_of_law),) = read_orders(path), json.loads(law).items()
    distribution: PlaceDistribution  # as `written` wrote it
    if kind == "geometric":
        distribution = GeometricDistribution(Fraction(*facts_of_law["rate"]))
    else:
        distribution = TemDistribution(tuple(facts_of_law["weights"]), facts_of_law["outside"])
    places = max(map(len, orders))
    words = len(np.unique(np.concatenate(orders)))
    facts: dict[str, Any] = {"places": places, "even": {*map(len, orders)} == {words}}
    if not facts["even"]:
        return Loss.of(math.inf), facts
    facts |= distribution.realized(orders)
    loss = distribution.largest_loss(places)
    if facts["epsilon_table_is"] == "exact" and len(orders) > 1:
        return loss._replace(pure=min(loss.pure, float(facts["epsilon_table"]))), facts
    return loss, facts


def read_orders(path: Path) -> tuple[Order, ...]:
    """Read the lists of a file."""
    tensors = load_file(path)
    words = np.count_nonzero(tensors["inputs"] == ord("\n")) + 1  # `stored_words`
    ends = tensors.get("list_offsets", np.arange(0, len(tensors["lists"]) + 1, words))
    return tuple(np.split(tensors["lists"], ends[1:-1].astype(np.int64)))
