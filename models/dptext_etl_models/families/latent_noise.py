"""Compute the noise that (epsilon, delta) needs on the clipped vectors of a text, its cost, and add it on a grid.

Specification: docs/spec/privacy.md#grid-noise, docs/spec/privacy.md#adept, docs/spec/privacy.md#dpbart.

* A latent is clipped and rounded toward zero to multiples of 2**-16. Every coordinate, padding included, gets noise of
  its own from the record's stream, and the sum is rounded to the grid again. Only this sum leaves the module: it goes
  to the decoder, which is post-processing. The vector has the same size for every text.
* Gaussian noise is the analytic one (docs/spec/privacy.md#analytic-gaussian): the classical formula is wrong above
  epsilon 1 and is never used. Laplace noise is discrete and exact.
* A record is charged once, for one vector or for the vectors of a public number of sentences: together, they are one
  vector with one epsilon and one delta (docs/spec/privacy.md#allocation-sentences). Short texts are padded with empty
  sentences, and the last one holds the rest of long ones, so the number of sentences is never disclosed.
* A share of epsilon per sentence that depends on the text has no guarantee and is refused
  (docs/spec/privacy.md#allocation-by-mechanism). Public shares, a chosen template, and shares by a first release
  of the text are sound.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, model_validator

from dptext_etl import _kernel
from dptext_etl.accounting import Approximate, Composed, Event, GaussianNoise, PureDraws, Unbounded
from dptext_etl.accounting.conversion import largest_mu
from dptext_etl.allocation import Allocation, Marked
from dptext_etl.errors import PolicyError
from dptext_etl.guarantee import MICRO, Disclosure, Guarantee, GuaranteeClass, exact, largest_delta
from dptext_etl.mechanism import DEFAULT_N_MAX, Mechanism
from dptext_etl.parameters import PositiveInt
from dptext_etl.sampling import epsilon_implemented

LATENT = 4
"""Purpose number of latent noise (docs/spec/stream.md#purposes)."""

STEPS = 2**16
"""Grid steps per unit."""

_LARGEST = 2**48

Norm = Literal["value", "l1", "l2"]


def noisy_latents(
    latents: npt.NDArray[np.floating],
    keys: pa.Array,
    *,
    clip: float,
    norm: Norm = "value",
    sigma: float | None = None,
    rate: Fraction | None = None,
    purpose: int = LATENT,
) -> npt.NDArray[np.float32]:
    """Clip latents and add noise to every coordinate."""
    rows, n = latents.shape
    wide = latents.dtype.itemsize > 4
    flat = pa.array(np.ascontiguousarray(latents, np.float64 if wide else np.float32).reshape(-1))
    fraction = None if rate is None else rate.as_integer_ratio()
    noisy = _kernel.noisy_latents(flat, n, keys, clip, norm, sigma, fraction, purpose)
    return np.asarray(pa.array(noisy).to_numpy()).reshape(rows, n)


def clipped_steps(clip: float) -> int:
    """Return C in whole grid steps, which is the real bound of the clip, for the sensitivity.

    >>> clipped_steps(0.1)
    6553
    """
    steps = math.floor(clip * STEPS)
    if steps < 1:
        raise PolicyError(f"a clip is at least one step of the grid, 2**-16; got {clip}", "raise the clip")
    return steps


def laplace_rate(epsilon: float, sensitivity: int | Fraction) -> Fraction:
    """Return the rate per grid step of discrete Laplace noise.

    The rate is exactly epsilon / sensitivity if numerator and denominator are below 2**48. Otherwise it is a smaller
    fraction that can be drawn, which means more noise.
    `sensitivity` is the largest l1 distance of two clipped latents, in grid steps.

    >>> laplace_rate(500.0, 2 * 20 * 768 * clipped_steps(0.1))
    Fraction(25, 10065408)
    """
    exact = Fraction(repr(float(epsilon))) / sensitivity
    if max(exact.numerator, exact.denominator) <= _LARGEST:
        return exact
    for bits in range(48, 0, -1):
        den = min(_LARGEST, 2**bits)
        num = math.floor(exact * den)
        if 1 <= num <= _LARGEST:
            return Fraction(num, den)
    msg = "noise of this size cannot be drawn exactly: epsilon per grid step is out of reach"
    raise PolicyError(msg, "give epsilon with fewer decimals, or a smaller clip")


_SENTENCE_END = re.compile(r"(?<=[.!?\u2026\u3002\uff01\uff1f])\s+|\n+")


def cut(text: str, count: int) -> list[str]:
    """Cut a text into `count` pieces: its first sentences, the last with the rest; missing ones are empty.

    >>> cut("It rained. We left! Anna stayed. She read.", 3)
    ['It rained.', 'We left!', 'Anna stayed. She read.']
    >>> cut("It rained.", 2)
    ['It rained.', '']
    """
    if count == 1:
        return [text]
    sentences = _SENTENCE_END.split(text.strip(), maxsplit=count - 1)
    return [*sentences, *[""] * (count - len(sentences))]


def marked(pieces: Sequence[str]) -> Marked:
    """Mark the words of the pieces of a text: a piece gets one share, by the mean score of its words."""
    words, places = list[str](), list[range | None]()
    for piece in pieces:
        segments = [segment for segment, is_word in _kernel.split(piece) if is_word]
        places.append(range(len(words), len(words) + len(segments)) if segments else None)
        words += segments
    return Marked(words, places, len(pieces))


PAPER_DELTA = 1e-5
IDEAL = "IDEAL_GAUSSIAN"


def analytic_gaussian_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """Return the standard deviation of Gaussian noise that makes a release (epsilon, delta)-DP."""
    if not (0 < epsilon < math.inf and 0 < delta < 1 and 0 < sensitivity < math.inf):
        msg = f"epsilon and sensitivity are above 0, delta is between 0 and 1; got {epsilon}, {sensitivity}, {delta}"
        raise PolicyError(msg, "pass positive, finite numbers, and a delta such as 1e-6")
    with localcontext() as context:
        context.prec, context.rounding = 12, ROUND_CEILING  # up: never less noise than needed
        return float(Decimal(sensitivity) / Decimal(largest_mu(epsilon, delta)))


_sigma, _mu = lru_cache(maxsize=64)(analytic_gaussian_sigma), lru_cache(maxsize=64)(largest_mu)
_WIDER = 1 + 2.0**-40
"""Above the rounding error of a square root and two products."""

Noise = Literal["gaussian", "laplace"]
Clip = Annotated[float, Field(gt=2.0**-16, le=256, allow_inf_nan=False)]
Delta = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]


@dataclass(frozen=True)
class Scale:
    """The size of the noise on every coordinate.

    Attributes:
        sigma: Standard deviation of Gaussian noise, or None.
        rate: Rate of discrete Laplace noise per grid step, or None; its scale is 1 / (2^16 rate).
    """

    sigma: float | None = None
    rate: Fraction | None = None


TEXT = (
    "the size of the noise would depend on the text, and no finite epsilon bounds that; give one epsilon per record, "
    "or divide it among sentences by something public: template = [2, 1] by their order, templates and "
    "choosing, or first, a first release whose words are scored"
)
"""Why the words of a text do not divide the budget of its vectors, and the sound ways."""


class LatentNoise(Mechanism):
    """A mechanism that adds noise to a clipped vector made of the whole text, or to one per sentence.

    Attributes:
        epsilon: Epsilon per record.
        n_max: Leave at its default: the model's constant length cuts texts.
        noise: "gaussian" for (epsilon, delta), or "laplace" for pure epsilon with far more noise.
        delta: Delta of one record, for Gaussian noise; None uses min(1e-6, 0.01 / n_rec), or the paper's 1e-5 in
            faithful mode.
        n_rec: Public bound on the number of records, never the size of the table; strict Gaussian noise needs it.
        clip: Bound of every coordinate or of the vector's length, depending on the mechanism.
        sentences: Public number of sentences with one vector each, which share epsilon and delta; the last one holds
            the rest of a long text.
    """

    cannot_divide: ClassVar[None] = None
    norm: ClassVar[Norm]
    """Norm that `clip` bounds: of every coordinate, or of the vector."""

    noise: Noise = "gaussian"
    delta: Delta | None = None
    n_rec: PositiveInt | None = None
    clip: Clip
    sentences: Annotated[PositiveInt, Field(le=64)] = 1

    @model_validator(mode="before")
    @classmethod
    def _one_spend_per_record(cls, given: Any) -> Any:
        fields = {"epsilons", "per_sentence"} & set(given if isinstance(given, dict) else ())
        if fields:
            raise ValueError(f"{', '.join(sorted(fields))}: {TEXT}")
        return given

    def refuses_allocation(self, allocation: Allocation) -> str | None:
        """Return why the budget cannot be divided: by the words of the text itself, or if there is only one vector."""
        if allocation.source == "text" and self.mode == "strict":
            return TEXT
        if self.sentences == 1:
            return "one vector holds the whole text, so there is nothing to divide: set sentences, a public number"
        return None

    @property
    def _unproven(self) -> bool:
        """Return True if faithful mode divides the budget by the words of the text, as the paper does."""
        return self.mode == "faithful" and self.allocation is not None and self.allocation.source == "text"

    def text_units(self, text: str) -> tuple[list[str], Marked]:
        """Return the sentences of a public text, as they are cut or padded, and the marks of their words."""
        pieces = cut(text, self.sentences)
        return pieces, marked(pieces)

    @property
    def most_draws(self) -> int:
        """Return the number of sentences, each of which gets a share."""
        return self.sentences

    @model_validator(mode="after")
    def _only_gaussian_noise_has_a_delta(self) -> Self:
        if self.n_max != DEFAULT_N_MAX:
            raise ValueError("n_max counts words; this mechanism cuts texts at the model's constant length instead")
        if self.noise == "laplace" and (self.delta is not None or self.n_rec is not None):
            raise ValueError("Laplace noise has no delta: leave delta and n_rec out")
        return self

    @property
    def used_delta(self) -> float:
        """Return delta of a record; 0 for Laplace noise."""
        if self.noise == "laplace":
            return 0.0
        if self.delta is not None:
            return self.delta
        if self.mode == "faithful" or self.n_rec is None:
            return PAPER_DELTA
        return largest_delta(self.n_rec)

    def configuration(self) -> dict[str, Any]:
        """Return the configuration of mechanisms, with the delta that is used."""
        return {**super().configuration(), "delta": repr(self.used_delta)}

    @property
    def guarantee(self) -> Guarantee:
        """Return the claim between any two texts of a record."""
        gaussian = self.noise == "gaussian"
        stated = Guarantee(
            guarantee_class=GuaranteeClass.APPROX_LDP if gaussian else GuaranteeClass.PURE_LDP,
            disclosures=frozenset({Disclosure.NULLNESS}),
            neighbors="any two texts of one record, of any lengths",
            unit="record",
        )
        if self._unproven:
            return replace(stated, guarantee_class=GuaranteeClass.NONE)
        return replace(stated, assumptions=stated.assumptions | {IDEAL}) if gaussian else stated

    @property
    def mu(self) -> float:
        """Return the largest sensitivity, in standard deviations of Gaussian noise, that (epsilon, delta) allows.

        It counts all sentences together; only the last pass, if there are two.
        """
        return _mu(self._noise_epsilon, self._pass_delta)

    @property
    def _noise_epsilon(self) -> float:
        return self.epsilon if self.allocation is None else self.allocation.total

    @property
    def _pass_delta(self) -> float:
        """Return delta of one pass: each of two has a half."""
        return self.used_delta / (1 if self.allocation is None or self.allocation.first is None else 2)

    def sensitivity(self, size: int) -> float:
        """Return the largest distance of two clipped latents of `size` numbers.

        The distance is Euclidean for Gaussian noise and l1 for Laplace noise; it holds for any two texts.
        """
        root = math.sqrt(size)
        if self.norm == "value":
            return 2 * self.clip * (root if self.noise == "gaussian" else size)
        return 2 * self.clip * (1.0 if self.noise == "gaussian" else root)

    def scale(self, size: int) -> Scale:
        """Return the size of the noise per coordinate of a latent of `size` numbers; of each sentence, at even shares.

        The vectors of k sentences are one of k times as many numbers: their distance is sqrt(k) times as large for
        Gaussian noise, and k times as large for Laplace noise.
        """
        return self._scale_of(size, self._noise_epsilon, Fraction(self.sentences))

    def scale_of(self, size: int, part: int, whole: int) -> Scale:
        """Return the size of the noise of a sentence that gets a part of a budget.

        Of Gaussian noise the squares of mu add up, so a part is one of them; of Laplace noise it is one of epsilon.
        Where the paper's division is reproduced, every sentence has its part as an epsilon and the whole delta.
        """
        if self._unproven:
            return self._scale_of(size, part / MICRO, Fraction(1))
        return self._scale_of(size, whole / MICRO, Fraction(whole, part))

    def _scale_of(self, size: int, epsilon: float, times: Fraction) -> Scale:
        """Return the size of the noise for one of `times` equal parts of a budget."""
        if self.noise == "gaussian":
            sigma = _sigma(epsilon, self._pass_delta, self.sensitivity(size))
            return Scale(sigma=sigma if times == 1 else sigma * math.sqrt(times) * _WIDER)
        per_unit = 2 * exact(self.clip) * (size if self.norm == "value" else _root_above(size))
        return Scale(rate=laplace_rate(epsilon, per_unit * STEPS * times))

    def event(self, positions: int) -> Event:
        """Return one release per position; a record has one position.

        Specification: docs/spec/privacy.md#dpbart-guarantee, docs/spec/privacy.md#allocation-sentences.
        """
        return Unbounded() if self._unproven and positions else Composed((self._one_release(),) * positions)

    def _one_release(self) -> Event:
        """Return the noise of all sentences: each noise is pure or Gaussian by itself."""
        allocation, count = self.allocation, self.sentences
        if self.noise == "gaussian":
            squared = Fraction(self.mu) ** 2
            if allocation is not None and allocation.first is not None:
                squared += Fraction(_mu(allocation.first, self._pass_delta)) ** 2
            noise: Event = GaussianNoise(squared)
        elif allocation is not None:
            noise = replace(allocation.division(count, None), tightness=self._tightness)
        else:
            share = exact(self.epsilon) / count
            noise = PureDraws(share, count, share * self._tightness, range_bounded=False)
        if allocation is not None and allocation.choosing is not None:
            tight = exact(epsilon_implemented(allocation.choosing, len(allocation.templates)))
            noise = Composed((noise, PureDraws(allocation.choosing, 1, tight)))
        return Approximate(noise, self.epsilon, self.used_delta) if self.noise == "gaussian" else noise

    def cost_factors(self, positions: int) -> dict[str, float | Fraction]:  # noqa: ARG002
        """Return epsilon as the only factor: a record costs epsilon for any length of its text."""
        return {"ε": exact(self.epsilon)}

    @property
    def _tightness(self) -> Fraction:
        """Return the ratio of the clip on the grid to the clip that the noise assumes, for the l1 norm of values."""
        if self.norm != "value":
            return Fraction(1)
        return min(Fraction(1), clipped_steps(self.clip) / (exact(self.clip) * STEPS))

    @property
    def most_positions(self) -> int:
        """Return 1: a record is released once, whatever the length of its text."""
        return 1

    def positions(self, texts: pa.Array) -> pa.Array:
        """Return 1 for every text and 0 for a null."""
        return pa.array(texts.is_valid().to_numpy(zero_copy_only=False).astype(np.uint32))


def _root_above(number: int) -> Fraction:
    """Return the square root, or a fraction just above it."""
    root = math.isqrt(number)
    return Fraction(root) if root * root == number else Fraction(math.isqrt(number << 64) + 1, 1 << 32)
