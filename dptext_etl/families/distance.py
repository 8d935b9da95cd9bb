"""Draw words by the distances of their vectors with the exponential mechanism, from integer weights."""

from __future__ import annotations

import json
import logging
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.arrays import to_arrow, to_numpy
from dptext_etl.artifacts import Artifact, canon, store
from dptext_etl.device import threads
from dptext_etl.embeddings import WordVectors
from dptext_etl.embeddings.search import largest_squared_distance
from dptext_etl.errors import PolicyError
from dptext_etl.families.words import Indices, WordMechanism, parts, release_divided
from dptext_etl.keys import RecordKeys
from dptext_etl.mechanism import PAD, Released
from dptext_etl.parallel import for_each_product, single_threaded_products
from dptext_etl.sampling import Slots, epsilon_implemented, smallest_weight, weight_bits

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
        least, sides = smallest_weight(self.exponent, len(self.outputs)), (self.inputs, self.outputs)
        vectors = None  # from which the kernel weighs parts of rows again, if float32 holds products
        if all(side.floats.dtype == np.float32 for side in sides):
            flat = [to_arrow(side.vectors.astype(np.int16, copy=False).reshape(-1)) for side in sides]
            vectors = flat[0], flat[1], self.inputs.vectors.shape[1]
        return _kernel.NearLaw(norms, self.inputs.scale, self.exponent, self.diameter, least, vectors)

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
        occurrence has its own draw, with its own record's key and its own position.
        """
        words = draws.words[order]
        starts = np.flatnonzero(np.concatenate([[True], words[1:] != words[:-1]])[: len(words)])
        distinct, counts = words[starts], np.diff(starts, append=len(words)).astype(np.uint32)
        law, every, arrays = self._kernel_weights, threads(), draws.arrays()
        kept = to_numpy(pa.array(law.kept(to_arrow(distinct), to_arrow(counts)))) == 1
        if kept.any():
            those = np.repeat(kept, counts)
            kept_draws, order = order[those], order[~those]
            drawn = law.draw_kept(to_arrow(draws.words[kept_draws]), *arrays, some=to_arrow(kept_draws), threads=every)
            chosen[kept_draws] = to_numpy(pa.array(drawn))
            distinct, counts = distinct[~kept], counts[~kept]
        ends = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        at_once = max(1, min(_BLOCKS, every, len(distinct)))
        step = max(1, min(CELLS // len(self.outputs), -(-len(distinct) // at_once)))

        def draw_block(first: int) -> None:
            rows = distinct[first : first + step]
            bounds = ends[first : first + len(rows) + 1]
            block_draws = order[bounds[0] : bounds[-1]]
            row = np.repeat(np.arange(len(rows), dtype=np.uint32), np.diff(bounds))
            block_threads = -(-every // at_once)
            block, named = self.block(rows.astype(np.int64)), {"some": to_arrow(block_draws), "words": to_arrow(rows)}
            drawn = law.draw(*block, to_arrow(row), *arrays, threads=block_threads, **named)
            chosen[block_draws] = to_numpy(pa.array(drawn))

        # One block's products and places, which are one thread's work, next to another block's draws; a product over
        # several threads leaves them spinning, in the way of what comes next.
        with single_threaded_products():
            for_each_product(draw_block, range(0, len(distinct), step), at_once)

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


AT_ONCE = 2**23  # draws that are processed at once, 40 bytes each


@dataclass(frozen=True)
class Draws(Slots):
    """The draws of a batch: one per word that is not kept unchanged."""

    words: Indices  # id of each word in the vocabulary, `UNKNOWN` outside it, shape (n,)

    def take(self, selection: npt.NDArray[Any] | slice) -> Self:
        return replace(super().take(selection), words=self.words[selection])

    def by_word(self) -> npt.NDArray[np.int64]:
        """Return the indices of the draws ordered by word, unknown ones last, in linear time."""
        return to_numpy(pa.array(_kernel.by_word(to_arrow(self.words))))


class VectorMechanism(WordMechanism):
    """A mechanism over public word vectors.

    Attributes:
        vectors: Public word vectors, "english-20k" or a path; their words are the vocabulary.
    """

    artifact_fields: ClassVar[frozenset[str]] = frozenset({"vectors"})
    _pads: ClassVar[bool] = True

    vectors: str = "english-20k"

    @classmethod
    def aligned(cls, epsilon: float, **parameters: Any) -> Self:
        """Return the mechanism whose draw costs at most `epsilon` between any two words: epsilon / diameter.

        Chen et al. 2023 compare mechanisms at such an epsilon; nothing else here divides by the diameter.
        """
        probe = cls(**{"epsilon": epsilon, **parameters})
        shared = epsilon / probe.diameter
        while shared * probe.diameter > epsilon:
            shared = float(np.nextafter(shared, 0.0))
        return cls(**{**parameters, "epsilon": shared})

    @cached_property
    def words(self) -> WordVectors:
        """Return the vocabulary and its vectors; if the length is hidden, `PAD` is the last word, at the origin."""
        loaded = WordVectors.load(self.vectors, limit=self.limit)
        return shared_vocabulary(self.vectors, self.limit, loaded.artifact.sha256, padded=self.length != "disclose")

    @cached_property
    def _vocabulary(self) -> _kernel.Vocabulary:
        return _kernel.Vocabulary(self.words.words)

    @cached_property
    def span(self) -> Artifact:
        """Return the largest squared distance of two words in grid steps; it is computed once per machine."""
        words = self.words
        description = {"format": "dptext-span/1", "vectors": words.artifact.sha256, "padded": self.length != "disclose"}
        return stored_fact(description, lambda: largest_squared_distance(words))

    @cached_property
    def diameter(self) -> float:
        """Return the largest distance of two words, `PAD` included, in the vectors' units; at least one grid step."""
        return float(np.sqrt(np.float64(max(read_fact(self.span), 1)))) * self.words.scale

    def artifacts(self) -> dict[str, Artifact]:
        return {"vectors": self.words.artifact, **super().artifacts()}

    def input_words(self) -> tuple[str, ...]:
        """Return the vocabulary in public order; every other word counts as unknown."""
        return tuple(word for word in self.words.words if word != PAD)

    def output_words(self) -> frozenset[str] | None:
        """Return the vocabulary; None in faithful mode, which keeps more than words."""
        return None if self.mode == "faithful" else frozenset(self.input_words())

    def positions(self, texts: pa.Array) -> pa.Array:
        """Count draws: words after the input policy, or `n_max` if the length is hidden."""
        return pa.array(self._vocabulary.positions(texts, self._input_policy_json))

    def release(self, texts: pa.Array, keys: RecordKeys) -> Released:
        if self.allocation is not None:
            return release_divided(self, self.allocation, texts, keys.of(texts))
        record_keys, policy = keys.of(texts), self._input_policy_json
        words, offsets = (pa.array(side).to_numpy() for side in self._vocabulary.encode(texts, policy, record_keys))
        chosen = np.empty(len(words), np.uint32)
        for first, last in parts(offsets, AT_ONCE):
            if offsets[first] == offsets[last]:
                continue
            chosen[offsets[first] : offsets[last]] = self.choose(number_draws(words, offsets, record_keys, first, last))
        out = pa.array(self._vocabulary.assemble(texts, pa.array(offsets), pa.array(chosen), policy))
        return Released(out.field("text"), out.field("positions"))

    @abstractmethod
    def choose(self, draws: Draws) -> Indices:
        """Draw an output for every word, and return its id in the vocabulary, shape (n,)."""

    def _number_of(self, word: str) -> int:
        """Return the id of one word, read as in a text; `UNKNOWN` outside the vocabulary."""
        if word == PAD and self.length != "disclose":
            return len(self.words) - 1
        policy = {name: value for name, value in self.input_policy().items() if name != "length"}
        numbers = pa.array(self._vocabulary.encode(pa.array([word], pa.large_string()), json.dumps(policy))[0])
        if len(numbers) != 1 or _kernel.split(word) != [(word, True)]:
            raise PolicyError("a distribution needs one word that is drawn", "give a word of the vocabulary")
        return int(numbers[0].as_py())


def stored_fact(description: dict[str, Any], compute: Callable[[], Any]) -> Artifact:
    """Store a fact about public inputs as plain data; it is computed once per machine, under its description."""

    def build(path: Path) -> None:
        path.write_bytes(canon({"found": compute()}))

    return store(description, build, suffix=".json")


def read_fact(artifact: Artifact) -> Any:
    return json.loads(artifact.path.read_bytes())["found"]


def number_draws(words: Indices, offsets: npt.NDArray[np.uint64], keys: pa.Array, first: int, last: int) -> Draws:
    """Number the draws of some rows: running sums of the changes at row starts, as there are far fewer rows."""
    starts = (offsets[first : last + 1] - offsets[first]).astype(np.int64)
    counts = np.diff(starts)
    rows = np.flatnonzero(counts)
    begins = starts[rows]
    records = np.zeros(starts[-1], np.uint32)
    records[begins] = np.diff(rows, prepend=-first)
    positions = np.ones(starts[-1], np.int64)
    positions[begins] = 1 - counts[rows[np.arange(len(rows)) - 1]]
    positions[begins[:1]] = 0
    np.cumsum(records, dtype=np.uint32, out=records)
    np.cumsum(positions, out=positions)
    return Draws(keys, records, positions.view(np.uint64), words[offsets[first] : offsets[last]])


@lru_cache(maxsize=4)
def shared_vocabulary(source: str, limit: int | None, sha256: str, *, padded: bool) -> WordVectors:  # noqa: ARG001
    """Return a vocabulary by its hash; all mechanisms of a process share it and everything computed from it."""
    vectors = WordVectors.load(source, limit=limit)
    return vectors.with_origin(PAD) if padded else vectors
