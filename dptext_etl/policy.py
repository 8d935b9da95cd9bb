"""What is to be done, as data: `ColumnPolicy` says everything about a column, `Policy` about a dataset (TOML).

A policy holds references to keys, never keys, and can be printed, logged and sent anywhere.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveInt,
    field_validator,
    model_validator,
)

from dptext_etl import _kernel, catalog, keys
from dptext_etl.errors import DisclosureError, PolicyError
from dptext_etl.guarantee import DEFAULT_ALLOWED, Disclosure, GuaranteeClass
from dptext_etl.mechanism import Mechanism
from dptext_etl.validation import validated

Name = Annotated[str, Field(min_length=1, max_length=200)]
PARTITION = "{partition}"
Accepted = frozenset[Literal[GuaranteeClass.UMLDP]]
"""Classes without a finite bound that a policy can take knowingly; NONE is not among them."""


KeyReference = Annotated[str, BeforeValidator(keys.reference)]
"""The name of a key; a key itself is refused where a policy is built, so that none can be printed or sent with it."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @classmethod
    def model_construct(cls, _fields_set: set[str] | None = None, **values: Any) -> Self:  # type: ignore[override]
        """Check like any other way to make one: what is printed and sent is never built unchecked.

        Raises:
            PolicyError: Unknown entries, or values out of range.
        """
        with validated("policy", _entries(cls)):
            return cls.model_validate(values)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy, with other entries if given: they are checked as those of a new policy are.

        Raises:
            PolicyError: Unknown entries, or values out of range.
        """
        if not update:
            return super().model_copy(deep=deep)
        known = type(self).model_fields
        entries = {**{name: getattr(self, name) for name in self.model_fields_set}, **update}
        with validated("policy", _entries(type(self))):
            return type(self).model_validate(
                {(known[name].alias or name) if name in known else name: value for name, value in entries.items()}
            )


class ColumnPolicy(_Model):
    """Everything about one text column, in every engine.

    Attributes:
        dataset: Name of the dataset; part of every key.
        column: Name of the column; None lets a Polars expression take its own root column's name.
        release: Name of the release; it pins one configuration of the column.
        mechanism: A mechanism, or plain data such as `{"name": "custext", "epsilon": 2.0}`.
        key: Reference to the secret: "env:NAME" or "file:PATH".
        allow: Disclosures consented to, beside length and nullness.
        accept: Guarantee classes without a finite epsilon that are consented to by name: "UMLDP".
        nonce: Counts deliberate extra releases; 0 unless a second sample of the same text is wanted.

    Raises:
        DisclosureError: The mechanism discloses something that `allow` does not list, or its class has no finite
            epsilon and `accept` does not name it.
    """

    dataset: Name
    column: Name | None
    release: Name
    mechanism: Mechanism
    key: KeyReference = Field(repr=False)
    allow: frozenset[Disclosure] = frozenset()
    accept: Accepted = frozenset()
    nonce: Annotated[int, Field(ge=0, lt=2**64)] = 0

    def __init__(self, **values: Any) -> None:
        with validated("column policy", _entries(type(self))):
            super().__init__(**values)

    @field_validator("mechanism", mode="before")
    @classmethod
    def _build(cls, value: Any) -> Any:
        return catalog.build(value) if isinstance(value, Mapping) else value

    @field_validator("key")
    @classmethod
    def _from_here(cls, key: str) -> str:
        """What a path names stays the same in any working folder."""
        return f"file:{Path(key.removeprefix('file:')).absolute()}" if key.startswith("file:") else key

    @model_validator(mode="after")
    def _consented(self) -> Self:
        require_consent(self.mechanism, self.allow, self.column)
        require_acceptance(self.mechanism, self.accept, self.column)
        return self

    @property
    def secret(self) -> _kernel.Secret:
        """The secret behind `key`, resolved once per process."""
        return keys.resolve(self.key)

    def release_key(self) -> _kernel.ReleaseKey:
        """Return the key of (dataset, column, release, configuration).

        Raises:
            PolicyError: The column has no name.
        """
        if self.column is None:
            raise PolicyError("the policy names no column", "give ColumnPolicy(column=…)")
        return _kernel.ReleaseKey(self.secret, self.dataset, self.column, self.release, self.mechanism.cfg())


def require_consent(mechanism: Mechanism, allow: frozenset[Disclosure], column: str | None) -> None:
    """Refuse a mechanism that discloses more than is allowed; the refusal prints the line to paste.

    Raises:
        DisclosureError: Disclosures beyond `allow`, length and nullness.
    """
    missing = mechanism.guarantee.disclosures - allow - DEFAULT_ALLOWED
    if missing:
        said = "; ".join(f"{item.value} ({item.meaning})" for item in sorted(missing))
        line = ", ".join(f'"{item.value}"' for item in sorted(missing | (allow - DEFAULT_ALLOWED)))
        where = f"column {column!r}: " if column else ""
        msg = f"{where}{mechanism.name} discloses what the policy does not allow: {said}"
        raise DisclosureError(msg, f"to consent, write: allow = [{line}]")


def require_acceptance(mechanism: Mechanism, accept: frozenset[GuaranteeClass], column: str | None) -> None:
    """Refuse a mechanism whose class bounds nothing unless that class is accepted by name; the line to paste is said.

    Raises:
        DisclosureError: Class UMLDP, not in `accept`.
    """
    kind = mechanism.guarantee.guarantee_class
    if kind is GuaranteeClass.UMLDP and kind not in accept:
        where = f"column {column!r}: " if column else ""
        msg = f"{where}{mechanism.name} has no finite epsilon here, class {kind.value}: {kind.meaning}"
        raise DisclosureError(msg, f'to take it as it is, write: accept = ["{kind.value}"]')


class ColumnSpec(_Model):
    """One `[[column]]` of a policy file."""

    name: Name
    mechanism: dict[str, Any]
    allow: frozenset[Disclosure] = frozenset()
    accept: Accepted = frozenset()


class LedgerSpec(_Model):
    """Where the ledger is and under which key its ids are stored.

    Attributes:
        url: "sqlite:///PATH", a path, "postgresql://HOST/DATABASE", or "env:NAME", the variable that holds the URL: a
            policy is printed, so it holds no password.
        id_key: Reference to the key of the ids; the file beside a SQLite ledger if absent.
    """

    url: str
    id_key: KeyReference | None = None

    @field_validator("url")
    @classmethod
    def _no_password(cls, url: str) -> str:
        if "://" in url and urlsplit(url).password is not None:
            msg = 'the URL holds a password; put it into a variable and name that: url = "env:DPTEXT_LEDGER_SECRET_URL"'
            raise ValueError(msg)
        return url


class Cap(_Model):
    """The most that a unit may lose in a scope: (dataset or group, period), never the release.

    Attributes:
        measure: "pure" adds epsilons; "zcdp" adds rho; "approx" adds (epsilon, delta).
        epsilon: The cap, for "pure" and "approx".
        rho: The cap, for "zcdp".
        delta: The cap's delta, for "approx".
        period: Name of the period that the cap covers, such as "2026".
        group: Name shared by datasets whose spends add up; the dataset itself if absent.
    """

    measure: Literal["pure", "zcdp", "approx"] = "pure"
    epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    rho: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    delta: Annotated[float, Field(gt=0, lt=1)] | None = None
    period: Name = "all"
    group: Name | None = None

    @model_validator(mode="after")
    def _amounts(self) -> Self:
        wanted = {"pure": {"epsilon"}, "zcdp": {"rho"}, "approx": {"epsilon", "delta"}}[self.measure]
        given = {name for name in ("epsilon", "rho", "delta") if getattr(self, name) is not None}
        if given != wanted:
            msg = f'a cap of measure "{self.measure}" takes {" and ".join(sorted(wanted))}'
            raise ValueError(msg)
        return self


class Policy(_Model):
    """A dataset and its text columns: the whole of `dptext run`, as read from `privacy.toml`.

    Attributes:
        dataset: Name of the dataset.
        release: Name that pins one configuration per column; partitions are no part of it.
        source: File, glob or object-store URL of the raw table (Parquet, CSV, NDJSON); may hold "{partition}".
        sink: Folder or object-store URL of the published table; holds "{partition}" if `source` does.
        id: Column of record ids, unique and without nulls.
        subject: Column of the person behind a record; caps are per subject.
        unit: "subject", or "record" to declare that records stand for themselves.
        keep: Columns that pass in clear.
        strict_columns: Refuse, instead of dropping, columns that nothing names.
        key: Reference to the noise secret.
        ledger: Where spends are kept.
        cap: The most a unit may lose.
        on_cap: "quarantine" leaves records over the cap out, "refuse" stops the run.
        publish: Whether gates are followed by publication; only strict mechanisms can be published.
        incremental: Take only record ids that the release has not seen.
        staging: Folder inside the boundary for what is not yet published; beside the sink if absent.
        storage_options: Options for object stores; values may be "env:NAME".
        shard_rows: Rows that are reserved, computed, staged and committed together.
        beta: False-alarm bound of the whole-run copy gate, charged as delta; absent, the count is only reported.
        columns: The text columns.
    """

    dataset: Name
    release: Name
    source: str
    sink: str
    id: Name
    subject: Name | None = None
    unit: Literal["subject", "record"] = "subject"
    keep: tuple[Name, ...] = ()
    strict_columns: bool = False
    key: KeyReference
    ledger: LedgerSpec
    cap: Cap | None = None
    on_cap: Literal["quarantine", "refuse"] = "quarantine"
    publish: bool = True
    incremental: bool = False
    staging: str | None = None
    storage_options: dict[str, str] = Field(default_factory=dict)
    shard_rows: PositiveInt = 100_000
    beta: Annotated[float, Field(gt=0, lt=0.5)] | None = None
    columns: Annotated[tuple[ColumnSpec, ...], Field(alias="column", min_length=1)]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.unit == "subject" and self.subject is None:
            msg = 'no subject column: name it with `subject = "user_id"`, or declare `unit = "record"`'
            raise ValueError(msg)
        names = [item.name for item in self.columns]
        roles = [*names, self.id, *self.keep]
        if len(set(roles)) < len(roles):
            msg = "a column has two roles: text columns, id and keep must differ"
            raise ValueError(msg)
        if (PARTITION in self.source) != (PARTITION in self.sink):
            msg = f"{PARTITION} stands in source and sink, or in neither"
            raise ValueError(msg)
        if self.beta is not None and (self.cap is None or self.cap.measure != "approx"):
            msg = 'beta needs a cap of measure "approx": a count with a false-alarm bound is charged as delta'
            raise ValueError(msg)
        for column in self.column_policies():
            if self.publish and not column.mechanism.publishable:
                mode = column.mechanism.mode
                msg = f"column {column.column!r}: a {mode} mechanism is for benchmarks; set publish = false"
                raise ValueError(msg)
            if self.cap is not None and self.cap.measure == "pure":
                kind = column.mechanism.guarantee.guarantee_class
                approximate = kind in {GuaranteeClass.APPROX_LDP, GuaranteeClass.COND_APPROX}
                if approximate and math.isinf(column.mechanism.spend(1).eps_pure):
                    msg = f"column {column.column!r}: {column.mechanism.name} has a delta, class {kind.value}: no cap "
                    msg += (
                        'on pure epsilon can hold it; write cap = { measure = "approx", epsilon = …, delta = … }, or '
                    )
                    msg += 'measure = "zcdp" with rho, which adds up better'
                    raise ValueError(msg)
            if self.cap is not None and column.mechanism.guarantee.guarantee_class is GuaranteeClass.UMLDP:
                msg = f"column {column.column!r}: {column.mechanism.name} costs an infinite amount on every measure, "
                msg += "class UMLDP: no cap can hold it; it takes a dataset of its own, without a cap"
                raise ValueError(msg)
        return self

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Make a policy from plain data.

        Raises:
            PolicyError: Unknown or missing entries, or values out of range.
        """
        with validated("policy", _entries(cls)):
            return cls.model_validate(dict(values))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a policy file; its relative paths are taken from its folder.

        Raises:
            PolicyError: The file is missing or no TOML, or says something that cannot be done.
        """
        path = Path(path)
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as exc:
            problem, hint = f"the policy {path} cannot be read: {exc.strerror}", "`dptext init FILE` writes one"
        except ValueError as exc:
            problem, hint = f"the policy {path} is no TOML: {exc}", None
        else:
            return cls.parse(_anchored(values, path.parent.absolute()))
        raise PolicyError(problem, hint)

    def column_policies(self) -> list[ColumnPolicy]:
        """Return one `ColumnPolicy` per text column."""
        return [
            ColumnPolicy(
                dataset=self.dataset,
                column=item.name,
                release=self.release,
                mechanism=item.mechanism,
                key=self.key,
                allow=item.allow,
                accept=item.accept,
            )
            for item in self.columns
        ]


def _entries(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


_PATHS = (("source",), ("sink",), ("staging",), ("key",), ("ledger", "url"), ("ledger", "id_key"))


def _anchored(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    for *parents, last in _PATHS:
        table: Any = values
        for name in parents:
            table = table.get(name, {}) if isinstance(table, dict) else {}
        if isinstance(table, dict) and isinstance(table.get(last), str):
            table[last] = _from_folder(table[last], folder)
    for column in values.get("column", ()):
        mechanism = column.get("mechanism") if isinstance(column, dict) else None
        if isinstance(mechanism, dict) and mechanism.get("name") in catalog.available():  # others are refused later
            kind = catalog.load(mechanism["name"])
            for name in mechanism.keys() & kind.artifact_fields:
                given, anchor = mechanism[name], _found if name in kind.hub_fields else _named
                mechanism[name] = (
                    [anchor(item, folder) for item in given] if isinstance(given, list) else anchor(given, folder)
                )
    return values


def _named(reference: Any, folder: Path) -> Any:
    """A path, told from the name of an embedded artifact by its slash or suffix, starts from the policy's folder."""
    path = isinstance(reference, str) and ("/" in reference or Path(reference).suffix)
    return _from_folder(reference, folder) if path else reference


def _found(reference: Any, folder: Path) -> Any:
    """A path that is there, unlike a name of the hub or of a distribution, starts from the policy's folder."""
    there = isinstance(reference, str) and "://" not in reference and (folder / reference).exists()
    return str(folder / reference) if there else reference


def _from_folder(reference: str, folder: Path) -> str:
    if reference.startswith("env:"):
        return reference
    for prefix in ("file:", "sqlite:///"):
        if reference.startswith(prefix):
            return prefix + str(folder / reference.removeprefix(prefix))
    return reference if "://" in reference else str(folder / reference)
