"""Define `ColumnPolicy`, the policy of one text column, and refuse entries that contradict each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

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

from dptext_etl import _kernel, catalog, html_output, keys
from dptext_etl.accounting import is_finite
from dptext_etl.errors import DisclosureError, PolicyError
from dptext_etl.families.choice import COUNT, OTHER, ChoiceMechanism, Unlinked
from dptext_etl.guarantee import DEFAULT_ALLOWED, Disclosure, GuaranteeClass
from dptext_etl.mechanism import Mechanism, PostProcess, chain
from dptext_etl.policy.synthetic import Synthetic
from dptext_etl.policy.terms import Checked, KeyReference, Name

if TYPE_CHECKING:
    from dptext_etl.policy.dataset_policy import Policy


PARTITION = "{partition}"
_FILES = frozenset({".parquet", ".csv", ".ndjson", ".jsonl"})
_APPROXIMATE = frozenset({GuaranteeClass.APPROX_LDP, GuaranteeClass.COND_APPROX})


def _refuse(problems: Iterable[tuple[bool, str]], where: str = "") -> None:
    for present, problem in problems:
        if present:
            raise ValueError(where + problem)


def require_consistent(policy: Policy) -> None:
    synthetic, record, cap = policy.synthetic, policy.unit == "record", policy.cap
    names = policy.text_columns if synthetic is None else synthetic.columns
    roles = [
        *names,
        policy.id,
        *policy.kept_columns,
        *(item.intermediate for item in policy.columns if item.intermediate),
    ]
    no_subject = 'no subject column: name it with `subject = "user_id"`, or declare `unit = "record"`'
    kinds = "name text columns in entries [[column]], or one in a table [synthetic]; a policy has either of them"
    null_subject = 'on_null_subject is about subjects, and unit = "record" has none'
    own = 'on_null_subject = "own" cannot bound what a person has in an [unlinked] or [synthetic] release'
    table = "on_changed is about records: an [unlinked] or [synthetic] release is one table, whole"
    adds = f'on_changed = "{policy.on_changed}" takes records out of what is published; an incremental run only adds, '
    adds += "and incremental = false publishes every row again, at no cost where its text is the same"
    types = "csv.types names columns of keep; ids, subjects, and texts of CSV files are strings"
    subject = 'subject must be another column than id and text columns; where every record is a unit: unit = "record"'
    two = "a column has two roles: text columns, what they keep as NAME_intermediate, id and keep must differ"
    copies = 'copy_gate_false_alarm needs a cap of measure "approx": the bound is charged as delta'
    most = "[unlinked] and [synthetic] have their own per_subject: write it there"
    most = 'per_subject limits the rows of a subject, and unit = "record" has none' if record else most
    whole = 'per_subject needs a source with all rows of a person; with deletions = "keep" it may lack published ones'
    problems = [
        (not record and policy.subject is None, no_subject),
        (policy.per_subject is not None and (record or policy.one_table), most),
        (policy.per_subject is not None and policy.incremental and policy.deletions == "keep", whole),
        (record and bool(policy.normalize), 'normalize spells subjects, and unit = "record" has none'),
        ((synthetic is None) != bool(policy.columns), kinds),
        (record and policy.on_null_subject != "refuse", null_subject),
        (policy.one_table and policy.on_null_subject == "own", own),
        (policy.one_table and policy.on_changed != "refuse", table),
        (policy.incremental and policy.discloses_changes, adds),
        (bool(policy.csv.types.keys() - {*policy.kept_columns} | policy.csv.types.keys() & {policy.subject}), types),
    ]
    _refuse(problems)
    if synthetic is not None:
        _require_synthetic(policy, synthetic)
    if policy.table is not None:
        _require_table(policy)
    partition = (PARTITION in policy.source) != (PARTITION in policy.sink)
    coarse = {item.column for item in policy.kept if item.rule} & {policy.subject}
    problems = [
        (policy.subject in {policy.id, *names}, subject),
        (bool(coarse), "keep coarsens the subject: name another column, or keep it unchanged"),
        (len(set(roles)) < len(roles), two),
        (partition, f"{PARTITION} must be in both source and sink, or in neither"),
        (policy.copy_gate_false_alarm is not None and (cap is None or cap.measure != "approx"), copies),
    ]
    _refuse(problems)


def _require_table(policy: Policy) -> None:
    """Refuse a sink that names files of another format."""
    suffix = PurePosixPath(policy.sink.rstrip("/")).suffix.lower()
    name = None if policy.table is None else policy.table.name
    other = name is not None and (PARTITION in name) != (PARTITION in policy.sink)
    problems = [
        (suffix in _FILES, f"sink is the folder of the table, got a name that ends with {suffix}"),
        (other, f"{PARTITION} must be in both name and sink, or in neither"),
    ]
    _refuse(problems, "[table]: ")


def require_fit(policy: Policy, column: ColumnPolicy) -> None:
    """Refuse a mechanism that cannot be published as the policy asks, or whose spends its cap cannot hold."""
    mechanism, cap, where = column.mechanism, policy.cap, f"column {column.column!r}: "
    kind = mechanism.guarantee.guarantee_class
    if policy.publish and mechanism.mode != "strict":
        msg = f"{where}a {mechanism.mode} mechanism is for benchmarks; set publish = false"
        raise ValueError(msg)
    pure = cap is not None and cap.measure == "pure"
    if pure and kind in _APPROXIMATE and not is_finite(mechanism.spend(1), "pure"):
        msg = (
            f"{where}{mechanism.name} has a delta, class {kind.value}: no cap on pure epsilon can hold it; write cap = "
        )
        msg += '{ measure = "approx", epsilon = …, delta = … }, or measure = "zcdp" with rho, which adds up better'
        raise ValueError(msg)
    if cap is not None and kind is GuaranteeClass.UMLDP:
        msg = f"{where}{mechanism.name} costs an infinite amount on every measure, class UMLDP: "
        msg += "no cap can hold it; put it into a dataset of its own, without a cap"
        raise ValueError(msg)
    if policy.discloses_changes:
        _require_changes(policy, column)


def _require_changes(policy: Policy, column: ColumnPolicy) -> None:
    """Refuse to show which texts changed without consent, and second draws that another machine could not repeat.

    Specification: docs/spec/privacy.md#release-again.
    """
    if Disclosure.CHANGED not in column.allow:
        line = ", ".join(f'"{item.value}"' for item in sorted((column.allow | {Disclosure.CHANGED}) - DEFAULT_ALLOWED))
        msg = f'column {column.column!r}: on_changed = "{policy.on_changed}" discloses {Disclosure.CHANGED.meaning}; '
        raise ValueError(f'{msg}to consent, write: allow = [{line}]; on_changed = "keep" discloses nothing')
    if policy.on_changed == "release_again" and not column.mechanism.reproducible:
        msg = f'column {column.column!r}: on_changed = "release_again" needs a mechanism that gives the same bytes '
        msg += f"again, and a model such as {column.mechanism.name} may not: where a text comes back to what it was, "
        raise ValueError(f'{msg}its draw is repeated; write "keep", or take a new release name')


def require_unlinkable(policy: Policy, mechanism: Mechanism, unlinked: Unlinked) -> None:
    """Refuse a policy whose published multiset would link texts to records, or would have no central bound."""
    names, choice = [item.name for item in policy.columns], isinstance(mechanism, ChoiceMechanism)
    labels = unlinked.labels
    published = names if labels is None else [*names, labels.column]
    drawn = isinstance(mechanism, ChoiceMechanism) and mechanism.null_as_empty
    problems = [
        (not choice, f"the bound is that of surrogate; {mechanism.name} is released row by row"),
        (len(names) > 1, "an unlinked release has one text column: give each column a policy of its own"),
        (COUNT in published, f'other columns must not be called "{COUNT}", which is a column of the form "counts"'),
        (bool(policy.keep), "keep must be empty: other columns would link texts to records; labels names public ones"),
        (
            labels is not None and drawn and OTHER not in labels.values,
            f'null_as_empty draws a text for every record: labels.values must list "{OTHER}"',
        ),
        (policy.ids != "keep", "leave out ids: no ids are published"),
        (policy.incremental, "incremental must be false: a release is one batch; new rows take a new release name"),
        (PARTITION in policy.source, "a release is one batch: give each partition a release name of its own"),
        (policy.copy_gate_false_alarm is not None, "leave out copy_gate_false_alarm: it counts draws by record"),
        (any(item.postprocess for item in policy.columns), "leave out postprocess"),
        (policy.unit == "record" and unlinked.per_subject > 1, 'per_subject is for unit = "subject"'),
        (
            isinstance(mechanism, ChoiceMechanism) and mechanism.has_model,
            "the corpus needs the encoder `words` or `task`: what a model computes may depend on other texts",
        ),
    ]
    _refuse(problems, "[unlinked]: ")


def _require_synthetic(policy: Policy, synthetic: Synthetic) -> None:
    """Refuse entries that a synthetic table has no use for, and a cap that cannot hold its charges."""
    pure = policy.cap is not None and policy.cap.measure == "pure"
    problems = [
        (bool(policy.kept_columns), "keep must be empty: its rows are public texts, which have no other columns"),
        (policy.ids != "keep", "leave out ids: no ids are published"),
        (policy.incremental, "incremental must be false: a release is one table; new rows take a new release name"),
        (PARTITION in policy.source, "a release is one table: give each partition a release name of its own"),
        (policy.copy_gate_false_alarm is not None, "leave out copy_gate_false_alarm: no text of a record is released"),
        (bool(policy.reports), "leave out reports: no text of a record is released"),
        (policy.unlinked is not None, "leave out [unlinked]: a policy publishes either of them"),
        (pure, 'a discrete Gaussian has no pure epsilon: a cap of measure "zcdp" or "approx" counts it'),
        (policy.unit == "record" and synthetic.per_subject > 1, 'per_subject is for unit = "subject"'),
    ]
    _refuse(problems, "[synthetic]: ")


def require_ids(policy: Policy) -> None:
    """Refuse a policy whose published table does not say whose rows it holds."""
    if policy.ids != "keep":
        msg = f"with ids = {policy.ids!r} a published table does not say whose rows these are"
        raise PolicyError(msg, "`dptext check POLICY` judges it, with the list of ids in staging")


_IN_ORDER = PlainSerializer(sorted, return_type=list[str], when_used="json")
"""Sets of names vary in order by process: a policy is written in the same way by all."""
Allowed = Annotated[frozenset[Disclosure], _IN_ORDER]
Accepted = Annotated[frozenset[Literal[GuaranteeClass.UMLDP]], _IN_ORDER]
"""Classes without a finite bound that a policy can accept; NONE is not one of them."""


def _build(value: Any) -> Any:
    return catalog.build(value) if isinstance(value, Mapping) else value


def _build_step(value: Any) -> Any:
    return catalog.build_postprocess(value) if isinstance(value, Mapping) else value


Built = Annotated[
    Mechanism,
    BeforeValidator(_build),
    WithJsonSchema({"additionalProperties": True, "title": "Mechanism", "type": "object"}),
]
"""A mechanism, or plain data that it is built from."""
Step = Annotated[
    PostProcess,
    BeforeValidator(_build_step),
    WithJsonSchema({"additionalProperties": True, "title": "Post-processing", "type": "object"}),
]
"""A post-processing, or plain data that it is built from."""
INTERMEDIATE = "_intermediate"
"""Ends the name of the column that holds what a mechanism released, next to what post-processing made of it."""


Steps = Annotated[tuple[Step, ...], Field(exclude_if=lambda steps: not steps)]
KeepIntermediate = Annotated[bool, Field(exclude_if=lambda keep: not keep)]
"""Entries that are written, and so hashed, only where a column has them."""


def _require_steps(policy: ColumnPolicy | ColumnSpec) -> ColumnPolicy | ColumnSpec:
    if policy.keep_intermediate and not policy.postprocess:
        msg = "keep_intermediate is for columns with postprocess: there is nothing else to keep"
        raise ValueError(msg)
    return policy


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
        postprocess: Post-processings, which rewrite what the mechanism released, at no cost; in runs alone.
        keep_intermediate: Publish what the mechanism released as well, in a column of its own.

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
        """Refuse what the policy does not consent to; the hint is the line to paste."""
        mechanism, claim = self.mechanism, self.mechanism.guarantee
        where = f"column {self.column!r}: " if self.column else ""
        missing = claim.disclosures - self.allow - DEFAULT_ALLOWED
        if missing:
            meanings = "; ".join(f"{item.value} ({item.meaning})" for item in sorted(missing))
            line = ", ".join(f'"{item.value}"' for item in sorted(missing | (self.allow - DEFAULT_ALLOWED)))
            msg = f"{where}{mechanism.name} discloses what the policy does not allow: {meanings}"
            raise DisclosureError(msg, f"to consent, write: allow = [{line}]")
        kind = claim.guarantee_class
        if kind is GuaranteeClass.UMLDP and kind not in self.accept_unbounded:
            msg = f"{where}{mechanism.name} has no finite epsilon here, class {kind.value}: {kind.meaning}"
            raise DisclosureError(msg, f'to accept this, write: accept_unbounded = ["{kind.value}"]')
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
        mechanism: Name and parameters of a mechanism; in Python also a mechanism. It is written as it was given.
        allow: Allowed disclosures, in addition to length and nullness.
        accept_unbounded: Accepted guarantee classes without a finite epsilon, by name: "UMLDP".
        postprocess: Names and parameters of post-processings, which rewrite what the mechanism released, at no cost.
        keep_intermediate: Publish what the mechanism released as well, in the column `NAME_intermediate`.
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
        """Return the column that holds what the mechanism released next to what was made of it; None without one."""
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
    """Return plain data from which the same is built: what was given, or the name and the parameters that were set."""
    if isinstance(value, Mapping):
        return dict(value)
    return {"name": built.name, **built.model_dump(mode="json", exclude_unset=True)}
