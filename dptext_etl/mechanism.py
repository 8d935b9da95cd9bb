"""Define a mechanism: a small frozen description that turns a text and a key into a released text and its cost."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from dptext_etl import _kernel
from dptext_etl.accounting import Draws
from dptext_etl.artifacts import Artifact, canon
from dptext_etl.device import Computing
from dptext_etl.guarantee import MICRO, Guarantee, Spend, exact
from dptext_etl.keys import RecordKeys

PAD = "<PAD>"
"""The word that fills a text up to a fixed or noisy length: drawn like any word, released as nothing."""

Epsilon = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
Mode = Literal["strict", "faithful"]

DEFAULT_N_MAX = 10_000


class Released(NamedTuple):
    """What leaves a mechanism: as many rows as went in.

    Attributes:
        text: Released texts, large strings; null where the input was null and nullness is disclosed.
        positions: Draws that were charged per record, uint32, as `Mechanism.positions` says beforehand.
        steps: Draws really made per record, uint32, at most `positions` where each costs the same; only where the
            mechanism settles ex post (`Mechanism.refundable`), else None.
        failed: What the model failed on per record, uint32: draws that were uniform, or 1 for a whole record; None
            without a model. It stays inside the boundary and decides nothing (docs/spec/privacy.md#fail-closed).
    """

    text: pa.Array
    positions: pa.Array
    steps: pa.Array | None = None
    failed: pa.Array | None = None


class Mechanism(BaseModel, ABC):
    """Base of all mechanisms; its fields are its parameters, its file name is its name.

    A subclass in `dptext_etl/mechanisms/` is found by every engine, the command line, the documentation and the
    contract tests without being registered anywhere.

    Attributes:
        epsilon: The parameter; what it is per is said by `guarantee.unit`.
        mode: "strict": every row is a theorem. "faithful": a paper reproduced for benchmarks, never publishable.
        n_max: Longest text in words; what is longer is cut before anything else.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True)

    version: ClassVar[int] = 1
    """Version of the output's meaning: raised whenever equal inputs and keys would give other bytes."""
    reproducible: ClassVar[bool] = False
    """Whether equal keys, ids and texts give equal bytes on every machine. Where not (models), a run's first commit is
    the release, and replays are served from it."""
    accelerated: ClassVar[bool] = False
    """Whether its models run on a GPU where there is one: such runs take turns (Dagster's pools)."""
    shown_epsilons: ClassVar[tuple[float, ...]] = (0.5, 1.0, 2.0, 4.0, 8.0)
    """At which epsilons a preview shows it where none is given."""
    artifact_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields that name public inputs: the hash of what they name enters the configuration, not the name."""
    hub_fields: ClassVar[frozenset[str]] = frozenset()
    """Those of `artifact_fields` that may hold a name that looks like a path, as models on a hub have: a policy takes
    them for paths only where there is such a file. The others are paths where they have a slash or a suffix."""

    epsilon: Epsilon
    mode: Mode = "strict"
    n_max: PositiveInt = DEFAULT_N_MAX

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy, with other parameters if given: nothing that was derived from the old ones goes along."""
        copied = super().model_copy(update=update, deep=deep)
        if update:
            for name in copied.__dict__.keys() - type(self).model_fields.keys():
                del copied.__dict__[name]
        return copied

    def __getstate__(self) -> dict[Any, Any]:
        """Pickle parameters alone: what is derived from them is derived again."""
        state = super().__getstate__()
        fields = type(self).model_fields
        return {**state, "__dict__": {name: value for name, value in state["__dict__"].items() if name in fields}}

    @property
    def name(self) -> str:
        """The mechanism's name: that of its file."""
        return type(self).__module__.rpartition(".")[2]

    @property
    def publishable(self) -> bool:
        """Whether a release may leave the boundary."""
        return self.mode == "strict"

    def configuration(self) -> dict[str, Any]:
        """What fixes the output beside key, record and text (docs/spec/stream.md#configuration): hashed into `cfg`."""
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
        """Public inputs that the output depends on, by role."""
        return {}

    def placed(self, artifacts: Mapping[str, Artifact]) -> Self:
        """Return the same mechanism, its `artifacts` (by role) read from where they lie on this machine.

        Workers are given what another machine built and verified: a role that is a field becomes the artifact's path,
        any other one takes the place of what would be computed. Compare `cfg()` afterwards.
        """
        paths = {role: str(item.path) for role, item in artifacts.items() if role in type(self).model_fields}
        again = type(self)(**{**self.model_dump(), **paths})
        again.__dict__.update({role: item for role, item in artifacts.items() if role not in paths})
        return again

    @property
    def computing(self) -> Computing | None:
        """Where and in what its model computes on this machine; None where it has no model.

        A setting of the machine, never of a release: it enters no configuration.
        """
        return None

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """The claim: class, disclosures, neighbours, unit."""

    @abstractmethod
    def spend(self, positions: int) -> Spend:
        """The privacy map: what a release of one record with that many draws costs."""

    @property
    def refundable(self) -> bool:
        """Whether a release says how many draws it really took, so that a pure cap may be charged for those alone.

        True only where that number is a function of what is released or of Bernoulli trials that no text decides
        (docs/spec/privacy.md#expost). The guarantee of a record stays its worst case.
        """
        return False

    def spent(self, steps: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
        """Return the pure epsilon that so many draws used, in millionths rounded up, shape (records,).

        Only where `refundable`; never more than `spend` of the record's positions.
        """
        each = exact(self.epsilon) * MICRO
        counts, where = np.unique(steps, return_inverse=True)
        return np.array([math.ceil(int(count) * each) for count in counts], dtype=np.int64)[where]

    @property
    def most_positions(self) -> int:
        """Draws of the longest text: reserved for every record where the length is not disclosed."""
        return self.n_max

    def worst_case(self, positions: int | None = None) -> Spend:
        """What is reserved before a text is scored: `positions` draws where length is disclosed, else the most."""
        return self.spend(self.most_positions if positions is None else positions)

    def draws(self, positions: int) -> Draws | None:  # noqa: ARG002  (mechanisms of such draws need it)
        """Return the range-bounded draws of a record with that many positions, or None if it holds anything else.

        Only what consists of such draws alone composes by their privacy loss (docs/spec/privacy.md#br-pld).
        """
        return None

    @abstractmethod
    def positions(self, texts: pa.Array) -> pa.Array:
        """Count the draws that each text will take, uint32, without drawing (used to reserve)."""

    @abstractmethod
    def release(self, texts: pa.Array, keys: RecordKeys) -> Released:
        """Release texts; null in, null out. The same key, record and text always give the same bytes."""

    def probe(self) -> None:
        """Compute on public texts, and refuse to go on where that fails; nothing where there is no model.

        Whoever releases probes on a fixed schedule, before and after each part, whatever became of the texts: what
        fails on those is drawn uniformly and decides nothing (docs/spec/privacy.md#probe).

        Raises:
            PolicyError: The model fails on public texts.
        """

    def described(self) -> dict[str, dict[str, Any]]:
        """Facts about one draw ("draw") or about the noise ("noise") for people; none where words' tables say it."""
        return {}

    def cost_factors(self, positions: int) -> dict[str, float | Fraction]:
        """Return the factors whose product is the declared epsilon of a text, by the symbol that documentation uses.

        Args:
            positions: Draws of the text, 1 or more.
        """
        return {"n": positions, "ε": exact(self.epsilon)}

    def foreign_chance(self) -> float:
        """Return an upper bound of the probability that a release holds one given word of 20 letters that nobody knows.

        0 where outputs are words of a fixed set. What spells texts from pieces of words, or decodes them, may copy such
        a word from its input by chance; 1 where no bound is known.
        """
        return 0.0 if self.guarantee.unit == "word" or self.output_words() is not None else 1.0

    def output_words(self) -> frozenset[str] | None:
        """The words that a released text can hold, or None where outputs are not words of a fixed set."""
        return None

    @classmethod
    def first_look(cls, given: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG003
        """Return what a preview takes beside the parameters that are given: nothing, or what this machine has.

        Raises:
            PolicyError: What it needs is not on this machine; the hint says how to get it.
        """
        return {}

    @classmethod
    @abstractmethod
    def example(cls) -> Self:
        """A tiny instance that needs no download: contract tests and documentation run it."""


def _written(value: Any) -> Any:
    """Write a parameter as the configuration has it: floats as their repr, from which the value can be parsed back."""
    if isinstance(value, float):
        if not math.isfinite(value):
            msg = "parameters are finite"
            raise ValueError(msg)
        return repr(value)
    if isinstance(value, (frozenset, set)):
        return sorted(_written(item) for item in value)
    if isinstance(value, (list, tuple)):
        return [_written(item) for item in value]
    return value
