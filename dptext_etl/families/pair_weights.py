"""Compute the exponential mechanism over distances as integers: P(y | x) proportional to exp(-epsilon d(x, y) / 2)."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.arrays import to_arrow, to_numpy
from dptext_etl.device import threads
from dptext_etl.embeddings import WordVectors
from dptext_etl.families.division import Indices
from dptext_etl.families.vector import Draws
from dptext_etl.parallel import single_threaded_products
from dptext_etl.sampling import epsilon_implemented, smallest_weight, weight_bits

log = logging.getLogger("dptext_etl.families")

Ids = npt.NDArray[np.integer]
Floats = npt.NDArray[np.float64]

CELLS = 2**22  # pairs of words in memory at once

_BLOCKS = 2  # blocks of rows that are drawn at once
_ROUNDING = 2.0**-53
_MARGIN = 1e-11
"""Above the rounding error of the sums that a certificate compares: a few dozen steps on numbers up to 200."""
_FAR = 100.0
"""Exponent (half of epsilon times diameter) above which there is no metric claim, since far weights are all wmin."""
_WIDER = 1.5  # |ln(1 + z)| <= 1.5 |z| for |z| <= 0.25
_LOGGED = 2**30  # cells above which progress is logged


@dataclass(frozen=True, eq=False)
class PairWeights:
    """Integer weights of all pairs of an input and an output."""

    inputs: WordVectors  # words of texts
    outputs: WordVectors  # words that can be drawn
    epsilon: float  # epsilon per unit of distance
    diameter: float  # upper bound of all distances, in the vectors' own units

    @property
    def exponent(self) -> float:
        """Return the epsilon of one draw over the whole diameter, an upper bound of the loss of the integer weights."""
        return self.epsilon * self.diameter

    @property
    def epsilon_implemented(self) -> float:
        """Return the largest loss of integer weights of that epsilon, for any distances."""
        return min(self.exponent, epsilon_implemented(self.exponent, len(self.outputs)))

    @cached_property
    def _kernel_weights(self) -> _kernel.NearLaw:
        norms = pa.array(self.outputs.norms.astype(np.float64))
        least = smallest_weight(self.exponent, len(self.outputs))
        return _kernel.NearLaw(norms, self.inputs.scale, self.exponent, self.diameter, least, self._vectors)

    @property
    def _vectors(self) -> tuple[pa.Array, pa.Array, int] | None:
        """Return the vectors from which the kernel weighs parts of rows again; None if float32 cannot hold products."""
        sides = self.inputs, self.outputs
        if any(side.floats.dtype != np.float32 for side in sides):
            return None
        flat = [to_arrow(side.vectors.astype(np.int16, copy=False).reshape(-1)) for side in sides]
        return flat[0], flat[1], self.inputs.vectors.shape[1]

    @property
    def width(self) -> int:
        return int(self._kernel_weights.width)

    def block(self, rows: Ids) -> tuple[pa.Array, pa.Array]:
        products = self.inputs.products(rows, self.outputs)
        return to_arrow(products.reshape(-1)), to_arrow(self.inputs.norms[rows].astype(np.float64))

    def weights(self, rows: Ids) -> npt.NDArray[np.uint64]:
        """Return the integer weights of some inputs, shape (rows, outputs)."""
        weights = pa.array(self._kernel_weights.weights(*self.block(rows))).to_numpy()
        shaped: npt.NDArray[np.uint64] = weights.reshape(len(rows), len(self.outputs))
        return shaped

    def draw(self, draws: Draws, order: npt.NDArray[np.int64], chosen: Indices) -> None:
        """Draw an output for words, and write the indices among `outputs` into `chosen` at the draws' own places.

        The weights of a word are computed once for all its occurrences, or are kept from an earlier batch. Every
        occurrence has a draw of its own, with its own record's key and its own position.
        """
        distinct, counts = _counted(draws.words[order])
        law, every, arrays = self._kernel_weights, threads(), draws.arrays()
        kept = to_numpy(pa.array(law.kept(to_arrow(distinct), to_arrow(counts)))) == 1
        if kept.any():
            those = np.repeat(kept, counts)
            some, order = order[those], order[~those]
            drawn = law.draw_kept(to_arrow(draws.words[some]), *arrays, some=to_arrow(some), threads=every)
            chosen[some] = to_numpy(pa.array(drawn))
            distinct, counts = distinct[~kept], counts[~kept]
        ends = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        at_once = max(1, min(_BLOCKS, every, len(distinct)))
        step = max(1, min(CELLS // len(self.outputs), -(-len(distinct) // at_once)))
        firsts = range(0, len(distinct), step)

        def draw_block(first: int) -> None:
            rows = distinct[first : first + step]
            bounds = ends[first : first + len(rows) + 1]
            some = order[bounds[0] : bounds[-1]]
            row = np.repeat(np.arange(len(rows), dtype=np.uint32), np.diff(bounds))
            asked = -(-every // at_once)
            block, named = self.block(rows.astype(np.int64)), {"some": to_arrow(some), "words": to_arrow(rows)}
            drawn = law.draw(*block, to_arrow(row), *arrays, threads=asked, **named)
            chosen[some] = to_numpy(pa.array(drawn))

        if at_once == 1:  # a product over several threads leaves them spinning, in the way of what comes next
            with single_threaded_products():
                for first in firsts:
                    draw_block(first)
            return
        # one block's products and places, which are one thread's work, next to another block's draws
        with single_threaded_products(), ThreadPoolExecutor(at_once) as pool:
            list(pool.map(draw_block, firsts))

    def worst_log_ratio(self) -> float:
        """Return the exact pure parameter of one draw: the largest log ratio of any output between any two words."""
        uniform = 1.0 / len(self.outputs)
        most, least = np.full(len(self.outputs), uniform), np.full(len(self.outputs), uniform)
        for rows in self.blocks("the exact worst ratio"):
            chances = self.weights(rows).astype(np.float64)
            chances /= chances.sum(axis=1, keepdims=True)
            np.maximum(most, chances.max(axis=0), out=most)
            np.minimum(least, chances.min(axis=0), out=least)
        return float(np.log(most / least).max())

    @property
    def settled(self) -> bool | None:
        """Return whether the metric bound holds, if this is clear without comparing pairs; otherwise None."""
        if self.exponent / 2 > _FAR:
            return False
        return rounding_within_slack(self.epsilon, self.diameter, self.inputs.scale, len(self.outputs)) or None

    def is_metric(self) -> bool:
        """Say whether the integers satisfy log ratio <= epsilon * d(x, x') for all x, x', y."""
        settled = self.settled
        return self.certificate() <= 0 if settled is None else settled

    def certificate(self) -> float:
        """Return a number that is at most 0 only if the integers satisfy the metric bound for all x, x', y.

        With r(x, y) = ln w(x, y) + epsilon d(x, y) / 2 and A(x) the logarithm of the sum of x's weights, the log ratio
        is r(x, y) - r(x', y) + A(x') - A(x) + epsilon (d(x', y) - d(x, y)) / 2, so by the triangle inequality

            max r - min r + max over d(x, x') > 0 of (A(x') - A(x) - epsilon d(x, x') / 2)

        bounds its excess over epsilon d(x, x'). Rounding bounds r, and A is computed from the integers. Words at
        distance 0 have equal rows. The search ends as soon as the sum is above 0, since it can only grow.
        `inputs` and `outputs` must be the same words.
        """
        half, norms = self.epsilon / 2 * self.inputs.scale, self.inputs.norms.astype(np.float64)
        spread = 2 * _weight_rounding(self.exponent / 2, len(self.outputs))
        totals = np.full(len(self.inputs), np.nan)
        left = -math.inf if math.isfinite(spread) else math.inf
        for rows in self.blocks("the certificate of the metric claim"):
            totals[rows] = np.log(self.weights(rows).sum(axis=1).astype(np.float64))
            seen = slice(0, int(rows[-1]) + 1)
            squared = norms[rows, None] + norms[seen] - 2.0 * self.inputs.products(rows, self.inputs)[:, seen]
            gaps = np.abs(totals[seen] - totals[rows, None]) - np.sqrt(squared) * half
            left = max(left, spread + _MARGIN + float(gaps[squared > 0].max(initial=-math.inf)))
            if left > 0:
                break
        return left

    def blocks(self, purpose: str) -> Iterator[Ids]:
        """Cut the inputs into blocks, and log the progress of long work."""
        size, step = len(self.inputs), max(1, CELLS // len(self.outputs))
        logged = size * len(self.outputs) >= _LOGGED
        tenth = 0
        for first in range(0, size, step):
            if logged and first * 10 // size >= tenth:
                log.info("%s of %s words: %d %%", purpose, f"{size:,}", 10 * tenth)
                tenth = first * 10 // size + 1
            yield np.arange(first, min(first + step, size))


def _counted(words: Indices) -> tuple[Indices, Indices]:
    """Return the distinct words of a sorted array, and how often each occurs."""
    starts = np.flatnonzero(np.concatenate([[True], words[1:] != words[:-1]])[: len(words)])
    return words[starts], np.diff(starts, append=len(words)).astype(np.uint32)


def rounding_within_slack(epsilon: float, diameter: float, step: float, m: int) -> bool:
    """Say whether the metric bound holds for integer weights over m words, for any positions on a grid.

    Without rounding, the log ratio of two words at distance d stays below epsilon d by at least
    (1 - exp(-epsilon d)) / m: in the bound of one sum of weights by the other, the term of the word itself is never
    attained. The distance of two words on a grid is 0 or at least one step. The rounding errors of two weights and two
    sums must be smaller.
    """
    half = epsilon * diameter / 2
    if half > _FAR:
        return False
    total = _WIDER * (_function_rounding(half) + m / 2.0 ** weight_bits(m))
    slack = -math.expm1(-epsilon * step) / m
    return 2 * (_weight_rounding(half, m) + total) <= slack * (1 - 1e-6)


def _weight_rounding(half: float, m: int) -> float:
    """Bound |ln w - ln S + epsilon d / 2|, where `half` is the largest exponent, epsilon D / 2; infinite if useless.

    The floor and the smallest weight change a weight by less than 1, so it is not more than that below S exp(-half).
    """
    moved = _function_rounding(half) + math.exp(min(half, _FAR)) / 2.0 ** weight_bits(m)
    return _WIDER * moved if moved <= 0.25 else math.inf


def _function_rounding(half: float) -> float:
    """Bound the error of the computed ln(exp(-t)) for t up to `half`: eight roundings of t, and the series."""
    return (16 * half + 64) * _ROUNDING
