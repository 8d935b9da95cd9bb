"""Compute the noise that (epsilon, delta) needs on the clipped vector of a whole text, and its cost.

Specification: docs/spec/privacy.md#grid-noise, docs/spec/privacy.md#adept, docs/spec/privacy.md#dpbart.

* Every coordinate, padding included, gets noise of its own; the vector has the same size for every text.
* Gaussian noise is the analytic one (docs/spec/privacy.md#analytic-gaussian): the classical formula is wrong above
  epsilon 1 and is never used. Laplace noise is discrete and exact.
* A record is charged once. Noise that depends on the text, such as a share of epsilon per sentence, has no guarantee
  (docs/spec/privacy.md#allocation-by-mechanism) and cannot be configured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt, model_validator

from dptext_etl.delta_policy import largest
from dptext_etl.gaussian import largest_mu
from dptext_etl.grid_noise import STEPS, Norm, clipped_steps, laplace_rate
from dptext_etl.guarantee import Disclosure, Guarantee, GuaranteeClass, Spend, exact, fine, micro
from dptext_etl.mechanism import DEFAULT_N_MAX, Mechanism
from dptext_etl.sampling import analytic_gaussian_sigma

PAPER_DELTA = 1e-5
IDEAL = "IDEAL_GAUSSIAN"


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


class LatentNoise(Mechanism):
    """A mechanism that adds noise to a clipped vector made of the whole text.

    Attributes:
        epsilon: Epsilon per record.
        n_max: Leave at its default: texts are cut at the model's constant length, which does not count words.
        noise: "gaussian" for (epsilon, delta), "laplace" for pure epsilon with far more noise.
        delta: Delta of one record, for Gaussian noise; None takes the largest allowed one: in strict mode
            min(1e-6, 0.01 / n_rec), in faithful mode the paper's 1e-5.
        n_rec: Public bound on the number of records of the table, never its size; strict Gaussian noise needs it.
        clip: Bound of every coordinate or of the vector's length, depending on the mechanism.
    """

    norm: ClassVar[Norm]
    """Norm that `clip` bounds: of every coordinate, or of the vector."""

    noise: Noise = "gaussian"
    delta: Delta | None = None
    n_rec: PositiveInt | None = None
    clip: Clip

    @model_validator(mode="before")
    @classmethod
    def _one_spend_per_record(cls, given: Any) -> Any:
        asked = {"allocation", "epsilons", "per_sentence", "sentences"} & set(given if isinstance(given, dict) else ())
        if asked:
            msg = f"{', '.join(sorted(asked))}: epsilon cannot be spread over a text here. The size of the noise would "
            msg += "depend on the text, and no finite epsilon bounds that; give one epsilon per record"
            raise ValueError(msg)
        return given

    @model_validator(mode="after")
    def _only_gaussian_noise_has_a_delta(self) -> Self:
        if self.n_max != DEFAULT_N_MAX:
            msg = "n_max counts words; this mechanism cuts texts at the model's constant length instead"
            raise ValueError(msg)
        if self.noise == "laplace" and (self.delta is not None or self.n_rec is not None):
            msg = "Laplace noise has no delta: leave delta and n_rec out"
            raise ValueError(msg)
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
        return largest(self.n_rec)

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
            neighbours="any two texts of one record, of any lengths",
            unit="record",
        )
        return replace(stated, assumptions=stated.assumptions | {IDEAL}) if gaussian else stated

    @property
    def mu(self) -> float:
        """Return the largest sensitivity, in standard deviations of Gaussian noise, that (epsilon, delta) allows."""
        return _mu(self.epsilon, self.used_delta)

    def sensitivity(self, size: int) -> float:
        """Return the largest distance of two clipped latents of `size` numbers.

        The distance is Euclidean for Gaussian noise and l1 for Laplace noise; it holds for any two texts.
        """
        root = math.sqrt(size)
        if self.norm == "value":
            return 2 * self.clip * (root if self.noise == "gaussian" else size)
        return 2 * self.clip * (1.0 if self.noise == "gaussian" else root)

    def scale(self, size: int) -> Scale:
        """Return the size of the noise per coordinate of a latent of `size` numbers."""
        if self.noise == "gaussian":
            return Scale(sigma=_sigma(self.epsilon, self.used_delta, self.sensitivity(size)))
        per_unit = 2 * exact(self.clip) * (size if self.norm == "value" else _root_above(size))
        return Scale(rate=laplace_rate(self.epsilon, per_unit * STEPS))

    def spend(self, positions: int) -> Spend:
        """Return the spend of one release per position; a record has one position.

        Specification: docs/spec/privacy.md#dpbart-guarantee.
        """
        guarantee, epsilon = self.guarantee, exact(self.epsilon)
        common: dict[str, Any] = {
            "guarantee_class": guarantee.guarantee_class,
            "disclosures": guarantee.disclosures,
            "eps_approx": positions * micro(epsilon),
            "eps_metric": math.inf if positions else 0,
            "n_worst": positions,
            "assumptions": guarantee.assumptions,
        }
        if self.noise == "laplace":
            pure, rho = positions * micro(epsilon), positions * micro(epsilon * epsilon / 2)
            tight = positions * micro(epsilon * self._tightness)
            return Spend(**common, eps_pure=pure, eps_tight=tight, rho=rho, mu2=math.inf if positions else 0)
        squared = Fraction(self.mu) ** 2
        nothing = math.inf if positions else 0
        return Spend(
            **common,
            eps_pure=nothing,
            eps_tight=nothing,
            delta=positions * fine(self.used_delta),
            rho=positions * micro(squared / 2),
            mu2=positions * micro(squared),
        )

    def cost_factors(self, positions: int) -> dict[str, float | Fraction]:  # noqa: ARG002
        """Return epsilon as the only factor: a record costs epsilon for any length of its text."""
        return {"ε": exact(self.epsilon)}

    @property
    def _tightness(self) -> Fraction:
        """Return the ratio of the clip on the grid to the clip that the noise assumes, for the l1 norm of values."""
        if self.norm != "value":
            return Fraction(1)
        return min(Fraction(1), clipped_steps(self.clip) / (exact(self.clip) * STEPS))

    def worst_case(self, positions: int | None = None) -> Spend:
        """Return the cost of one release per record, for any length of its text; a null that passes as null is none."""
        return self.spend(1 if positions is None else min(positions, 1))

    def positions(self, texts: pa.Array) -> pa.Array:
        """Return 1 for every text and 0 for a null."""
        return pa.array(texts.is_valid().to_numpy(zero_copy_only=False).astype(np.uint32))


@lru_cache(maxsize=64)
def _sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    return analytic_gaussian_sigma(epsilon, delta, sensitivity)


@lru_cache(maxsize=64)
def _mu(epsilon: float, delta: float) -> float:
    return largest_mu(epsilon, delta)


def _root_above(number: int) -> Fraction:
    """Return the square root, or a fraction just above it."""
    root = math.isqrt(number)
    return Fraction(root) if root * root == number else Fraction(math.isqrt(number << 64) + 1, 1 << 32)
