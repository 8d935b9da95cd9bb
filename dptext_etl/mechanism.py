"""Define a mechanism: a small frozen description that turns a text and a key into a released text and its cost."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from dptext_etl import _kernel, delta_policy, html_tables
from dptext_etl.accounting import Draws
from dptext_etl.artifacts import Artifact, canon
from dptext_etl.device import Computing
from dptext_etl.guarantee import MICRO, Guarantee, Spend, exact
from dptext_etl.keys import RecordKeys
from dptext_etl.validation import validated

PAD = "<PAD>"
"""Padding word that fills a text up to a fixed or noisy length; it is drawn like any word and released as nothing."""

Epsilon = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False, strict=True)]
Mode = Literal["strict", "faithful"]

DEFAULT_N_MAX = 10_000


class Released(NamedTuple):
    """The output of a mechanism, with as many rows as the input.

    Attributes:
        text: Released texts, large strings; null if the input was null and nullness is disclosed.
        positions: Draws charged per record, uint32, as `Mechanism.positions` counts them before.
        steps: Draws made per record, uint32, at most `positions` if all cost the same; None unless it is `refundable`.
        failed: What the model failed on per record, uint32: draws that were uniform, or 1 for a whole record; None
            without a model. It stays inside the boundary and decides nothing (docs/spec/privacy.md#fail-closed).
    """

    text: pa.Array
    positions: pa.Array
    steps: pa.Array | None = None
    failed: pa.Array | None = None


class Mechanism(BaseModel, ABC):
    """Base of all mechanisms; the fields of a mechanism are its parameters, and its file name is its name.

    Every engine, the command line, the documentation and the contract tests find a subclass in
    `dptext_etl/mechanisms/`; it is not registered anywhere.

    Attributes:
        epsilon: The privacy parameter; `guarantee.unit` says whether it counts per word, token or record.
        mode: "strict": every row is a theorem. "faithful": a paper reproduced for benchmarks, never publishable.
        n_max: Longest text in words; longer texts are cut before anything else.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True)

    version: ClassVar[int] = 1
    """Version of the output: it is raised whenever equal inputs and keys would give other bytes."""
    reproducible: ClassVar[bool] = False
    """True if equal keys, ids and texts give equal bytes on every machine. Otherwise (for models), the first commit of
    a run is the release, and replays read it."""
    accelerated: ClassVar[bool] = False
    """True if its models use a GPU when there is one; such runs take turns (Dagster's pools)."""
    shown_epsilons: ClassVar[tuple[float, ...]] = (0.5, 1.0, 2.0, 4.0, 8.0)
    """Epsilons that a preview shows if none is given."""
    artifact_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields that name public inputs; the hash of the named content enters the configuration, not the name."""
    hub_fields: ClassVar[frozenset[str]] = frozenset()
    """Those of `artifact_fields` whose names may look like paths, as names of models on a hub do. A policy takes such a
    name as a path only if this file exists. A name in the other fields is a path if it has a slash or a suffix."""
    divides: ClassVar[bool] = False
    """True if it has a field `allocation`: one budget of a record, divided among its draws."""
    cannot_divide: ClassVar[str] = "its draws are none of an exponential mechanism over one public output set"
    """Why it has none; with the nearest sound way, if there is one."""

    epsilon: Epsilon
    mode: Mode = "strict"
    n_max: PositiveInt = DEFAULT_N_MAX

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy, with other parameters if given: they are checked, and nothing derived from the old ones goes along.

        Args:
            update: Parameters of the copy that differ.
            deep: Copy what the parameters hold, too; only where none differ.

        Raises:
            PolicyError: Unknown parameters, or values out of range.
        """
        if not update:
            return super().model_copy(deep=deep)
        given = {name: getattr(self, name) for name in self.model_fields_set}
        with validated(self.name, type(self).model_fields, of=f"parameters of {self.name}"):
            return type(self)(**{**given, **update})

    def __getstate__(self) -> dict[Any, Any]:
        """Pickle the parameters alone; derived values are computed again."""
        state = super().__getstate__()
        fields = type(self).model_fields
        return {**state, "__dict__": {name: value for name, value in state["__dict__"].items() if name in fields}}

    @model_validator(mode="before")
    @classmethod
    def _budgets_are_not_divided(cls, values: Any) -> Any:
        if not cls.divides and isinstance(values, dict) and values.get("allocation") is not None:
            raise ValueError(f"no allocation divides the budget of a text here: {cls.cannot_divide}")
        return values

    @model_validator(mode="after")
    def _delta_fits_the_records(self) -> Self:
        problem = delta_policy.problem(self.used_delta, self.n_rec_stated) if self.mode == "strict" else None
        if problem:
            raise ValueError(problem)
        return self

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Show the parameters that differ from their defaults."""
        fields = type(self).model_fields
        for name, value in super().__repr_args__():
            if name not in fields or value != fields[name].get_default(call_default_factory=True):
                yield name, value

    def _repr_html_(self) -> str:
        """Show parameters and claim in a notebook."""
        claim = self.guarantee
        entries = {
            **{str(name): value for name, value in self.__repr_args__() if name is not None},
            "epsilon": f"{self.epsilon:g} per {claim.unit}",
            "mode": self.mode,
            "guarantee": claim.guarantee_class.value,
            "neighbours": claim.neighbours,
            "released exactly": claim.disclosures or "nothing",
        }
        return html_tables.facts(self.name, entries)

    @property
    def used_delta(self) -> float:
        """The delta that is stated for one record; 0 for none."""
        return 0.0

    @property
    def n_rec_stated(self) -> int | None:
        """The public bound on the number of records that its delta was stated for: no release holds more."""
        return getattr(self, "n_rec", None)

    @property
    def name(self) -> str:
        """Return the mechanism's name, which is the name of its file."""
        return type(self).__module__.rpartition(".")[2]

    @property
    def publishable(self) -> bool:
        """Return True if a release of this mechanism may be published."""
        return self.mode == "strict"

    def configuration(self) -> dict[str, Any]:
        """Return everything that determines the output next to key, record and text; its hash is `cfg`.

        Specification: docs/spec/stream.md#configuration.
        """
        parameters = {
            name: _written(getattr(self, name))
            for name, field in type(self).model_fields.items()
            if name not in self.artifact_fields and (field.is_required() or getattr(self, name) != field.default)
        }
        return {
            "mechanism": self.name,
            "mechanism_version": self.version,
            "segmentation": _kernel.UNICODE_VERSION,
            **parameters,
            **{name: artifact.sha256 for name, artifact in self.artifacts().items()},
        }

    def cfg(self) -> str:
        """Return the configuration hash, 64 hex digits."""
        return hashlib.sha256(b"dptext/cfg/v1\0" + canon(self.configuration())).hexdigest()

    def artifacts(self) -> dict[str, Artifact]:
        """Return the public inputs that the output depends on, by role."""
        return {}

    def placed(self, artifacts: Mapping[str, Artifact]) -> Self:
        """Return the same mechanism with `artifacts` (by role) at their paths on this machine.

        Workers get artifacts that another machine built and verified. If a role is a field, the field becomes the
        artifact's path; any other artifact replaces the one that would be computed. Compare `cfg()` afterwards.
        """
        paths = {role: str(item.path) for role, item in artifacts.items() if role in type(self).model_fields}
        again = type(self)(**{**self.model_dump(), **paths})
        again.__dict__.update({role: item for role, item in artifacts.items() if role not in paths})
        return again

    def fetched(self, options: Mapping[str, str]) -> Self:  # noqa: ARG002  (mechanisms with remote inputs need it)
        """Return this mechanism with public inputs fetched from an object store, by a policy's `storage_options`."""
        return self

    @property
    def computing(self) -> Computing | None:
        """Return device and number type of its model on this machine; None if it has no model.

        A setting of the machine, never of a release: it enters no configuration.
        """
        return None

    def unit_of(self, draw: str) -> str:
        """Return what `epsilon` is the price of, by the name of what one draw releases."""
        return draw

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """Return the claim: class, disclosures, neighbors, unit."""

    @abstractmethod
    def spend(self, positions: int) -> Spend:
        """Return the cost of releasing one record with that many draws."""

    @property
    def refundable(self) -> bool:
        """Return True if a pure cap may be charged only for the draws that a release actually took.

        This is allowed only if the number of draws is a function of the released text, or of Bernoulli trials that do
        not depend on any text (docs/spec/privacy.md#expost). The guarantee of a record stays its worst case.
        """
        return False

    def spent(self, steps: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
        """Return the pure epsilon of that many draws per record, in millionths rounded up, shape (records,).

        It is used only if `refundable`, and is never more than `spend` of the record's positions.
        """
        each = exact(self.epsilon) * MICRO
        counts, where = np.unique(steps, return_inverse=True)
        return np.array([math.ceil(int(count) * each) for count in counts], dtype=np.int64)[where]

    @property
    def most_positions(self) -> int:
        """Return the draws of the longest text; every record reserves them if the length is not disclosed."""
        return self.n_max

    def worst_case(self, positions: int | None = None) -> Spend:
        """Return the cost to reserve before a text is scored: of `positions` draws, or of the longest text if None."""
        return self.spend(self.reserved_positions(self.most_positions if positions is None else positions))

    def reserved_positions(self, positions: int) -> int:
        """Return as how many draws a text of `positions` draws is reserved; `spend` of them is its worst case."""
        return positions

    @cached_property
    def known_costs(self) -> dict[int, tuple[int, tuple[int, ...]]]:
        """Return the costs found so far, by number of draws; `column` fills it, nothing else reads it."""
        return {}

    def draws(self, positions: int) -> Draws | None:  # noqa: ARG002  (mechanisms of such draws need it)
        """Return the range-bounded draws of a record with that many positions, or None if it has other draws as well.

        Only records of such draws alone compose by privacy loss distributions (docs/spec/privacy.md#br-pld).
        """
        return None

    @abstractmethod
    def positions(self, texts: pa.Array) -> pa.Array:
        """Count the draws that each text will take, uint32, without drawing; reservations use this."""

    @abstractmethod
    def release(self, texts: pa.Array, keys: RecordKeys) -> Released:
        """Release texts; a null stays null. The same key, record and text always give the same bytes."""

    def probe(self) -> None:
        """Compute on public texts, and refuse to go on where that fails; nothing where there is no model.

        Anyone who releases probes on a fixed schedule, before and after each part, whatever became of the texts: what
        fails on those is drawn uniformly and decides nothing (docs/spec/privacy.md#probe).

        Raises:
            PolicyError: The model fails on public texts.
        """

    def described(self) -> dict[str, dict[str, Any]]:
        """Return facts about one draw ("draw") or the noise ("noise"); word mechanisms have tables instead."""
        return {}

    def budget(self) -> list[dict[str, Any]]:
        """Return the parts of a record's epsilon where one budget is divided among its draws; otherwise none.

        Each says in words what it pays for ("pays"), and its epsilon ("epsilon").
        """
        return []

    def cost_factors(self, positions: int) -> dict[str, float | Fraction]:
        """Return the factors whose product is the declared epsilon of a text, by their symbols in the documentation.

        Args:
            positions: Draws of the text, at least 1.
        """
        return {"n": positions, "ε": exact(self.epsilon)}

    def out_of_vocabulary_chance(self) -> float:
        """Return an upper bound of the probability that a release holds one given out-of-vocabulary word of 20 letters.

        The bound is 0 if outputs are words of a fixed set. A mechanism that spells texts from pieces of words, or
        decodes them, may copy such a word from its input by chance; 1 means that no bound is known.
        """
        return 0.0 if self.guarantee.unit == "word" or self.output_words() is not None else 1.0

    def output_words(self) -> frozenset[str] | None:
        """Return the words that a released text can hold, or None if outputs are not words of a fixed set."""
        return None

    @classmethod
    def first_look(cls, given: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG003
        """Return parameters that a preview adds to the given ones, such as a model that this machine has.

        Raises:
            PolicyError: This machine lacks something that a preview needs; the hint says how to get it.
        """
        return {}

    @classmethod
    @abstractmethod
    def example(cls) -> Self:
        """Return a tiny instance that needs no download; contract tests and documentation run it."""


def _written(value: Any) -> Any:
    """Write a parameter in the form of the configuration; a float becomes its repr, which can be parsed back."""
    if isinstance(value, float):
        if not math.isfinite(value):
            msg = "parameters are finite"
            raise ValueError(msg)
        return repr(value)
    if isinstance(value, (frozenset, set)):
        return sorted(_written(item) for item in value)
    if isinstance(value, (list, tuple)):
        return [_written(item) for item in value]
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        named: frozenset[str] = getattr(value, "artifact_fields", frozenset())
        given = {name: getattr(value, name) for name in fields if name not in named}
        return {name: _written(item) for name, item in given.items() if item != fields[name].default}
    return value
