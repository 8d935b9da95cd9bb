"""Latent mechanisms: a whole text becomes one vector of constant size, the vector is clipped and gets noise.

What leaves is written by a decoder from the noisy vector alone, so the guarantee is that of the noise, between any two
texts whatever their lengths (docs/spec/privacy.md#grid-noise, docs/spec/privacy.md#adept, docs/spec/privacy.md#dpbart):

* The vector has the same size for every text; every coordinate gets noise of its own, padding included.
* Gaussian noise is the analytic one (docs/spec/privacy.md#analytic-gaussian): the classical formula is wrong above
  epsilon 1 and is never used. Laplace noise is discrete and exact. Both are drawn on the CPU in float64 and whole
  numbers from the record's stream and rounded to a grid; only the sum goes to a device.
* A text on which the encoder fails becomes the zero vector before noise (docs/spec/privacy.md#fail-closed), at the same
  spend.
* Decoding is post-processing: `noisy` may be stored and decoded again, with other beams or another decoder, for free.
* One spend per record: noise that depends on the text, such as a share of epsilon per sentence, has no guarantee at all
  (docs/spec/privacy.md#allocation-by-mechanism) and cannot be configured.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, PositiveInt, model_validator

from dptext_etl.artifacts import Artifact
from dptext_etl.device import Computing
from dptext_etl.errors import PolicyError
from dptext_etl.gaussian import largest_mu
from dptext_etl.grid_noise import STEPS, Norm, clipped_steps, laplace_rate, noisy_latents
from dptext_etl.guarantee import Disclosure, Guarantee, GuaranteeClass, Spend, exact, micro
from dptext_etl.inference.at_hand import model_at_hand
from dptext_etl.inference.latent.batches import Progress
from dptext_etl.inference.latent.model import LatentModel, Latents, decoding, encoding
from dptext_etl.keys import RecordKeys
from dptext_etl.mechanism import DEFAULT_N_MAX, Mechanism, Released
from dptext_etl.sampling import analytic_gaussian_sigma

LARGEST_DELTA = 1e-6
"""Delta of one record in strict mode, at most."""
LARGEST_SUM = Fraction(1, 100)
"""Delta summed over the public bound on records, at most (docs/spec/privacy.md#delta-policy)."""
PAPER_DELTA = 1e-5
PREVIEWED = 10_000
"""Public bound on the records that a preview assumes."""
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


class LatentMechanism(Mechanism):
    """A mechanism that adds noise to a vector made of the whole text.

    Attributes:
        epsilon: Per record.
        n_max: As it is: texts are cut at the model's constant length, which words do not count.
        noise: "gaussian" for (epsilon, delta), "laplace" for pure epsilon at far more noise.
        delta: Of one record, for Gaussian noise; the largest allowed one where None is given: in strict mode
            min(1e-6, 0.01 / n_rec), in faithful mode the paper's 1e-5.
        n_rec: Public bound on the records of the table, never its size; strict Gaussian noise needs it.
        model: A folder, the name of a model that ships, or a hub name.
        revision: Of a hub name.
        num_beams: Of the search that decodes.
    """

    accelerated: ClassVar[bool] = True
    shown_epsilons: ClassVar[tuple[float, ...]] = (1_000.0, 10_000.0, 100_000.0)
    artifact_fields: ClassVar[frozenset[str]] = frozenset({"model", "revision"})
    hub_fields: ClassVar[frozenset[str]] = frozenset({"model", "revision"})
    norm: ClassVar[Norm]
    """What `clip` bounds: every coordinate, or the vector's length."""
    small_model: ClassVar[str | None] = None
    """A model of dptext-etl-models that a preview can take."""
    model_source: ClassVar[str] = "give the folder of one: -p model=FOLDER"
    """How to get a model, for the hint of a preview that finds none."""

    noise: Noise = "gaussian"
    delta: Delta | None = None
    n_rec: PositiveInt | None = None
    clip: Clip
    model: str
    revision: str | None = None
    num_beams: Annotated[PositiveInt, Field(le=64)] = 10

    @classmethod
    def first_look(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """The usual model or the small one that ships, and a bound on the records where Gaussian noise needs one."""
        told = given.keys() & {"n_rec", "delta", "mode"} or given.get("noise") == "laplace"
        bound = {} if told else {"n_rec": PREVIEWED}
        return model_at_hand(cls, given, cls.small_model, cls.model_source) | bound

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

    def described(self) -> dict[str, dict[str, Any]]:
        """What gets noise, how much, and how far apart two texts can be."""
        size = self.latent_model.size
        scale = self.scale(size)
        facts: dict[str, Any] = {
            "kind": f"{self.noise}, one draw per coordinate",
            "coordinates": size,
            f"clipped by {self.norm} to": self.clip,
            "sensitivity": self.sensitivity(size),
        }
        if scale.sigma is not None:
            facts |= {"standard deviation": scale.sigma, "sensitivity in standard deviations (mu)": self.mu}
        else:
            facts["scale"] = math.inf if scale.rate is None else float(1 / (scale.rate * 2**16))
        return {"noise": facts}

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

    @abstractmethod
    def artifacts(self) -> dict[str, Artifact]:
        """The model's files, by role."""

    @property
    @abstractmethod
    def computing(self) -> Computing:
        """Where and in what the model computes on this machine."""

    @property
    @abstractmethod
    def latent_model(self) -> LatentModel:
        """The model, loaded where this machine computes."""

    def release(self, texts: pa.Array, keys: RecordKeys) -> Released:
        """Encode, clip, add noise, decode; null in, null out."""
        record_keys = keys.of(texts)
        return self.release_with(self.latent_model, texts, record_keys)

    def release_with(self, model: LatentModel, texts: pa.Array, record_keys: pa.Array) -> Released:
        """Release by a given model under given record keys: for tests; everything else calls `release`."""
        written: list[str | None] = [None] * len(texts)
        decode, progress = decoding(model), Progress(len(texts) - texts.null_count)
        for rows, noisy in self._noisy(model, texts, record_keys):
            for same, text in zip(rows, decode(list(noisy)), strict=True):
                for row in same:
                    written[row] = text
            progress.add(sum(map(len, rows)))
        return Released(pa.array(written, pa.large_string()), self.positions(texts))

    def noisy(self, texts: pa.Array, keys: RecordKeys) -> pa.Array:
        """Return what `release` decodes: the noisy latent of every text, float32 lists; null for a null.

        It is the release: it costs what a text costs and may be stored or published in its place; `decode` writes
        texts from it as often as wanted, for nothing. The same keys give the same noise again.
        """
        record_keys = keys.of(texts)
        model, places = self.latent_model, [-1] * len(texts)
        made = [np.empty((0, model.size), np.float32)]
        for rows, noisy in self._noisy(model, texts, record_keys):
            first = sum(map(len, made))
            for place, same in enumerate(rows, first):
                for row in same:
                    places[row] = place
            made.append(noisy)
        listed = pa.FixedSizeListArray.from_arrays(pa.array(np.concatenate(made).ravel()), model.size)
        return listed.take(pa.array([None if place < 0 else place for place in places], pa.int64()))

    def _noisy(
        self, model: LatentModel, texts: pa.Array, record_keys: pa.Array
    ) -> Iterator[tuple[list[list[int]], Latents]]:
        """Yield batches of noisy latents, shape (records, size), and the rows that each record stands in.

        Rows with one key are one record with one text (a join made copies of it): it is released once.
        """
        rows_of: dict[bytes, list[int]] = {}
        for row, (valid, key) in enumerate(zip(texts.is_valid().to_pylist(), record_keys.to_pylist(), strict=True)):
            if valid:
                rows_of.setdefault(key, []).append(row)
        encode, listed = encoding(model), list(rows_of.values())
        for start in range(0, len(listed), model.rows):
            rows = listed[start : start + model.rows]
            latents = np.stack(encode([texts[same[0]].as_py() for same in rows]))
            yield rows, self.add_noise(latents, record_keys.take(pa.array([same[0] for same in rows])))

    def add_noise(self, latents: npt.NDArray[np.floating], record_keys: pa.Array) -> Latents:
        """Clip latents, shape (rows, size), and add noise of each record's own stream to every coordinate."""
        scale = self.scale(latents.shape[1])
        return noisy_latents(latents, record_keys, clip=self.clip, norm=self.norm, sigma=scale.sigma, rate=scale.rate)

    def decode(self, noisy: pa.Array) -> pa.Array:
        """Write texts from what `noisy` returned: post-processing, free of charge.

        A mechanism with other `num_beams`, or a model whose decoder was trained further on public text, may decode what
        this one made.

        Raises:
            PolicyError: Latents of another size than this model's.
        """
        model, size = self.latent_model, getattr(noisy.type, "list_size", None)
        if size != model.size:
            raise PolicyError(f"latents of this model have {model.size} numbers, got {size}", "pass what noisy() gave")
        rows = noisy.drop_null().flatten().to_numpy(zero_copy_only=False).astype(np.float32).reshape(-1, model.size)
        texts = iter(decoding(model)(list(rows)))
        return pa.array([next(texts) if item.is_valid else None for item in noisy], pa.large_string())


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
