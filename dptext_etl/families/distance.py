"""Draw words by the distances of their vectors with the exponential mechanism."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.accounting import MetricClaim
from dptext_etl.arrays import to_numpy
from dptext_etl.artifacts import Artifact
from dptext_etl.errors import PolicyError
from dptext_etl.families.division import UNKNOWN, Indices
from dptext_etl.families.pair_weights import PairWeights
from dptext_etl.families.vector import Draws, VectorMechanism, read_fact, stored_fact
from dptext_etl.guarantee import Disclosure, Guarantee
from dptext_etl.mechanism import PAD
from dptext_etl.sampling import largest_range_bounded
from dptext_etl.scoring import TOKEN


class DistanceMechanism(VectorMechanism):
    """A mechanism that draws every word by its distance from the word of the text.

    Attributes:
        epsilon: Epsilon per word and unit of distance; a draw costs at most epsilon times the vocabulary's diameter.
    """

    @property
    def reproducible(self) -> bool:  # type: ignore[override]
        return self.allocation is None

    def input_policy(self) -> dict[str, Any]:
        """Return the input policy of word mechanisms; faithful mode draws unknown words uniformly as well."""
        return {**super().input_policy(), "numbers": "uniform", "oov": "uniform"}

    def artifacts(self) -> dict[str, Artifact]:
        return {**super().artifacts(), "span": self.span}

    @property
    def _draws_from_all(self) -> bool:
        """Return True if every word of the vocabulary can be drawn."""
        return True

    @property
    def shows_words(self) -> bool:
        """Return True if some words can be released in clear."""
        return False

    def _shown(self, number: int) -> Fraction:  # noqa: ARG002
        """Return the probability that a known word is released in clear, without a draw."""
        return Fraction(0)

    def _drawn_words(self) -> npt.NDArray[np.int64]:
        """Return the ids of the words that can be drawn, in public order without `PAD`."""
        return np.arange(len(self.input_words()))

    @cached_property
    def _output_ids(self) -> npt.NDArray[np.int64]:
        """Return the ids of the outputs: the words that can be drawn, and last `PAD` if the length is hidden."""
        chosen = self._drawn_words()
        if len(chosen) < 2:
            raise PolicyError(
                f"{len(chosen)} words could be drawn, at least 2 are needed",
                "use more vectors, or a larger share or list of sensitive words",
            )
        return np.append(chosen, len(self.input_words())) if self.hides_length else chosen

    @cached_property
    def _ids_are_indices(self) -> bool:
        """Return True if every output's id is its index among the outputs."""
        return np.array_equal(self._output_ids, np.arange(len(self._output_ids)))

    @cached_property
    def pair_weights(self) -> PairWeights:
        words, chosen = self.words, self._output_ids
        outputs = words if len(chosen) == len(words) else words.take(words.words[at] for at in chosen)
        return PairWeights(words, outputs, self.unit_epsilon, self.diameter)

    def choose(self, draws: Draws) -> Indices:
        """Draw an output for every word; unknown ones uniformly."""
        order, chosen = draws.by_word(), np.empty(len(draws.words), np.uint32)
        known = len(order) - int(np.count_nonzero(draws.words == UNKNOWN))
        chosen[order[known:]] = self._uniform(draws.take(order[known:]))
        self._known(draws, order[:known], chosen)
        return chosen

    def _known(self, draws: Draws, order: npt.NDArray[np.int64], chosen: Indices) -> None:
        self.pair_weights.draw(draws, order, chosen)
        if not self._ids_are_indices:
            chosen[order] = self._output_ids[chosen[order]]

    def _uniform(self, draws: Draws) -> npt.NDArray[np.int64]:
        drawn = _kernel.uniform_choices(*draws.arrays(), TOKEN, self.pair_weights.width, len(self._output_ids))
        outputs: npt.NDArray[np.int64] = self._output_ids[to_numpy(pa.array(drawn))]
        return outputs

    @property
    def epsilon_per_word(self) -> float:
        """Return epsilon times the diameter; infinite if words are shown."""
        return math.inf if self.shows_words else self.pair_weights.exponent

    @property
    def epsilon_tight(self) -> float | None:
        """Return the largest loss of integer weights at that epsilon, for any distances."""
        return None if self.shows_words else self.pair_weights.epsilon_implemented

    @property
    def epsilon_table(self) -> float | None:
        """Return the exact pure parameter of one draw, from the integers of all pairs of words, unknown ones too."""
        if self.shows_words:
            return None
        return float(self._fact("worst ratio", lambda: repr(self.pair_weights.worst_log_ratio())))

    @property
    def metric_claim(self) -> MetricClaim | None:
        """Return the claim of epsilon per unit of Euclidean distance, if its certificate holds; otherwise None."""
        if self.allocation is not None or not self._draws_from_all or self.mode == "faithful":
            return None
        if self.length == "noisy" or not self._certified:
            return None
        return MetricClaim(self.epsilon, "euclidean", self.diameter)

    @cached_property
    def _certified(self) -> bool:
        if self.pair_weights.settled is not None:
            return self.pair_weights.settled
        return bool(self._fact("certificate", self.pair_weights.is_metric))

    def _fact(self, fact: str, found: Any) -> Any:
        """Return a fact about the integer weights, which is computed and stored once."""
        description = {
            "format": "dptext-santext-fact/1",
            "fact": fact,
            "version": self.version,
            "epsilon": repr(self.unit_epsilon),
            "vectors": self.words.artifact.sha256,
            "padded": self.hides_length,
            "outputs": self._output_ids.tolist() if not self._draws_from_all else "all",
        }
        return read_fact(stored_fact(description, found))

    @property
    def guarantee(self) -> Guarantee:
        stated = super().guarantee
        return replace(stated, disclosures=stated.disclosures - {Disclosure.OOV, Disclosure.NUMBERS})

    def cost_factors(self, positions: int) -> dict[str, float | Fraction]:
        return super().cost_factors(positions) | ({"D": self.diameter} if self.allocation is None else {})

    def output_words(self) -> frozenset[str] | None:
        """Return the words that can be drawn, or the whole vocabulary if words are shown; None in faithful mode."""
        if self.mode == "faithful" or self.shows_words:
            return super().output_words()
        return frozenset(self.pair_weights.outputs.words) - {PAD}

    def transition(self, word: str) -> tuple[list[str], list[Fraction]]:
        """Return the exact output distribution of one word: outputs and their probabilities, which sum to 1."""
        self._undivided()
        number, outputs = self._number_of(word), list(self.pair_weights.outputs.words)
        if number == UNKNOWN:
            return outputs, [Fraction(1, len(outputs))] * len(outputs)
        weights: list[int] = self.pair_weights.weights(np.array([number]))[0].tolist()
        total = sum(weights)
        chances = [Fraction(weight, total) for weight in weights]
        shown = self._shown(number)
        if not shown:
            return outputs, chances
        return [*outputs, self.words.words[number]], [*((1 - shown) * chance for chance in chances), shown]

    def survival(self, word: str) -> Fraction:
        if self.allocation is not None:
            return super().survival(word)
        number = self._number_of(word)
        if number == UNKNOWN:
            return Fraction(0)
        at = np.flatnonzero(self._output_ids == number)
        if not len(at):
            return self._shown(number)
        weights = self.pair_weights.weights(np.array([number]))[0]
        return Fraction(int(weights[at[0]]), int(weights.sum()))

    def collision(self, word: str) -> float:
        number = self._number_of(word)
        if number == UNKNOWN or self.shows_words or self.allocation is not None:
            return super().collision(word)
        weights = self.pair_weights.weights(np.array([number]))[0].astype(np.float64)
        return min(1.0, float(np.dot(weights, weights) / weights.sum() ** 2) * (1 + 1e-9))

    def largest_probability(self) -> float:
        return 1.0 if self.shows_words else largest_range_bounded(self.pair_weights.exponent, len(self._output_ids))
