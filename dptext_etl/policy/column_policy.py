"""Define `ColumnPolicy`, the policy of one text column in every engine, and `ColumnSpec`, its part of a policy file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import (
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)

from dptext_etl import _kernel, catalog, html_output, keys
from dptext_etl.errors import PolicyError
from dptext_etl.mechanism import Mechanism
from dptext_etl.policy.checked import Checked, KeyReference, Name
from dptext_etl.policy.consent import Accepted, Allowed, require_acceptance, require_consent
from dptext_etl.postprocessing import PostProcess, chain

RENAMED = {"accept": "accept_unbounded"}


def _built(value: Any) -> Any:
    return catalog.build(value) if isinstance(value, Mapping) else value


Built = Annotated[Mechanism, BeforeValidator(_built)]
"""A mechanism, or plain data that it is built from."""
Written = Annotated[Built, WithJsonSchema({"additionalProperties": True, "title": "Mechanism", "type": "object"})]
"""The same type, which the JSON Schema describes as plain data."""


def _built_step(value: Any) -> Any:
    return catalog.build_postprocess(value) if isinstance(value, Mapping) else value


Step = Annotated[PostProcess, BeforeValidator(_built_step)]
"""A post-processing, or plain data that it is built from."""
WrittenStep = Annotated[
    Step, WithJsonSchema({"additionalProperties": True, "title": "Post-processing", "type": "object"})
]
"""The same type, which the JSON Schema describes as plain data."""
INTERMEDIATE = "_intermediate"
"""Ends the name of the column that holds what a mechanism released, next to what post-processing made of it."""
_LATER: Mapping[str, Any] = {"postprocess": (), "keep_intermediate": False}
"""Entries that came later; with these values they are not written, so older policies keep the hashes that they had."""


class _Rewritable(Checked):
    """Check and write what both descriptions of a text column say of post-processing."""

    if TYPE_CHECKING:
        postprocess: tuple[PostProcess, ...]
        keep_intermediate: bool

    @model_validator(mode="after")
    def _something_to_keep(self) -> Self:
        if self.keep_intermediate and not self.postprocess:
            msg = "keep_intermediate is for columns with postprocess: there is nothing else to keep"
            raise ValueError(msg)
        return self

    @model_serializer(mode="wrap")
    def _without_what_came_later(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the entries of post-processing where there is none."""
        said: dict[str, Any] = write(self)
        return {
            name: value for name, value in said.items() if name not in _LATER or getattr(self, name) != _LATER[name]
        }


class ColumnPolicy(_Rewritable):
    """Describe one text column completely, for every engine.

    Attributes:
        dataset: Name of the dataset; part of every key.
        column: Name of the column; None lets a Polars expression take the name of its root column.
        release: Name of the release; it pins one configuration of the column.
        mechanism: A mechanism, or plain data such as `{"name": "custext", "epsilon": 2.0}`.
        key: Reference to the secret: "env:NAME", "file:PATH", or that of a plug-in (`key_providers`).
        allow: Allowed disclosures, in addition to length and nullness.
        accept_unbounded: Accepted guarantee classes without a finite epsilon, by name: "UMLDP".
        nonce: Number of a deliberate extra release; 0 unless you want a second sample of the same text.
        sql_function: Whether the column may be a SQL function whose callers choose the ids.
        postprocess: Post-processings, which rewrite what the mechanism released, at no cost; in runs alone.
        keep_intermediate: Publish what the mechanism released as well, in a column of its own.

    Raises:
        DisclosureError: The mechanism discloses something that `allow` does not list, or its class has no finite
            epsilon and `accept_unbounded` does not name it.
    """

    what: ClassVar[str] = "column policy"
    renamed: ClassVar[Mapping[str, str]] = RENAMED

    dataset: Name
    column: Name | None
    release: Name
    mechanism: Built
    key: KeyReference = Field(repr=False)
    allow: Allowed = frozenset()
    accept_unbounded: Accepted = frozenset()
    nonce: Annotated[int, Field(ge=0, lt=2**64)] = 0
    sql_function: bool = True
    postprocess: tuple[Step, ...] = ()
    keep_intermediate: bool = False

    def __init__(self, /, **values: Any) -> None:
        with self.checking():
            super().__init__(**values)

    @field_validator("key")
    @classmethod
    def _from_here(cls, key: str) -> str:
        """Make the path of a key file absolute, so that it does not depend on the working folder."""
        return f"file:{Path(key.removeprefix('file:')).absolute()}" if key.startswith("file:") else key

    @model_validator(mode="after")
    def _consented(self) -> Self:
        require_consent(self.mechanism, self.allow, self.column)
        require_acceptance(self.mechanism, self.accept_unbounded, self.column)
        return self

    def _repr_html_(self) -> str:
        """Show the policy in a notebook, without the reference to its key."""
        about = {"column": self.column, "dataset": self.dataset, "release": self.release, "allow": self.allow}
        return html_output.facts("column policy", about) + self.mechanism._repr_html_()

    @property
    def secret(self) -> _kernel.Secret:
        """Return the secret that `key` names; a process resolves it once."""
        return keys.resolve(self.key)

    def release_key(self) -> _kernel.ReleaseKey:
        """Return the key of (dataset, column, release, configuration).

        Raises:
            PolicyError: The column has no name.
        """
        return self._key_of(self.mechanism.cfg())

    def step_key(self, step: PostProcess) -> _kernel.ReleaseKey:
        """Return the key of (dataset, column, release, configuration of a post-processing)."""
        return self._key_of(step.cfg())

    @property
    def chain(self) -> str | None:
        """Return the hash that names the post-processings in their order; None without any."""
        return chain(self.postprocess) if self.postprocess else None

    def _key_of(self, cfg: str) -> _kernel.ReleaseKey:
        if self.column is None:
            raise PolicyError("the policy names no column", "give ColumnPolicy(column=…)")
        return _kernel.ReleaseKey(self.secret, self.dataset, self.column, self.release, cfg)


class ColumnSpec(_Rewritable):
    """Describe one `[[column]]` of a policy file.

    Attributes:
        name: Name of the column.
        mechanism: Name and parameters of a mechanism; in Python also a mechanism. It is written as it was given.
        allow: Allowed disclosures, in addition to length and nullness.
        accept_unbounded: Accepted guarantee classes without a finite epsilon, by name: "UMLDP".
        postprocess: Names and parameters of post-processings, which rewrite what the mechanism released, at no cost.
        keep_intermediate: Publish what the mechanism released as well, in the column `NAME_intermediate`.
    """

    renamed: ClassVar[Mapping[str, str]] = RENAMED

    name: Name
    mechanism: Written
    allow: Allowed = frozenset()
    accept_unbounded: Accepted = frozenset()
    postprocess: tuple[WrittenStep, ...] = ()
    keep_intermediate: bool = False
    _given: dict[str, Any] = PrivateAttr(default_factory=dict)
    _given_steps: list[dict[str, Any]] = PrivateAttr(default_factory=list)

    @property
    def intermediate(self) -> str | None:
        """Return the column that holds what the mechanism released next to what was made of it; None without one."""
        return f"{self.name}{INTERMEDIATE}" if self.keep_intermediate else None

    @model_validator(mode="wrap")
    @classmethod
    def _keep_what_was_given(cls, values: Any, build: ModelWrapValidatorHandler[Self]) -> Self:
        made = build(values)
        if isinstance(values, Mapping):
            given = values.get("mechanism")
            written = dict(given) if isinstance(given, Mapping) else _described(made.mechanism)
            made._given = written  # noqa: SLF001  (its own class)
            steps = zip(values.get("postprocess") or (), made.postprocess, strict=True)
            made._given_steps = [  # noqa: SLF001
                dict(given) if isinstance(given, Mapping) else _described(step) for given, step in steps
            ]
        return made

    @field_serializer("mechanism")
    def _written(self, _: Mechanism) -> dict[str, Any]:
        """Write the mechanism as it was given."""
        return self._given

    @field_serializer("postprocess")
    def _written_steps(self, _: tuple[PostProcess, ...]) -> list[dict[str, Any]]:
        """Write the post-processings as they were given."""
        return self._given_steps


def _described(made: Mechanism | PostProcess) -> dict[str, Any]:
    """Return plain data from which the same is built: its name and the parameters that were set."""
    return {"name": made.name, **made.model_dump(mode="json", exclude_unset=True)}
