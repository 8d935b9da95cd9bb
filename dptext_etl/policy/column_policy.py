"""Define `ColumnPolicy`, the policy of one text column, and refuse entries that contradict each other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    FieldSerializationInfo,
    ModelWrapValidatorHandler,
    PlainSerializer,
    PrivateAttr,
    WithJsonSchema,
    field_serializer,
    field_validator,
    model_validator,
)

from dptext_etl import _kernel, catalog, keys
from dptext_etl.errors import DisclosureError, PolicyError
from dptext_etl.guarantee import DEFAULT_ALLOWED, Disclosure, GuaranteeClass
from dptext_etl.mechanism import Mechanism, PostProcess, chain
from dptext_etl.policy.terms import Checked, KeyReference, Name

PARTITION = "{partition}"

_IN_ORDER = PlainSerializer(sorted, return_type=list[str], when_used="json")
"""Sets of names vary in order by process: a policy is written in the same way by all."""
Allowed = Annotated[frozenset[Disclosure], _IN_ORDER]
Accepted = Annotated[frozenset[Literal[GuaranteeClass.UMLDP]], _IN_ORDER]
"""Classes without a finite bound that a policy can accept; NONE is not one of them."""


Built = Annotated[
    Mechanism,
    BeforeValidator(lambda value: catalog.build(value) if isinstance(value, Mapping) else value),
    WithJsonSchema({"additionalProperties": True, "title": "Mechanism", "type": "object"}),
]
"""A mechanism, or plain data that it is built from."""
Step = Annotated[
    PostProcess,
    BeforeValidator(lambda value: catalog.build_postprocess(value) if isinstance(value, Mapping) else value),
    WithJsonSchema({"additionalProperties": True, "title": "Post-processing", "type": "object"}),
]
"""A post-processing, or plain data that it is built from."""
INTERMEDIATE = "_intermediate"
"""Ends the name of the column that holds the mechanism's output, next to the post-processed text."""


Steps = Annotated[tuple[Step, ...], Field(exclude_if=lambda steps: not steps)]
KeepIntermediate = Annotated[bool, Field(exclude_if=lambda keep: not keep)]
"""Entries that are written, and so hashed, only where a column has them."""


def _require_steps(policy: ColumnPolicy | ColumnSpec) -> ColumnPolicy | ColumnSpec:
    if policy.keep_intermediate and not policy.postprocess:
        raise ValueError("keep_intermediate is for columns with postprocess: there is nothing else to keep")
    return policy


class ColumnPolicy(Checked):
    """Describe one text column completely, for every engine.

    Attributes:
        dataset: Name of the dataset; part of every key.
        column: Name of the column; None means the name of the root column of a Polars expression.
        release: Name of the release; it pins one configuration of the column.
        mechanism: A mechanism, or plain data such as `{"name": "custext", "epsilon": 2.0}`.
        key: Reference to the secret: "env:NAME", "file:PATH", or a reference of a plug-in (`key_providers`).
        allow: Allowed disclosures, in addition to length and nullness.
        accept_unbounded: Accepted guarantee classes without a finite epsilon, by name: "UMLDP".
        nonce: Number of a deliberate extra release; 0 unless you want a second sample of the same text.
        sql_function: Whether the column may be a SQL function whose callers choose the ids.
        postprocess: Post-processings, which rewrite released texts at no cost; only in runs.
        keep_intermediate: Also publish the mechanism's output, in its own column.

    Raises:
        DisclosureError: The mechanism discloses something that `allow` does not list, or its class has no finite
            epsilon and `accept_unbounded` does not name it.
    """

    what: ClassVar[str] = "column policy"

    dataset: Name
    column: Name | None
    release: Name
    mechanism: Built
    key: KeyReference = Field(repr=False)
    allow: Allowed = frozenset()
    accept_unbounded: Accepted = frozenset()
    nonce: Annotated[int, Field(ge=0, lt=2**64)] = 0
    sql_function: bool = True
    postprocess: Steps = ()
    keep_intermediate: KeepIntermediate = False
    _something_to_keep = model_validator(mode="after")(_require_steps)

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
        """Refuse disclosures without the policy's consent; the hint is the line to paste."""
        mechanism, claim = self.mechanism, self.mechanism.guarantee
        where = f"column {self.column!r}: " if self.column else ""
        missing = claim.disclosures - self.allow - DEFAULT_ALLOWED
        if missing:
            meanings = "; ".join(f"{item.value} ({item.meaning})" for item in sorted(missing))
            line = ", ".join(f'"{item.value}"' for item in sorted(missing | (self.allow - DEFAULT_ALLOWED)))
            msg = f"{where}{mechanism.name} discloses facts that the policy does not allow: {meanings}"
            raise DisclosureError(msg, f"to consent, write: allow = [{line}]")
        kind = claim.guarantee_class
        if kind is GuaranteeClass.UMLDP and kind not in self.accept_unbounded:
            msg = f"{where}{mechanism.name} has no finite epsilon here, class {kind.value}: {kind.meaning}"
            raise DisclosureError(msg, f'to accept this, write: accept_unbounded = ["{kind.value}"]')
        return self

    def _repr_html_(self) -> str:
        """Show the policy in a notebook, without the reference to its key."""
        from dptext_etl import markup

        about = {"column": self.column, "dataset": self.dataset, "release": self.release, "allow": self.allow}
        return markup.facts("column policy", about) + self.mechanism._repr_html_()

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
        """Return the key of (dataset, column, release, configuration of a post-processing).

        Args:
            step: The post-processing.

        Raises:
            KeyReferenceError: The key cannot be read.
        """
        return self._key_of(step.cfg())

    @property
    def chain(self) -> str | None:
        """Return the hash that names the post-processings in their order; None without any."""
        return chain(self.postprocess) if self.postprocess else None

    @property
    def named(self) -> str:
        """Return the name of the column.

        Raises:
            PolicyError: The column has no name.
        """
        if self.column is None:
            raise PolicyError("the policy names no column", "give ColumnPolicy(column=…)")
        return self.column

    def _key_of(self, cfg: str) -> _kernel.ReleaseKey:
        return _kernel.ReleaseKey(self.secret, self.dataset, self.named, self.release, cfg)


class ColumnSpec(Checked):
    """Describe one `[[column]]` of a policy file.

    Attributes:
        name: Name of the column.
        mechanism: Name and parameters of a mechanism; in Python also a mechanism.
        allow: Allowed disclosures, in addition to length and nullness.
        accept_unbounded: Accepted guarantee classes without a finite epsilon, by name: "UMLDP".
        postprocess: Names and parameters of post-processings, which rewrite released texts at no cost.
        keep_intermediate: Also publish the text before post-processing, in the column `NAME_intermediate`.
    """

    name: Name
    mechanism: Built
    allow: Allowed = frozenset()
    accept_unbounded: Accepted = frozenset()
    postprocess: Steps = ()
    keep_intermediate: KeepIntermediate = False
    _something_to_keep = model_validator(mode="after")(_require_steps)
    _input: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def intermediate(self) -> str | None:
        """Return the column of the texts before post-processing; None without one."""
        return f"{self.name}{INTERMEDIATE}" if self.keep_intermediate else None

    @model_validator(mode="wrap")
    @classmethod
    def _keep_input(cls, values: Any, build: ModelWrapValidatorHandler[Self]) -> Self:
        spec = build(values)
        if isinstance(values, Mapping):
            steps = zip(values.get("postprocess") or (), spec.postprocess, strict=True)
            spec._input = {  # noqa: SLF001  (its own class)
                "mechanism": _plain(values.get("mechanism"), spec.mechanism),
                "postprocess": [_plain(value, step) for value, step in steps],
            }
        return spec

    @field_serializer("mechanism", "postprocess")
    def _as_given(self, _: Any, info: FieldSerializationInfo) -> Any:
        return self._input[info.field_name]


def _plain(value: Any, built: Mechanism | PostProcess) -> dict[str, Any]:
    """Return plain data from which the same is built: the given data, or the name and the set parameters."""
    if isinstance(value, Mapping):
        return dict(value)
    return {"name": built.name, **built.model_dump(mode="json", exclude_unset=True)}
