"""Define mechanisms, frozen descriptions that turn a text and a key into a text and its cost, and post-processings.

A function of released texts spends nothing, as long as nothing in it was made from the protected records: no
weight, no prompt, no length, no choice (docs/spec/privacy.md#rewrite-again). So a post-processing gets released texts
and keys that follow from them, and never a raw text.
"""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, NoReturn, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from dptext_etl import _kernel
from dptext_etl.accounting import Event, Unbounded, allocated_rho, spend
from dptext_etl.allocation import Allocation, Marked
from dptext_etl.arrays import to_numpy
from dptext_etl.artifacts import Artifact, canon
from dptext_etl.device import Computing
from dptext_etl.errors import PolicyError, counted
from dptext_etl.guarantee import MICRO, Guarantee, Micro, Spend, delta_problem, exact
from dptext_etl.keys import RecordKeys
from dptext_etl.parameters import (
    Epsilon,
    PositiveInt,
    changed_parameters,
    checked_parameters,
    configuration_hash,
    parameters_alone,
    written_parameters,
)

PAD = "<PAD>"
"""Padding word that fills a text up to a fixed or noisy length; it is drawn like any word and released as nothing."""

Mode = Literal["strict", "faithful"]

DEFAULT_N_MAX = 10_000
_NO_WORDS = _kernel.Vocabulary([PAD.lower()])


class Released(NamedTuple):
    """The output of a mechanism, with as many rows as the input; all numbers are per record, uint32.

    `failed` counts failures of the model: draws that were uniform, or 1 for a whole record; None without a model. It
    stays inside the boundary and decides nothing (docs/spec/privacy.md#fail-closed).
    """

    text: pa.Array  # released texts, large strings; null if the input was null and nullness is disclosed
    positions: pa.Array  # draws charged, as `Mechanism.positions` counts them before
    steps: pa.Array | None = None  # draws made, at most `positions` if all cost the same; None unless `refundable`
    failed: pa.Array | None = None


class Extension(BaseModel, ABC):  # noqa: PLW1641  (pydantic adds the hash of frozen fields)
    """Base of mechanisms and post-processings: the fields are the parameters, and the file name is the name."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True)
    __getstate__ = parameters_alone
    if not TYPE_CHECKING:  # which reads the parameters from the fields
        __init__ = checked_parameters

    version: ClassVar[int] = 1
    """Version of the output: it is raised whenever equal inputs and keys would give other bytes."""
    reproducible: ClassVar[bool] = False
    """True if equal keys, ids and texts give equal bytes on every machine. Otherwise (for models), the first commit of
    a run is the release, and replays read it."""
    accelerated: ClassVar[bool] = False
    """True if its models use a GPU when there is one; such runs take turns (Dagster's pools)."""
    artifact_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields that name public inputs; the hash of the named content enters the configuration, not the name."""
    hub_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields of `artifact_fields` whose names may look like paths, as names of models on a hub do. A policy reads such
    a name as a path only if this file exists. A name in the other fields is a path if it has a slash or a suffix."""

    def __eq__(self, other: object) -> bool:
        """Compare parameters; arrays that were computed from them have no truth value."""
        return type(self) is type(other) and all(
            getattr(self, name) == getattr(other, name) for name in type(self).model_fields
        )

    @property
    def name(self) -> str:
        """Return the name, which is the name of its file."""
        return type(self).__module__.rpartition(".")[2]

    @abstractmethod
    def configuration(self) -> dict[str, Any]:
        """Return the settings that determine the output, apart from key, record, and text; their hash is `cfg`."""

    def cfg(self) -> str:
        """Return the configuration hash, 64 hex digits (docs/spec/stream.md#configuration-hash)."""
        return configuration_hash(self.configuration())

    def artifacts(self) -> dict[str, Artifact]:
        """Return the public inputs that the output depends on, by role."""
        return {}

    @property
    def computing(self) -> Computing | None:
        """Return device and number type of its model on this machine; None if it has no model.

        A setting of the machine, never of a release: it enters no configuration.
        """
        return None

    def probe(self) -> None:
        """Compute on public texts, and refuse to continue where that fails; nothing where there is no model.

        Anyone who releases probes on a fixed schedule, before and after each part, whatever became of the texts: what
        fails on those is drawn uniformly and decides nothing (docs/spec/privacy.md#probe).

        Raises:
            PolicyError: The model fails on public texts.
        """

    @classmethod
    @abstractmethod
    def example(cls) -> Self:
        """Return a tiny instance that needs no download; contract tests and documentation run it."""


class Mechanism(Extension):
    """Base of all mechanisms; the fields of a mechanism are its parameters, and its file name is its name.

    Every engine, the command line, the documentation and the contract tests find a subclass in
    `dptext_etl/mechanisms/`; it is not registered anywhere.

    Attributes:
        epsilon: The privacy parameter; `guarantee.unit` says whether it counts per word, token or record.
        mode: "strict" can be published; "faithful" reproduces a paper, for benchmarks.
        n_max: Longest text in words; longer texts are cut first.
        allocation: How one budget of a record is divided among its draws; `epsilon` is then the record's, and may be
            excluded. None gives every draw `epsilon`.
    """

    __repr_args__ = changed_parameters

    preview_epsilons: ClassVar[tuple[float, ...]] = (0.5, 1.0, 2.0, 4.0, 8.0)
    """Epsilons that a preview shows if none is given."""
    cannot_divide: ClassVar[str | None] = "its draws are none of an exponential mechanism over one public output set"
    """Why no budget is divided among its draws, with the nearest sound way if there is one; None where `allocation` is
    allowed (docs/spec/privacy.md#allocation)."""

    epsilon: Epsilon
    mode: Mode = "strict"
    n_max: PositiveInt = DEFAULT_N_MAX
    allocation: Allocation | None = None

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy, with other parameters if given: they are checked, and nothing derived from the old ones goes along.

        Where a budget is divided, another epsilon by itself divides another budget in the same way.

        Args:
            update: Parameters of the copy that differ.
            deep: Copy the objects that the parameters hold, too; only where none differ.

        Raises:
            PolicyError: Unknown parameters, or values out of range.
        """
        if not update:
            return super().model_copy(deep=deep)
        changed = dict(update)
        if self.allocation is not None and "epsilon" in changed and "allocation" not in changed:
            changed["allocation"] = self.allocation.scaled(changed["epsilon"])
            changed["epsilon"] = changed["allocation"].epsilon
        elif changed.get("allocation") is not None and "epsilon" not in changed:
            changed["epsilon"] = Allocation.model_validate(changed["allocation"]).epsilon
        return type(self)(**{name: getattr(self, name) for name in self.model_fields_set} | changed)

    @model_validator(mode="before")
    @classmethod
    def _epsilon_of_the_record(cls, values: Any) -> Any:
        if not isinstance(values, dict) or values.get("allocation") is None:
            return values
        if cls.cannot_divide is not None:
            raise ValueError(f"no allocation divides the budget of a text here: {cls.cannot_divide}")
        if "epsilon" in values:
            return values
        try:
            allocation = Allocation.model_validate(values["allocation"])
        except ValidationError:  # the field reports its error
            return {**values, "epsilon": 1.0}
        return {**values, "epsilon": allocation.epsilon}

    @model_validator(mode="after")
    def _allocation_holds(self) -> Self:
        if self.allocation is None:
            return self
        if self.epsilon != self.allocation.epsilon:
            whole = "total, first and choosing" if self.allocation.before else "total"
            raise ValueError(f"epsilon is per record, {self.allocation.epsilon!r} by {whole}: leave it out")
        refused = self.refuses_allocation(self.allocation) or self.allocation.problem(self.most_draws)
        if refused:
            raise ValueError(refused)
        return self

    def refuses_allocation(self, allocation: Allocation) -> str | None:  # noqa: ARG002  (families with a reason need it)
        """Return why the budget cannot be divided like this, with the nearest sound way; None if it can."""
        return None

    @property
    def most_draws(self) -> int:
        """Return the largest number of draws of any text in one pass."""
        return self.most_positions

    @model_validator(mode="after")
    def _delta_fits_the_records(self) -> Self:
        delta = getattr(self, "used_delta", 0.0) if self.mode == "strict" else 0.0
        problem = delta_problem(delta, stated_records(self))
        if problem:
            raise ValueError(problem)
        return self

    def _repr_html_(self) -> str:
        from dptext_etl import markup

        claim = self.guarantee
        entries = {
            **{str(name): value for name, value in self.__repr_args__() if name is not None},
            "epsilon": f"{self.epsilon:g} per {claim.unit}",
            "mode": self.mode,
            "guarantee": claim.guarantee_class.value,
            "neighbors": claim.neighbors,
            "released exactly": claim.disclosures or "nothing",
        }
        return markup.facts(self.name, entries)

    def require_charge(self) -> None:
        """Refuse a charge below the loss of the draws; families that know the loss override this.

        Raises:
            PolicyError: A draw loses more than it is charged.
        """

    def cfg(self) -> str:
        """Return the configuration hash, 64 hex digits; refuse a mechanism that charges less than its draws lose."""
        self.require_charge()
        return super().cfg()

    def configuration(self) -> dict[str, Any]:
        """Return the settings that determine the output, apart from key, record, and text; their hash is `cfg`.

        Specification: docs/spec/stream.md#configuration.
        """
        return {
            "mechanism": self.name,
            "mechanism_version": self.version,
            "segmentation": _kernel.UNICODE_VERSION,
            **written_parameters(self, self.artifact_fields),
            **{name: artifact.sha256 for name, artifact in self.artifacts().items()},
        }

    def artifacts(self) -> dict[str, Artifact]:
        """Return the public inputs that the output depends on, by role; subclasses add theirs to these."""
        inputs = {} if self.allocation is None else self.allocation.artifacts()
        return {"allocation/" + role: item for role, item in inputs.items()}

    def fetch_inputs(self, options: Mapping[str, str]) -> Self:  # noqa: ARG002
        """Return this mechanism with the public inputs that are in an object store on this machine.

        Args:
            options: Options for object stores, as a policy's `storage_options` has them.
        """
        return self

    def _unit(self, draw: str) -> str:
        """Return the unit that `epsilon` is charged per, by the unit of one draw."""
        return draw if self.allocation is None else "record"

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """Return the claim: class, disclosures, neighbors, unit."""

    def event(self, positions: int) -> Event:  # noqa: ARG002
        """Return the event of releasing one record, which the accountant converts to costs.

        The default has no finite cost.

        Args:
            positions: Number of draws of the record.
        """
        return Unbounded()

    def spend(self, positions: int) -> Spend:
        """Return the cost of releasing one record: by default, the cost of its event.

        Args:
            positions: Number of draws of the record.

        Returns:
            Amounts in millionths, rounded up.
        """
        return spend(self.guarantee, self.event(positions), positions)

    @property
    def refundable(self) -> bool:
        """Return True if a pure cap may be charged only for the draws that a release actually made.

        This is allowed only if the number of draws is a function of the released text, or of Bernoulli trials that do
        not depend on any text (docs/spec/privacy.md#expost). The guarantee of a record stays its worst case.
        """
        return False

    @property
    def most_positions(self) -> int:
        """Return the draws of the longest text; every record reserves them if the length is not disclosed."""
        return self.n_max

    @abstractmethod
    def positions(self, texts: pa.Array) -> pa.Array:
        """Count the draws of each text without drawing; reservations use this.

        Args:
            texts: Strings, shape (texts,); nulls allowed.

        Returns:
            Draws per text, uint32, shape (texts,).
        """

    @abstractmethod
    def release(self, texts: pa.Array, keys: RecordKeys) -> Released:
        """Release texts. The same key, record, and text always give the same bytes.

        Args:
            texts: Strings, shape (texts,); a null stays null.
            keys: The release key and the record ids, shape (texts,).

        Returns:
            Released texts and draws per record, shape (texts,).

        Raises:
            PolicyError: The model fails on public texts.
        """

    def count_read_words(self, texts: pa.Array, words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:  # noqa: ARG002
        """Count the words of each text that are read, of those that it has; all others are cut. Shapes (texts,).

        The counts must stay inside.
        """
        return np.minimum(words, np.uint32(min(self.n_max, 2**32 - 1)))

    def count_known_words(self, texts: pa.Array) -> npt.NDArray[np.uint32] | None:  # noqa: ARG002
        """Count the words read whose choice decides about draws, shape (texts,). It must stay inside.

        None where every word does, because a model reads words in pieces.
        """
        return None

    def described(self) -> dict[str, dict[str, Any]]:
        """Return facts about one draw ("draw"), the noise ("noise"), or the distributions of words ("table").

        Of the last, "epsilon_table_is" says whether `epsilon_table` is "exact" or a "bound", "disclosed_bits_per_token"
        the information that the choice of output sets reveals about a uniform word of the vocabulary.
        """
        return {}

    def text_units(self, text: str) -> tuple[list[str], Marked]:
        """Return the words of a public text that share a divided budget, and their marks, for explanations."""
        words = [piece for piece, is_word in _kernel.split(text) if is_word]
        return words, Marked(words, range(len(words)), max(1, len(words)))

    def cost_factors(self, positions: int) -> dict[str, float | Fraction]:
        """Return the factors whose product is the declared epsilon of a text, by their symbols in the documentation.

        Where a budget is divided, it is the only one: it is the same for any number of draws.

        Args:
            positions: Draws of the text, at least 1.
        """
        return {"n": positions, "ε": exact(self.epsilon)} if self.allocation is None else {"E": exact(self.epsilon)}

    def output_words(self) -> frozenset[str] | None:
        """Return the words that a released text can hold, or None if outputs are not words of a fixed set."""
        return None

    @classmethod
    def preview_parameters(cls, given: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG003
        """Return parameters that a preview adds to the given ones, such as a model that this machine has.

        Raises:
            PolicyError: This machine lacks something that a preview needs; the hint says how to get it.
        """
        return {}


def count_words(
    texts: pa.Array, most: int = 2**32 - 1, vocabulary: _kernel.Vocabulary | _kernel.Table | None = None
) -> npt.NDArray[np.uint32]:
    """Count the words of each text, shape (texts,), among the first `most`; with a vocabulary, only its words."""
    others = "uniform" if vocabulary is None else "drop"
    policy = {"case": "lower", "punctuation": "drop", "null": "pass", "numbers": others, "oov": others, "n_max": most}
    return to_numpy(pa.array((vocabulary or _NO_WORDS).positions(texts, json.dumps(policy))))


def worst_spend(mechanism: Mechanism, positions: int | None = None) -> Spend:
    """Return the cost to reserve before a text is scored.

    Without a number of draws, it covers any text: where a budget is divided, amounts that grow with the largest draw
    are then those for one draw.
    """
    most = mechanism.spend(min(mechanism.most_positions, mechanism.most_positions if positions is None else positions))
    if positions is not None or mechanism.allocation is None:
        return most
    single_draw = worst_spend(mechanism, 1)
    return replace(most, rho=max(most.rho, single_draw.rho), eps_metric=max(most.eps_metric, single_draw.eps_metric))


def stated_records(mechanism: Mechanism) -> int | None:
    """Return the public bound on the number of records that a delta was stated for; None without a delta."""
    return getattr(mechanism, "n_rec", None)


_SLACK = Fraction(1, 10**12)  # above the rounding error of a computed loss


class Loss(NamedTuple):
    """The privacy loss of one draw between any two words, or texts, with equal disclosures.

    Where a family knows it, it is compared with the charge (docs/spec/privacy.md#charge-covers-loss). It follows from
    stored integers, or from the rate of noise, which decide a draw. Neither a mechanism's own statement nor a number
    that is stored with a table is believed.
    """

    pure: Fraction | float  # largest difference of the log probabilities of one output
    width: Fraction | float  # bounds the range of these differences over all outputs: a draw is (width^2 / 8)-zCDP

    @classmethod
    def of(cls, pure: float | Fraction, spread: float | Fraction = math.inf) -> Loss:
        """Return a loss; `spread` is the largest log ratio of two probabilities of one word, if that is known."""
        return cls(pure, 2 * min(pure, spread))

    def less_rounding(self) -> Loss:
        """Return exact amounts that are not above the loss, whatever its computation rounded."""
        amounts = (amount if amount == math.inf else exact(amount) * (1 - _SLACK) - _SLACK for amount in self)
        return Loss(*(max(Fraction(0), amount) for amount in amounts))


def require_epsilon(mechanism: Mechanism, loss: Loss, epsilon: float | Fraction) -> None:
    """Refuse a mechanism one of whose draws loses more than its epsilon."""
    _compare(mechanism, "one draw", loss.less_rounding().pure, math.inf if epsilon == math.inf else exact(epsilon))


def require_charge(mechanism: Mechanism, loss: Loss, length: Fraction = Fraction(0)) -> None:
    """Refuse a mechanism whose charge is below the loss of its draws.

    `loss` is of one draw, with the largest share where a budget is divided; `length` is of a drawn length, pure.
    """
    if mechanism.allocation is not None:
        require_epsilon(mechanism, loss, mechanism.allocation.largest)
    loss, allocation = loss.less_rounding(), mechanism.allocation
    for draws in sorted({1, min(2, mechanism.most_positions), mechanism.most_positions}):
        cost, least = mechanism.spend(draws), dict[str, Fraction | float]()  # that such a text may be charged
        if allocation is None:
            least["eps_pure"] = least["eps_tight"] = draws * loss.pure + length
            least["rho"] = draws * loss.width**2 / 8
        else:
            least["eps_pure"] = exact(allocation.epsilon) + length
            largest = Fraction(allocation.bounds(draws)[1], MICRO)
            least["rho"] = allocated_rho(allocation.total, largest) * (loss.width / exact(allocation.largest)) ** 2
        if not cost.delta:
            least["eps_approx"] = least["eps_pure"]
        for name, lost in least.items():
            _compare(mechanism, f"{name} of {counted(draws, 'draw')}", lost, getattr(cost, name), MICRO)


def _compare(
    mechanism: Mechanism, amount: str, lost: Fraction | float, charged: Fraction | Micro, unit: int = 1
) -> None:
    if lost * unit <= charged:
        return
    numbers = f"a loss of {float(lost):.9g}, and a charge of {float(charged) / unit:.9g}"
    msg = f"{mechanism.name} charges less than its draws lose ({amount}: {numbers}); nothing was charged"
    hint = "correct the mechanism: its weights or its `epsilon_per_word`; `bounded_range` is False where the weights "
    raise PolicyError(msg, f"{hint}of a word differ by more than e^(epsilon/2) (docs/extending.md)")


# Only a failure on public texts may stop a release (docs/spec/privacy.md#probe): if a model fails on a text of the
# release, no one learns which, and its tokens are drawn uniformly.
PROBE_WORDS = ("good", "film", "about", "a", "doctor", "and", "the", "people", "of", "an", "old", "town")
"""Words of the public texts."""
PROBE_TEXT = " ".join(PROBE_WORDS)


def refuse_model() -> NoReturn:
    """Refuse to continue because the model fails."""
    raise PolicyError(
        "the model fails on public texts: its releases would be random at the same cost; nothing more is charged",
        "check the model's files, its libraries and the memory; a new run continues where this one stopped",
    )


Provenance = Literal["public", "disjoint-records"]
"""Provenance of the training data: public texts only, or also records that are not in the release."""


class Training(NamedTuple):
    """The training of the model of a post-processing."""

    provenance: Provenance | None  # of the training data; None if no one declares it, and such a run is refused
    model_hash: str | None = None  # one hash over the files of the model, 64 hex digits; None without a model
    mechanism: str | None = None  # configuration hash of the one whose releases it learned from; None if not stated


class Rewritten(NamedTuple):
    """The output of a post-processing, with as many rows as the input."""

    text: pa.Array  # texts, large strings; a null stays null
    failed: pa.Array  # true for rows on which the model failed: they stay as they were released


class PostProcess(Extension):
    """Base of all post-processings; the fields are the parameters, and the file name is the name.

    A package names its subclasses as entry points (docs/extending.md); every policy and command finds them.
    """

    def configuration(self) -> dict[str, Any]:
        """Return the settings that determine the output, apart from key, record, and text; their hash is `cfg`."""
        return {
            "postprocess": self.name,
            "postprocess_version": self.version,
            **written_parameters(self, self.artifact_fields),
            **{name: artifact.sha256 for name, artifact in self.artifacts().items()},
        }

    @property
    @abstractmethod
    def training(self) -> Training:
        """Return the training of its model."""

    @abstractmethod
    def rewrite(self, texts: pa.Array, keys: pa.Array, step: int = 0) -> Rewritten:
        """Rewrite released texts; a null stays null.

        Args:
            texts: Released texts, strings.
            keys: Keys of the streams, fixed-size binary of 32 bytes, one per text.
            step: Place among the post-processings of the column, from 0; it separates their draws.
        """

    @abstractmethod
    def foreign_word_chance(self) -> float:
        """Return an upper bound of the probability that one of its texts holds one given word of 20 random letters.

        The word is independent of the text. The words of canary rows are, wherever a mechanism does not spell.
        """


def chain(steps: tuple[PostProcess, ...]) -> str:
    """Return the hash that names the post-processings of a column in their order, 64 hex digits."""
    return hashlib.sha256(b"dptext/post/v1\0" + canon([step.cfg() for step in steps])).hexdigest()
