"""Compute how much noise (epsilon, delta) needs on a clipped vector of a whole text, and what it costs.

Specification: docs/spec/privacy.md#grid-noise, docs/spec/privacy.md#adept, docs/spec/privacy.md#dpbart.

* Every coordinate gets noise of its own, padding included; the vector has the same size for every text.
* Gaussian noise is the analytic one (docs/spec/privacy.md#analytic-gaussian): the classical formula is wrong above
  epsilon 1 and is never used. Laplace noise is discrete and exact.
* A record is spent once: noise that depends on the text, such as a share of epsilon per sentence, has no guarantee at
  all (docs/spec/privacy.md#allocation-by-mechanism) and cannot be configured.
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

from dptext_etl.gaussian import largest_mu
from dptext_etl.grid_noise import STEPS, Norm, clipped_steps, laplace_rate
from dptext_etl.guarantee import Disclosure, Guarantee, GuaranteeClass, Spend, exact, micro
from dptext_etl.mechanism import DEFAULT_N_MAX, Mechanism
from dptext_etl.sampling import analytic_gaussian_sigma

LARGEST_DELTA = 1e-6
"""Delta of one record in strict mode, at most."""
LARGEST_SUM = Fraction(1, 100)
"""Delta summed over the public bound on records, at most (docs/spec/privacy.md#delta-policy)."""
PAPER_DELTA = 1e-5
IDEAL = "IDEAL_GAUSSIAN"


Noise = Literal["gaussian", "laplace"]
Clip = Annotated[float, Field(gt=2.0**-16, le=256, allow_inf_nan=False)]
Delta = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]


@dataclass(frozen=True)
class Scale:
    """How much noise every coordinate gets.

    Attributes:
        sigma: Standard deviation of Gaussian noise, or None.
        rate: Rate of discrete Laplace noise per grid step, or None; its scale is 1 / (2^16 rate).
    """

    sigma: float | None = None
    rate: Fraction | None = None


class LatentNoise(Mechanism):
    """A mechanism that adds noise to a clipped vector made of the whole text.

    Attributes:
        epsilon: Per record.
        n_max: As it is: texts are cut at the model's constant length, which words do not count.
        noise: "gaussian" for (epsilon, delta), "laplace" for pure epsilon at far more noise.
        delta: Of one record, for Gaussian noise; the largest allowed one where None is given: in strict mode
            min(1e-6, 0.01 / n_rec), in faithful mode the paper's 1e-5.
        n_rec: Public bound on the records of the table, never its size; strict Gaussian noise needs it.
        clip: Bound of the vector: of every coordinate, or of its length, by mechanism.
    """

    norm: ClassVar[Norm]
    """What `clip` bounds: every coordinate, or the vector's length."""

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
    def _delta_is_small(self) -> Self:
        if self.n_max != DEFAULT_N_MAX:
            msg = "n_max counts words; this mechanism cuts texts at the model's constant length instead"
            raise ValueError(msg)
        if self.noise == "laplace":
            if self.delta is not None or self.n_rec is not None:
                msg = "Laplace noise has no delta: leave delta and n_rec out"
                raise ValueError(msg)
        elif self.mode == "strict":
            if self.n_rec is None:
                msg = "Gaussian noise needs n_rec, a public bound on the number of records (10_000 allows delta 1e-6); "
                msg += "never take it from the private table"
                raise ValueError(msg)
            if self.used_delta > LARGEST_DELTA or exact(self.used_delta) * self.n_rec > LARGEST_SUM:
                msg = (
                    f"delta is at most {LARGEST_DELTA} and n_rec * delta at most {float(LARGEST_SUM)} in strict mode; "
                )
                msg += "leave delta out for the largest allowed"
                raise ValueError(msg)
        return self

    @property
    def used_delta(self) -> float:
        """Delta of a record; 0 for Laplace noise."""
        if self.noise == "laplace":
            return 0.0
        if self.delta is not None:
            return self.delta
        if self.mode == "faithful" or self.n_rec is None:
            return PAPER_DELTA
        return min(LARGEST_DELTA, _rounded_down(LARGEST_SUM / self.n_rec))

    def configuration(self) -> dict[str, Any]:
        """As everywhere, and the delta that is used, given or not."""
        return {**super().configuration(), "delta": repr(self.used_delta)}

    @property
    def guarantee(self) -> Guarantee:
        """Any two texts of a record."""
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
        """Sensitivity of Gaussian noise in standard deviations: the largest that (epsilon, delta) allows."""
        return _mu(self.epsilon, self.used_delta)

    def sensitivity(self, size: int) -> float:
        """Return the largest distance of two clipped latents of `size` numbers.

        Euclidean for Gaussian noise, the sum of coordinates' distances for Laplace noise; any two texts, no neighbours.
        """
        root = math.sqrt(size)
        if self.norm == "value":
            return 2 * self.clip * (root if self.noise == "gaussian" else size)
        return 2 * self.clip * (1.0 if self.noise == "gaussian" else root)

    def scale(self, size: int) -> Scale:
        """Return how much noise a latent of `size` numbers gets, per coordinate."""
        if self.noise == "gaussian":
            return Scale(sigma=_sigma(self.epsilon, self.used_delta, self.sensitivity(size)))
        per_unit = 2 * exact(self.clip) * (size if self.norm == "value" else _root_above(size))
        return Scale(rate=laplace_rate(self.epsilon, per_unit * STEPS))

    def spend(self, positions: int) -> Spend:
        """One release per position, and a record has one (docs/spec/privacy.md#dpbart-guarantee)."""
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
            delta=positions * micro(self.used_delta),
            rho=positions * micro(squared / 2),
            mu2=positions * micro(squared),
        )

    def cost_factors(self, positions: int) -> dict[str, float | Fraction]:  # noqa: ARG002
        """A record costs epsilon, however long its text."""
        return {"ε": exact(self.epsilon)}

    @property
    def _tightness(self) -> Fraction:
        """By how much the clip on the grid is below the one that noise is made for, in the l1 distance of values."""
        if self.norm != "value":
            return Fraction(1)
        return min(Fraction(1), clipped_steps(self.clip) / (exact(self.clip) * STEPS))

    def worst_case(self, positions: int | None = None) -> Spend:
        """A record is one release, however long its text; a null that passes as null is none."""
        return self.spend(1 if positions is None else min(positions, 1))

    def positions(self, texts: pa.Array) -> pa.Array:
        """One release per text, none for a null."""
        return pa.array(texts.is_valid().to_numpy(zero_copy_only=False).astype(np.uint32))


@lru_cache(maxsize=64)
def _sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    return analytic_gaussian_sigma(epsilon, delta, sensitivity)


@lru_cache(maxsize=64)
def _mu(epsilon: float, delta: float) -> float:
    return largest_mu(epsilon, delta)


def _rounded_down(amount: Fraction) -> float:
    found = float(amount)
    while exact(found) > amount:
        found = math.nextafter(found, 0.0)
    return found


def _root_above(number: int) -> Fraction:
    """The square root, or a fraction just above it."""
    root = math.isqrt(number)
    return Fraction(root) if root * root == number else Fraction(math.isqrt(number << 64) + 1, 1 << 32)
