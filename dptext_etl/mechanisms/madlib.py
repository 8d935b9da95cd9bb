"""MADLIB adds noise to the vector of every word, and releases the word nearest to the noisy vector.

Its length is Gamma(k) and its direction is uniform. So its size along any fixed line is R T, where R is the length and
T is one coordinate of a uniform direction, with density C (1 - t^2)^((k - 3) / 2) on [-1, 1]. The simulation uses
neither the code nor the key stream of a mechanism: a gate compares releases with it.

Paper: Feyisetan, Balle, Drake and Diethe 2020, "Privacy- and Utility-Preserving Textual Analysis via Calibrated
Multivariate Perturbations" (section 3). The noise eta has density proportional to exp(-epsilon |eta|) in the vectors'
own units: a uniform direction, and a length from Gamma(k, 1 / epsilon). What holds here (docs/spec/privacy.md#madlib):

* The nearest word is found exactly. The noisy vector is rounded to a grid 2**16 times as fine as the vectors' own, or
  as fine as exact arithmetic allows. All further arithmetic is on integers, the same on every machine and device.
* Noise has full relative precision down to 2**-128 (docs/spec/stream.md#uniform-real) and consists only of IEEE
  operations. These numbers represent a continuous density: this is the assumption IDEAL_LAPLACE, which every ledger row
  states.
* epsilon is per unit of distance. Between any two words the cost is epsilon times the diameter of the vocabulary, and
  the ledger charges this product; `Madlib.aligned` has the product as its parameter.
* A budget may be divided by position, by a chosen template or by a first release, never by the text itself.
* Unknown words and numbers have no vector. They are drawn as if they were the first word of the vocabulary, so that
  the number of released words is the number of words (docs/spec/privacy.md#unknown-words). Faithful mode drops them.
* The output distribution of a word is an integral over a cell and has no exact fractions. `sample_many` draws from it,
  and `survival` bounds it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal, NoReturn, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.accounting import MetricClaim
from dptext_etl.allocation import Allocation, Epsilons
from dptext_etl.arrays import to_numpy
from dptext_etl.artifacts import Artifact
from dptext_etl.device import device, threads
from dptext_etl.embeddings.search import NearestWords, longest_reaches
from dptext_etl.embeddings.vectors import written
from dptext_etl.errors import PolicyError
from dptext_etl.families.distance import Draws, VectorMechanism
from dptext_etl.families.words import Division, Indices
from dptext_etl.guarantee import MICRO, Disclosure, Guarantee, GuaranteeClass, Spend, exact
from dptext_etl.mechanism import PAD, Loss, require_charge
from dptext_etl.parallel import for_each_product
from dptext_etl.sampling import TOKEN, Slots, WordSampler

_BINS = 20_000
_LOSS = 1e-9  # above the rounding error of a few hundred additions of positive numbers


def longest_noise(dimensions: int) -> float:
    """Return a length that no draw exceeds, since each of its exponentials is -ln u with u at least 2**-128."""
    return dimensions * 128 * math.log(2) * (1 + 2.0**-30)


def least_tail(dimensions: int, distance: float) -> float:
    """Return a lower bound of the probability that the noise goes farther than `distance` in one direction.

    It is a sum from below over the values t of T: P[t <= T < t'] P[R >= distance / t]. The first factor uses the
    smaller end of a monotone density. The second is the regularized upper incomplete gamma function, which grows with
    t.
    """
    if dimensions == 1:
        return 0.5 * math.exp(-distance) * (1 - _LOSS)
    ends = np.linspace(0.0, min(1.0, 40.0 / math.sqrt(dimensions)), _BINS + 1)
    scale = math.lgamma(dimensions / 2) - math.lgamma((dimensions - 1) / 2) - 0.5 * math.log(math.pi)
    with np.errstate(divide="ignore"):
        density = math.exp(scale) * (1 - ends**2) ** ((dimensions - 3) / 2)
        reach = distance / ends[:-1] if distance > 0 else np.zeros(_BINS)
    mass = np.minimum(density[:-1], density[1:]) * np.diff(ends)
    # P[R >= x] for integer k is the probability of fewer than k points of a Poisson process of mean x
    term = np.exp(-reach)
    chance = term.copy()
    with np.errstate(invalid="ignore"):
        for points in range(1, dimensions):
            term *= reach / points
            chance += term
    chance = np.nan_to_num(np.minimum(chance, 1.0), nan=0.0)
    return float(mass @ chance) * (1 - _LOSS)


_NEAR = 128


@lru_cache(maxsize=2)
def _noise(trials: int, dimensions: int) -> npt.NDArray[np.float64]:
    """Return noise of rate 1, shape (trials, dimensions); all words share it, but the trials of one are independent."""
    return _radial(np.random.default_rng(), trials, dimensions)


def _radial(random: np.random.Generator, trials: int, dimensions: int) -> npt.NDArray[np.float64]:
    noise = random.standard_normal((trials, dimensions))
    noise *= (random.gamma(dimensions, size=trials) / np.linalg.norm(noise, axis=1))[:, None]
    return noise


VECTOR = 5  # purpose number of the noise on vectors; a slot has four random words per dimension

IDEAL = "IDEAL_LAPLACE"

Floats = npt.NDArray[np.float64]

_CELLS = 2**20  # coordinates of noise held at once
_WIDER = 1 + Fraction(1, 2**50)  # above the rounding error of the diameter: one square root and one product


class Madlib(VectorMechanism):
    """MADLIB, or FBDD (Feyisetan et al. 2020).

    Attributes:
        epsilon: Epsilon per word and unit of distance; a draw costs at most epsilon times the vocabulary's diameter.
        unknown_words: "first" draws as for the first word of the vocabulary; "drop" leaves the word out, which
            discloses the number of known words (oov_flag).

    Example:
        >>> from dptext_etl.families.words import sample_many
        >>> mechanism = Madlib.example()
        >>> len(sample_many(mechanism, "good", 5)), mechanism.survival("good") < 1
        (5, True)
    """

    cannot_divide: ClassVar[None] = None

    unknown_words: Literal["first", "drop"] = "first"

    @property
    def _unknown(self) -> Literal["first", "drop"]:
        """Return `unknown_words`, in faithful mode "drop": a uniform draw would lie outside the bounds."""
        return "drop" if self.mode == "faithful" else self.unknown_words

    @property
    def bounded_range(self) -> bool:
        """Return False: a draw is pure, but not a range-bounded exponential mechanism."""
        return False

    def input_policy(self) -> dict[str, Any]:
        """Return the input policy of word mechanisms; faithful mode drops unknown words and numbers."""
        return {**super().input_policy(), "numbers": self._unknown, "oov": self._unknown}

    @property
    def guarantee(self) -> Guarantee:
        """Return the guarantee of word mechanisms with the assumption on continuous noise; unknown words never stay.

        If the length is hidden, all texts disclose the same. The class stays COND_PURE: real numbers that represent a
        density are not the exact draws that PURE_LDP asks for (docs/spec/privacy.md#grid-laplace).
        """
        stated = super().guarantee
        return replace(
            stated,
            guarantee_class=GuaranteeClass.NONE if self._unproven else GuaranteeClass.COND_PURE,
            disclosures=stated.disclosures - {Disclosure.OOV, Disclosure.NUMBERS},
            assumptions=stated.assumptions | {IDEAL},
        )

    @property
    def epsilon_per_word(self) -> Fraction:
        return Fraction(repr(self.unit_epsilon)) * self.loss_range

    @property
    def loss_range(self) -> Fraction:
        return Fraction(self.diameter) * _WIDER

    def spend(self, positions: int) -> Spend:
        """Return the cost, compared once with the loss. Both need the diameter, which a worker that draws does not."""
        if self.__dict__.setdefault("_uncompared", True):
            self.__dict__["_uncompared"] = False
            try:
                require_charge(self, Loss.of(exact(self.unit_epsilon) * exact(self.diameter)), self._length_cost)
            except BaseException:
                self.__dict__["_uncompared"] = True
                raise
        return super().spend(positions)

    def cost_factors(self, positions: int) -> dict[str, float | Fraction]:
        farthest = {"D": self.loss_range} if self.allocation is None else {}
        return {**super().cost_factors(positions), **farthest}

    @property
    def metric_claim(self) -> MetricClaim | None:
        """Return the claim of epsilon per unit of Euclidean distance; None for a noisy length."""
        if self.mode == "faithful" or self.length == "noisy" or self.allocation is not None:
            return None
        return MetricClaim(self.epsilon, "euclidean", self.diameter)

    def _metric_of(self, allocation: Allocation) -> MetricClaim | None:
        """Return the claim per unit of distance of a draw of epsilon 1; none where the words choose a template."""
        if allocation.source == "chosen":
            return None
        return MetricClaim(1 / self.loss_range, "euclidean", self.diameter)

    @classmethod
    def aligned(cls, epsilon: float, **parameters: Any) -> Self:
        """Return the mechanism whose draw costs at most `epsilon` between any two words: epsilon / diameter."""
        mechanism = super().aligned(epsilon, **parameters)
        while mechanism.epsilon_per_word > Fraction(repr(epsilon)):
            mechanism = mechanism.model_copy(update={"epsilon": float(np.nextafter(mechanism.epsilon, 0.0))})
        return mechanism

    def artifacts(self) -> dict[str, Artifact]:
        return super().artifacts() | ({} if self.allocation is None else {"span": self.span})

    @property
    def _rate(self) -> float:
        """Return epsilon per step of the vectors' grid; the largest one, if a budget is divided."""
        return self.unit_epsilon * self.words.scale

    @cached_property
    def search(self) -> NearestWords:
        """Return the exact search on a grid fine enough for the vectors and coarse enough for the largest noise.

        If a budget is divided, this is the grid of the least epsilon: no draw has a coarser grid.
        """
        least = self._rate
        if self.allocation is not None:
            most = self.most_draws
            parts = [self.allocation.bounds(most)[0], *filter(None, [self.allocation.even(most)])]
            least = float(self.noise_rates(np.array([min(parts) / MICRO]))[0])
        return NearestWords(self.words, float(self._reaches(least)))

    def _reaches(self, rates: Any) -> Any:
        """Return upper bounds of the lengths of noisy vectors, in steps of the vectors' grid, by their rates."""
        longest_word = float(np.sqrt(self.words.norms.max(initial=0))) + 1
        return longest_word + longest_noise(self.words.vectors.shape[1]) / rates + 1

    def choose(self, draws: Draws) -> Indices:
        return self._nearest(draws, np.broadcast_to(self._rate, len(draws.words)), self.search, VECTOR)

    def _nearest(self, draws: Draws, rates: Floats, search: NearestWords, purpose: int) -> Indices:
        """Add noise to every word's vector and choose the nearest word, some draws after the others or next to them."""
        words, where = self.words.vectors, device()
        dimensions, chosen = words.shape[1], np.empty(len(draws.words), np.uint32)
        workers = threads() if where == "cpu" else 1
        rows = search.at_once(workers) if where == "cpu" else max(1, _CELLS // dimensions)
        workers = min(workers, -(-len(chosen) // rows))
        kernel_threads = 1 if workers > 1 else None

        def search_some(start: int) -> None:
            block = draws.take(slice(start, start + rows))
            noise = to_numpy(pa.array(_kernel.radial_noise(*block.arrays(), purpose, dimensions, kernel_threads)))
            points = noise.reshape(-1, dimensions) / rates[start : start + rows, None]
            points += words[block.words]
            chosen[start : start + rows] = search.nearest(search.rounded(points), where)

        for_each_product(search_some, range(0, len(chosen), rows), workers)
        return chosen

    @cached_property
    def division(self) -> Division:
        """Return how words with given epsilons are drawn: by noise at their own rates."""
        return Division(self._vocabulary, self.words.words, self.moved, len(self.words))

    def moved(
        self,
        words: Indices,
        slots: Slots,
        sampler: WordSampler,  # noqa: ARG002  (noise does not choose among scores)
        epsilons: Sequence[Epsilons],
        purpose: int,
    ) -> Indices:
        """Add noise at its own rate to every word's vector, and choose the nearest word."""
        rates, least = self.noise_rates(np.concatenate([np.zeros(0), *epsilons])), self.search.bits
        reaches = self._reaches(rates)
        bits = np.maximum(least, (reaches[:, None] <= longest_reaches(self.words)).sum(axis=1) - 1)
        draws, chosen = Draws(slots.keys, slots.records, slots.positions, words), np.empty_like(words)
        for grid in np.unique(bits).tolist():
            at = np.flatnonzero(bits == grid)
            search = NearestWords(self.words, float(reaches[at].max()))
            chosen[at] = self._nearest(draws.take(at), rates[at], search, purpose - TOKEN + VECTOR)
        return chosen

    def noise_rates(self, epsilons: Floats) -> Floats:
        """Return rates per step of the vectors' grid whose loss over the diameter is not above epsilons."""
        return epsilons / float(self.diameter * _WIDER) * (1 - 2.0**-50) * self.words.scale

    def transition(self, word: str) -> NoReturn:
        """Refuse, because a word's distribution is an integral over a cell without exact fractions."""
        self._number_of(word)
        raise PolicyError(
            "under continuous noise, the distribution of a word has no exact fractions",
            "sample_many(mechanism, word, n) draws from it; survival(word) bounds the chance that a word comes back",
        )

    def survival(self, word: str) -> Fraction:
        """Return an upper bound of the probability that `word` comes back as itself.

        An unknown word never comes back. Another one comes back only if its noisy vector stays on its own side of the
        plane half-way to the nearest word at another place, up to the rounding of the noisy vector. Of several words at
        one place, only the first comes back.
        """
        number = self._number_of(word)
        if not self._knows(word):
            return Fraction(0)
        squared = self.words.squared_distances([number], slice(None))[0]
        if (squared[:number] == 0).any():
            return Fraction(0)
        elsewhere = squared[squared > 0]
        return self._stays(float(np.sqrt(elsewhere.min()))) if len(elsewhere) else Fraction(1)

    def _knows(self, word: str) -> bool:
        return (word if word == PAD else written(word)) in self.words.index

    def simulated_survivals(self, word: str, trials: int) -> int:
        if not self._knows(word):
            return 0
        slack = 0.5**self.search.bits / 2 * float(np.sqrt(self.words.vectors.shape[1]))
        number = self._number_of(word)
        near = np.argsort(self.words.squared_distances([number], slice(None))[0], kind="stable")[: _NEAR + 1]
        near = near[near != number]
        vectors = self.words.vectors
        steps: npt.NDArray[np.float64] = vectors[near].astype(np.float64) - vectors[number].astype(np.float64)
        lengths = np.linalg.norm(steps, axis=1)
        limits = self._rate * (lengths**2 / 2 + slack * lengths + 1e-6)
        return int(np.count_nonzero((_noise(trials, steps.shape[1]) @ steps.T <= limits).all(axis=1)))

    def simulated_collisions(self, words: Sequence[str], pairs: int) -> int:
        numbers = [self._number_of(word) for word in words]
        random = np.random.default_rng()
        vectors = self.words.vectors.astype(np.float32)
        half = (vectors.astype(np.float64) ** 2).sum(axis=1).astype(np.float32) / 2
        start = vectors[[numbers[pair % len(numbers)] for pair in range(pairs)]]
        drawn = []
        for _ in range(2):
            moved = start + (_radial(random, pairs, vectors.shape[1]) / self._rate).astype(np.float32)
            nearest = [(moved[at : at + _NEAR] @ vectors.T - half).argmax(axis=1) for at in range(0, pairs, _NEAR)]
            drawn.append(np.concatenate(nearest))
        return int(np.count_nonzero(drawn[0] == drawn[1]))

    def largest_probability(self) -> float:
        """Return an upper bound of the probability of any single output word.

        The probability of the word's own place is at most its value if the nearest other place were as far away
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
        return cls(epsilon=20.0, limit=400)
