"""MADLIB adds noise to the vector of every word, and releases the word nearest to the noisy vector.

Paper: Feyisetan, Balle, Drake and Diethe 2020, "Privacy- and Utility-Preserving Textual Analysis via Calibrated
Multivariate Perturbations" (section 3). The noise eta has density proportional to exp(-epsilon |eta|) in the vectors'
own units: a uniform direction, and a length from Gamma(k, 1 / epsilon). What holds here (docs/spec/privacy.md#madlib):

* The nearest word is found exactly. The noisy vector is rounded to a grid 2**16 times as fine as the vectors' own, or
as
  fine as exact arithmetic allows. All further arithmetic is on integers, the same on every machine and device.
* Noise has full relative precision down to 2**-128 (docs/spec/stream.md#uniform-real) and consists of IEEE operations
  alone. These numbers stand for a continuous density: this is the assumption IDEAL_LAPLACE, which every ledger row
  states.
* epsilon is per unit of distance. Between any two words the cost is epsilon times the diameter of the vocabulary, and
  the ledger charges this product; `Madlib.aligned` takes the product as its parameter.
* Unknown words and numbers vanish before words are counted, because they have no vector.
* The output distribution of a word is an integral over a cell and has no exact fractions. `sample_many` draws from it,
  and `survival` bounds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal, NoReturn, Self

import numpy as np
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.embeddings.search import NearestWords
from dptext_etl.errors import PolicyError
from dptext_etl.families.vector import Draws, Indices, VectorMechanism
from dptext_etl.families.vector.radial import least_tail, longest_noise
from dptext_etl.families.vector.simulated import radial_collisions, radial_survivals
from dptext_etl.families.words import MetricClaim
from dptext_etl.guarantee import Disclosure, Guarantee, GuaranteeClass

VECTOR = 5
"""Purpose number of the noise on vectors; a slot has four random words per dimension."""

IDEAL = "IDEAL_LAPLACE"

_CELLS = 2**20  # coordinates of noise held at once
_WIDER = 1 + Fraction(1, 2**50)
"""Above the rounding error of the diameter: one square root and one product."""


class Madlib(VectorMechanism):
    """MADLIB, or FBDD (Feyisetan et al. 2020).

    Attributes:
        epsilon: Epsilon per word and unit of distance; a draw costs at most epsilon times the vocabulary's diameter.

    Example:
        >>> mechanism = Madlib.example()
        >>> len(mechanism.sample_many("good", 5)), mechanism.survival("good") < 1
        (5, True)
    """

    reproducible: ClassVar[bool] = True
    cannot_divide: ClassVar[str] = (
        "its noise has no least probability, so two scales of one word are told apart without a bound; take santext, "
        'or diffractor with variant "tem", whose budgets are divided under a theorem'
    )

    @property
    def unknown(self) -> Literal["uniform", "drop"]:
        """Return "drop": unknown words vanish, since a uniform draw would lie outside the bounds."""
        return "drop"

    @property
    def bounded_range(self) -> bool:
        """Return False: a draw is pure, but not a range-bounded exponential mechanism."""
        return False

    def input_policy(self) -> dict[str, Any]:
        """Return the input policy of word mechanisms; faithful mode drops unknown words and numbers, too."""
        return {**super().input_policy(), "numbers": "drop", "oov": "drop"}

    @property
    def guarantee(self) -> Guarantee:
        """Return the guarantee of word mechanisms with the assumption on continuous noise; unknown words never stay.

        If the length is hidden, all texts disclose the same. The class stays COND_PURE: real numbers that stand for a
        density are not the exact draws that PURE_LDP asks for (docs/spec/privacy.md#grid-laplace).
        """
        stated = super().guarantee
        return replace(
            stated,
            guarantee_class=GuaranteeClass.COND_PURE,
            disclosures=stated.disclosures - {Disclosure.OOV, Disclosure.NUMBERS},
            assumptions=stated.assumptions | {IDEAL},
        )

    @property
    def epsilon_per_word(self) -> Fraction:
        """Return epsilon times the diameter, enlarged by the possible rounding error."""
        return Fraction(repr(self.epsilon)) * Fraction(self.diameter) * _WIDER

    def cost_factors(self, positions: int) -> dict[str, float | Fraction]:
        """Return the factors of n draws between the two farthest words."""
        return {**super().cost_factors(positions), "D": Fraction(self.diameter) * _WIDER}

    @property
    def metric_claim(self) -> MetricClaim | None:
        """Return the claim of epsilon per unit of Euclidean distance; None for a noisy length."""
        if self.mode == "faithful" or self.length == "noisy":
            return None
        return MetricClaim(self.epsilon, "euclidean", self.diameter)

    @classmethod
    def aligned(cls, epsilon: float, **parameters: Any) -> Self:
        """Return the mechanism whose draw costs at most `epsilon` between any two words: epsilon / diameter.

        Args:
            epsilon: Epsilon of one draw, over the largest distance.
            parameters: All other parameters.
        """
        made = super().aligned(epsilon, **parameters)
        while made.epsilon_per_word > Fraction(repr(epsilon)):
            made = made.model_copy(update={"epsilon": float(np.nextafter(made.epsilon, 0.0))})
        return made

    @property
    def _rate(self) -> float:
        """Return epsilon per step of the vectors' grid."""
        return self.epsilon * self.words.scale

    @cached_property
    def search(self) -> NearestWords:
        """Return the exact search on a grid fine enough for the vectors and coarse enough for the largest noise.

        Raises:
            PolicyError: Noise of this epsilon is too large for exact computation.
        """
        words = self.words
        longest_word = float(np.sqrt(words.norms.max(initial=0))) + 1
        return NearestWords(words, longest_word + longest_noise(words.vectors.shape[1]) / self._rate + 1)

    def choose(self, draws: Draws) -> Indices:
        """Add noise to every word's vector, and take the nearest word."""
        words, search = self.words.vectors, self.search
        dimensions = words.shape[1]
        chosen = np.empty(len(draws.words), np.uint32)
        rows = max(1, _CELLS // dimensions)
        for start in range(0, len(chosen), rows):
            some = draws.take(slice(start, start + rows))
            noise = pa.array(_kernel.radial_noise(*some.arrays(), VECTOR, dimensions)).to_numpy()
            moved = noise.reshape(-1, dimensions) / self._rate
            moved += words[some.words]
            chosen[start : start + rows] = search.nearest(search.rounded(moved))
        return chosen

    def transition(self, word: str) -> NoReturn:
        """Refuse, because a word's distribution is an integral over a cell without exact fractions.

        Raises:
            PolicyError: Always.
        """
        self.number_of(word)
        raise PolicyError(
            "under continuous noise, the distribution of a word has no exact fractions",
            "sample_many(word, n) draws from it; survival(word) bounds the chance that a word comes back",
        )

    def survival(self, word: str) -> Fraction:
        """Return an upper bound of the probability that `word` comes back as itself.

        The word comes back only if its noisy vector stays on its own side of the plane half-way to the nearest word at
        another place, up to the rounding of the noisy vector. Of several words at one place, only the first comes back.

        Raises:
            PolicyError: `word` is not a single word of the vocabulary.
        """
        number = self.number_of(word)
        squared = self.words.squared_distances([number], slice(None))[0]
        if (squared[:number] == 0).any():
            return Fraction(0)
        elsewhere = squared[squared > 0]
        return self._stays(float(np.sqrt(elsewhere.min()))) if len(elsewhere) else Fraction(1)

    def simulated_survivals(self, word: str, trials: int) -> int:
        """Simulate how often a word comes back, from the paper's formula and without the code that releases.

        Raises:
            PolicyError: `word` is not a single word of the vocabulary.
        """
        slack = 0.5**self.search.bits / 2 * float(np.sqrt(self.words.vectors.shape[1]))
        return radial_survivals(self.words, self.number_of(word), self._rate, trials, slack)

    def simulated_collisions(self, words: Sequence[str], pairs: int) -> int:
        """Simulate how often two draws agree, from the paper's formula and without the code that releases.

        Raises:
            PolicyError: A word is not a single word of the vocabulary.
        """
        return radial_collisions(self.words, [self.number_of(word) for word in words], self._rate, pairs)

    def largest_probability(self) -> float:
        """Return an upper bound of the probability of any single output word.

        The probability of the word's own place is at most what it would be if the nearest other place were as far away
        as the diameter. The probability of any other place is at most 1/2. Both hold up to the rounding of the noisy
        vector.
        """
        vectors = self.words.vectors
        return 1.0 if bool((vectors == vectors[0]).all()) else float(self._stays(self.diameter / self.words.scale))

    def _stays(self, steps: float) -> Fraction:
        """Bound the probability that noise moves a vector by at most half of `steps` in one direction."""
        dimensions = self.words.vectors.shape[1]
        rounding = 0.5**self.search.bits / 2 * float(np.sqrt(dimensions))
        return 1 - Fraction(least_tail(dimensions, (steps / 2 + rounding) * self._rate * (1 + 2.0**-40)))

    @classmethod
    def example(cls) -> Self:
        """Return the mechanism with epsilon 20 per unit of distance over the first 400 embedded words."""
        return cls(epsilon=20.0, limit=400)
