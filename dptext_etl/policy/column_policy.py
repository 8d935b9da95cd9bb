"""Define `ColumnPolicy`, the policy of one text column in every engine, and `ColumnSpec`, its part of a policy file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    WithJsonSchema,
    field_serializer,
    field_validator,
    model_validator,
)

from dptext_etl import _kernel, catalog, keys
from dptext_etl.errors import PolicyError
from dptext_etl.guarantee import Disclosure
from dptext_etl.mechanism import Mechanism
from dptext_etl.policy.checked import Checked, KeyReference, Name
from dptext_etl.policy.consent import Accepted, require_acceptance, require_consent

RENAMED = {"accept": "accept_unbounded"}


def _built(value: Any) -> Any:
    return catalog.build(value) if isinstance(value, Mapping) else value


Built = Annotated[Mechanism, BeforeValidator(_built)]
"""A mechanism, or plain data that it is built from."""
Written = Annotated[Built, WithJsonSchema({"additionalProperties": True, "title": "Mechanism", "type": "object"})]
"""The same type, which the JSON Schema describes as plain data."""


class ColumnPolicy(Checked):
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
    allow: frozenset[Disclosure] = frozenset()
    accept_unbounded: Accepted = frozenset()
    nonce: Annotated[int, Field(ge=0, lt=2**64)] = 0
    sql_function: bool = True

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

    @property
    def secret(self) -> _kernel.Secret:
        """Return the secret that `key` names; a process resolves it once."""
        return keys.resolve(self.key)

    def release_key(self) -> _kernel.ReleaseKey:
        """Return the key of (dataset, column, release, configuration).

        Raises:
            PolicyError: The column has no name.
        """
        if self.column is None:
            raise PolicyError("the policy names no column", "give ColumnPolicy(column=…)")
        return _kernel.ReleaseKey(self.secret, self.dataset, self.column, self.release, self.mechanism.cfg())


class ColumnSpec(Checked):
    """Describe one `[[column]]` of a policy file.

    Attributes:
        name: Name of the column.
        mechanism: Name and parameters of a mechanism; in Python also a mechanism. It is written as it was given.
        allow: Allowed disclosures, in addition to length and nullness.
        accept_unbounded: Accepted guarantee classes without a finite epsilon, by name: "UMLDP".
    """

    renamed: ClassVar[Mapping[str, str]] = RENAMED

    name: Name
    mechanism: Written
    allow: frozenset[Disclosure] = frozenset()
    accept_unbounded: Accepted = frozenset()
    _given: dict[str, Any] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _keep_what_was_given(cls, values: Any, build: ModelWrapValidatorHandler[Self]) -> Self:
        made = build(values)
        if isinstance(values, Mapping):
            given = values.get("mechanism")
            written = dict(given) if isinstance(given, Mapping) else _described(made.mechanism)
            made._given = written  # noqa: SLF001  (its own class)
        return made

    @field_serializer("mechanism")
    def _written(self, _: Mechanism) -> dict[str, Any]:
        """Write the mechanism as it was given."""
        return self._given


def _described(mechanism: Mechanism) -> dict[str, Any]:
    """Return plain data from which the same mechanism is built: its name and the parameters that were set."""
    return {"name": mechanism.name, **mechanism.model_dump(mode="json", exclude_unset=True)}
