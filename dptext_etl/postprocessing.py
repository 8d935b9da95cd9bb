"""Define a post-processing: a small frozen description that turns released texts into other texts, at no cost.

A function of what is released already spends nothing, as long as nothing in it was made from the protected records: no
weight, no prompt, no length, no choice (docs/spec/privacy.md#rewrite-again). So a post-processing gets released texts
and keys that follow from them, and never a raw text.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, NamedTuple, Self

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from dptext_etl.artifacts import Artifact, canon
from dptext_etl.device import Computing
from dptext_etl.parameters import configuration_hash, parameters_alone, written_parameters

Provenance = Literal["public", "disjoint-records"]
"""What a post-processing may have learned from: public texts alone, or also records that are none of the release's."""
PURPOSE = 8  # purpose number of sampled post-processing (docs/spec/stream.md#purposes)


class Rewritten(NamedTuple):
    """The output of a post-processing, with as many rows as the input.

    Attributes:
        text: Texts, large strings; a null stays null.
        failed: True for rows on which the model failed: they stay as they were released.
    """

    text: pa.Array
    failed: pa.Array


class PostProcess(BaseModel, ABC):
    """Base of all post-processings; the fields are the parameters, and the file name is the name.

    A package names its subclasses as entry points (docs/extending.md); every policy and command finds them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True)
    __getstate__ = parameters_alone

    version: ClassVar[int] = 1
    """Version of the output: it is raised whenever equal inputs and keys would give other bytes."""
    reproducible: ClassVar[bool] = False
    """True if equal keys and texts give equal bytes on every machine; otherwise replays read what was staged first."""
    accelerated: ClassVar[bool] = False
    """True if its model uses a GPU when there is one; such runs take turns (Dagster's pools)."""
    artifact_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields that name public inputs; the hash of the named content enters the configuration, not the name."""
    hub_fields: ClassVar[frozenset[str]] = frozenset()
    """Those of `artifact_fields` whose names may look like paths, as names of models on a hub do."""
    unhashed: ClassVar[frozenset[str]] = frozenset()
    """Fields that no output depends on; they enter no configuration."""

    @property
    def name(self) -> str:
        """Return the name, which is the name of its file."""
        return type(self).__module__.rpartition(".")[2]

    def configuration(self) -> dict[str, Any]:
        """Return everything that determines the output next to key, record and released text; its hash is `cfg`."""
        return {
            "postprocess": self.name,
            "postprocess_version": self.version,
            **written_parameters(self, self.artifact_fields | self.unhashed),
            **{name: artifact.sha256 for name, artifact in self.artifacts().items()},
        }

    def cfg(self) -> str:
        """Return the configuration hash, 64 hex digits (docs/spec/stream.md#configuration-hash)."""
        return configuration_hash(self.configuration())

    def artifacts(self) -> dict[str, Artifact]:
        """Return the public inputs that the output depends on, by role."""
        return {}

    @property
    def computing(self) -> Computing | None:
        """Return device and number type of its model on this machine; None if it has no model."""
        return None

    @property
    def model_hash(self) -> str | None:
        """Return one hash over the files of its model, 64 hex digits; None if it has no model."""
        return None

    @property
    @abstractmethod
    def provenance(self) -> Provenance | None:
        """Return what it learned from, as declared; None if no one declared it."""

    @property
    def learnt_for(self) -> str | None:
        """Return the configuration hash of the mechanism whose releases it learned from; None if that is not stated."""
        return None

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
        """Return an upper bound of the probability that a text of its own holds one given word of 20 random letters.

        The word is independent of what is rewritten. The words of canary rows are, wherever a mechanism does not spell.
        """

    def probe(self) -> None:
        """Compute on public texts, and refuse to go on where that fails; nothing where there is no model.

        Raises:
            PolicyError: The model fails on public texts.
        """

    @classmethod
    @abstractmethod
    def example(cls) -> Self:
        """Return a tiny instance that needs no download."""


def chain(steps: tuple[PostProcess, ...]) -> str:
    """Return the hash that names the post-processings of a column in their order, 64 hex digits."""
    return hashlib.sha256(b"dptext/post/v1\0" + canon([step.cfg() for step in steps])).hexdigest()
