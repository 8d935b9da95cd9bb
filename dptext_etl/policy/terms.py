"""Define the parts of a policy: kept columns, caps, places, and terms; resolve its paths."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import parse_qsl

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    ValidationInfo,
    field_validator,
    model_validator,
)

from dptext_etl import _kernel, catalog, extensions, keys
from dptext_etl.accounting.shuffling import OTHER
from dptext_etl.errors import KeyReferenceError, PolicyError
from dptext_etl.object_stores import KEY_DIGITS, holds_password, is_secret, require_catalog, variable_of
from dptext_etl.parameters import PositiveInt, changed_parameters, models_in, validated

Compression = Literal["zstd-1", "zstd-3", "zstd-9", "snappy", "none"]
FASTEST: Compression = "zstd-1"


def omitted(default: Any) -> Any:
    """Return a field that is written, and so hashed, only where it differs from its default."""
    return Field(default=default, exclude_if=lambda value: value == default)


Name = Annotated[str, Field(min_length=1, max_length=200)]
KeyReference = Annotated[str, BeforeValidator(keys.reference)]
"""The name of a key. A policy refuses a key itself when it is built, so that no one can print or send one with it."""


def _without_password(place: str) -> str:
    if holds_password(place):
        raise ValueError("the URL holds a password; put it into storage_options, as the name of a variable")
    return place


def _catalog(properties: dict[str, str]) -> dict[str, str]:
    require_catalog(properties)
    return properties


Place = Annotated[str, AfterValidator(_without_password)]
"""A path or a URL. Policies are printed, so it holds no password."""
Catalog = Annotated[dict[str, str], AfterValidator(_catalog)]
"""Properties of an Iceberg catalog."""
Amount = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]  # a finite number above 0; `True` is none


class Checked(BaseModel):
    """Plain data that is checked however it is made, also as a copy."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    what: ClassVar[str] = "policy"
    """Noun for this part of a policy in messages."""
    copied: ClassVar[tuple[str, ...]] = ()
    """Names of private attributes that a changed copy takes over."""
    __repr_args__ = changed_parameters

    @classmethod
    def checking(cls) -> validated:
        """Return a context that turns wrong entries into one `PolicyError`."""
        return validated(cls.what, cls)

    @classmethod
    def model_construct(cls, _fields_set: set[str] | None = None, **values: Any) -> Self:  # type: ignore[override]
        """Check the entries like every other constructor, so that no unchecked policy can be printed or sent.

        Args:
            _fields_set: Ignored; pydantic has it.
            **values: Entries by name.

        Returns:
            The checked object.

        Raises:
            PolicyError: An entry is wrong.
        """
        with cls.checking():
            return cls.model_validate(values)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy the object; changed entries are checked as in a new policy.

        Args:
            update: Changed entries by name.
            deep: Copy the values, too; without effect if entries change.

        Returns:
            The copy.

        Raises:
            PolicyError: A changed entry is wrong.
        """
        if not update:
            return super().model_copy(deep=deep)
        aliases = {name: field.alias or name for name, field in type(self).model_fields.items()}
        entries = {**{name: getattr(self, name) for name in self.model_fields_set}, **update}
        with self.checking():
            again = type(self).model_validate({aliases.get(name, name): value for name, value in entries.items()})
        for name in self.copied:
            setattr(again, name, getattr(self, name))
        return again


class DagsterSpec(Checked):
    """Settings of a policy only for Dagster.

    Attributes:
        tags: Tags of the staging step, and of the job's runs if these compute it: settings of queues and retries, and
            in "dagster-k8s/config" resources and nodes.
    """

    what: ClassVar[str] = "[dagster]"

    tags: dict[str, Any] = Field(default_factory=dict)

    @field_validator("tags")
    @classmethod
    def _allowed(cls, tags: dict[str, Any]) -> dict[str, Any]:
        """Refuse tags by which a launcher would run other code: an image, a command, a variable, a volume."""
        for name, value in tags.items():
            if is_secret(name) or (isinstance(value, str) and holds_password(value)):
                raise ValueError(f"{name[:60]!r} holds a secret, and Dagster shows tags")
            listed = name in _TAGS or _LABEL.fullmatch(name)
            if not (_is_kubernetes(value) if name == _KUBERNETES else listed and isinstance(value, str)):
                msg = f"{name[:60]!r} is not an allowed tag: a policy gives labels, {', '.join(sorted(_TAGS))}, and in "
                msg += f"{_KUBERNETES!r} container_config.resources and pod_spec_config ({', '.join(_POD)})"
                raise ValueError(f"{msg}; give any other tag in Python: build_definitions(op_tags=…)")
        return tags


_TAGS = frozenset(
    {
        "dagster/priority", "dagster/max_retries", "dagster/retry_strategy", "dagster/max_runtime",
        "dagster/concurrency_key", "dagster-celery/queue", "dagster-celery/priority", "dagster-celery/run_priority",
        "ecs/cpu", "ecs/memory", "ecs/ephemeral_storage",
    }
)  # fmt: skip
"""Tags of Dagster and its launchers that name no code."""
_LABEL = re.compile(r"[\w.-]{1,63}", re.ASCII)
_KUBERNETES = "dagster-k8s/config"
_POD = ("node_selector", "tolerations", "affinity")


def _is_kubernetes(value: Any) -> bool:
    """Return whether the settings of a pod choose resources and nodes only."""
    allowed = {"container_config": ("resources",), "pod_spec_config": _POD}
    return isinstance(value, dict) and all(
        isinstance(part, dict) and part.keys() <= set(allowed.get(name, ())) for name, part in value.items()
    )


Encoding = Literal["utf-8", "utf-16", "cp1252", "latin-1"]  # encodings of CSV files
CsvType = Literal["String", "Int64", "Float64", "Boolean", "Date", "Datetime"]  # types of kept columns of CSV files


class CsvSpec(Checked):
    """Say how the CSV files of the source are written; their first line has the names of the columns.

    Attributes:
        separator: The character between the fields, such as ";" or a tab.
        encoding: "utf-8", "utf-16", "cp1252" or "latin-1".
        quote: The character around fields that hold a separator or a line break; "" where there is none.
        types: Types of kept columns: "String", "Int64", "Float64", "Boolean", "Date" or "Datetime". A column without
            one gets a type if every value keeps its spelling under it.
    """

    what: ClassVar[str] = "[csv]"

    separator: str = ","
    encoding: Encoding = "utf-8"
    quote: str = '"'
    types: dict[str, CsvType] = Field(default_factory=dict, exclude_if=lambda types: not types)

    @field_validator("separator", "quote")
    @classmethod
    def _one_character(cls, value: str, info: ValidationInfo) -> str:
        empty = info.field_name == "quote" and not value
        if not empty and (len(value) != 1 or not value.isascii() or value.isalnum() or value in "\n\r"):
            raise ValueError("must be one ASCII character other than a letter, a digit, or a line break")
        return value

    @model_validator(mode="after")
    def _differ(self) -> Self:
        if self.separator == self.quote:
            raise ValueError("separator and quote must differ")
        return self


TABLE = "table:"  # begins a source that is a table of a catalog
PLAIN_CSV = CsvSpec()  # UTF-8 with commas


_LEDGER_PARAMETERS = frozenset(
    {
        "schema", "sslmode", "sslrootcert", "sslcert", "sslkey", "sslnegotiation", "channel_binding", "require_auth",
        "gssencmode", "connect_timeout", "application_name", "target_session_attrs", "load_balance_hosts",
    }
)  # fmt: skip
"""Parameters of a ledger's URL in a policy: none names another host, a file of passwords, or a server of tokens."""


class LedgerSpec(Checked):
    """Name the ledger, and the key under which it stores ids.

    Attributes:
        url: "sqlite:///PATH", a path, "postgresql://HOST/DATABASE" without a password, or "env:NAME", the variable that
            holds it.
        id_key: Reference to the key of the ids; by default the file next to a SQLite ledger.
        anchors: Anchor store, which shows that a ledger was lost or restored: a folder or URL apart from the
            ledger, shared by its writers; by default `DPTEXT_ANCHORS`, or a folder in this user's state folder.
        require_anchors: Refuse to charge without a named anchor store; by default only for PostgreSQL. False also
            allows releases of which no anchor is stored.
    """

    url: str
    id_key: KeyReference | None = None
    anchors: Place | None = None
    require_anchors: bool | None = omitted(None)

    @field_validator("url")
    @classmethod
    def _no_password(cls, url: str) -> str:
        if holds_password(url):
            raise ValueError('the URL holds a password; put it into a variable: url = "env:DPTEXT_LEDGER_SECRET_URL"')
        if "://" in url and (other := dict(parse_qsl(url.partition("?")[2])).keys() - _LEDGER_PARAMETERS):
            msg = (
                f"the URL has {len(other)} parameters of another kind; allowed: {', '.join(sorted(_LEDGER_PARAMETERS))}"
            )
            raise ValueError(f"{msg}; a URL in a variable may have any")
        return url


class TableSpec(Checked):
    """Publish a table of Delta Lake or Iceberg in `sink`: one commit of the table is the publication.

    Attributes:
        format: "delta" or "iceberg".
        name: Name of an Iceberg table in its catalog, such as "reviews.public"; holds "{partition}" if `sink` does.
        catalog: Name of the catalog of Iceberg (`name`, "default" if absent) and its properties as pyiceberg has them:
            `type`, `uri`, options of the store such as `s3.endpoint`; `uri` and credentials may be "env:NAME".
    """

    what: ClassVar[str] = "[table]"

    format: Literal["delta", "iceberg"]
    name: str | None = None
    catalog: Catalog = Field(default_factory=dict)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.format == "delta" and (self.name is not None or self.catalog):
            msg = "name and catalog are entries of Iceberg: a table of Delta Lake is found by its folder, the sink"
            raise ValueError(msg)
        if self.format == "iceberg" and ("." not in (self.name or "") or not self.catalog):
            raise ValueError('Iceberg needs name = "namespace.table" and catalog = { type = "…", uri = "…" }')
        return self


class Retention(Checked):
    """Settings of `dptext clean` for files that neither readers nor runs need; without a setting, all are kept.

    Attributes:
        versions: Number of newest versions whose published files stay, the current one included.
        staging_days: Days after which rows that were staged and never published are removed.
        quarantine_days: Days after which the lists of records over the cap are removed.
        kept_days: Days after which the kept bytes of a model's release are removed: later runs cannot replay them.
    """

    versions: PositiveInt | None = None
    staging_days: NonNegativeFloat | None = None
    quarantine_days: NonNegativeFloat | None = None
    kept_days: NonNegativeFloat | None = None


class Cap(Checked):
    """Limit the spends of a unit in a scope, which is (dataset or group, period) and never the release.

    Attributes:
        measure: "pure" adds epsilons; "zcdp" adds rho; "approx" adds (epsilon, delta).
        epsilon: The cap, for "pure" and "approx".
        rho: The cap, for "zcdp".
        delta: The cap's delta, for "approx".
        period: Name of the period that the cap covers, such as "2026".
        group: Name that datasets share if their spends add up; by default the dataset itself.
    """

    measure: Literal["pure", "zcdp", "approx"] = "pure"
    epsilon: Amount | None = None
    rho: Amount | None = None
    delta: Annotated[Amount, Field(lt=1)] | None = None
    period: Name = "all"
    group: Name | None = None

    @model_validator(mode="after")
    def _amounts(self) -> Self:
        components = {"pure": {"epsilon"}, "zcdp": {"rho"}, "approx": {"epsilon", "delta"}}[self.measure]
        names = {name for name in ("epsilon", "rho", "delta") if getattr(self, name) is not None}
        if names != components:
            raise ValueError(f'a cap of measure "{self.measure}" needs {" and ".join(sorted(components))}')
        return self


def _not_whole(value: Any) -> Any:
    """Refuse a whole number where a float is read, which would round it."""
    if isinstance(value, int):
        raise ValueError("must have at most 64 bits")  # noqa: TRY004  (pydantic reports no TypeError)
    return value


_Whole = Annotated[int, Field(ge=-(2**63), lt=2**64, strict=True)]
Bound = _Whole | Annotated[float, BeforeValidator(_not_whole), Field(allow_inf_nan=False, strict=True)]


class Kept(Checked):
    """Name a column of the source and how it is coarsened before it is published; nulls stay null.

    Attributes:
        column: Name of the column.
        as_: Of a date or a time (written `as`): "month" publishes a string such as "2026-03", "year" a whole number.
            Moments with a time zone count in UTC, whatever the zone.
        bins: Of numbers: ascending bounds of half-open bins, published as "<0", "0 to <18", "18+"; not-a-number
            becomes null.
        top: Of strings: public values that are published as they are; all others become "other".
    """

    column: Name
    as_: Literal["month", "year"] | None = Field(default=None, alias="as", exclude_if=lambda way: way is None)
    bins: Annotated[tuple[Bound, ...], Field(min_length=1)] | None = omitted(None)
    top: Annotated[tuple[str, ...], Field(min_length=1)] | None = omitted(None)

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if sum(way is not None for way in (self.as_, self.bins, self.top)) > 1:
            raise ValueError("a column is coarsened in one way: as, bins, or top")
        if self.bins is not None and any(low >= high for low, high in pairwise(self.bins)):
            raise ValueError("bins must ascend")
        if self.top is not None and (len(set(self.top)) < len(self.top) or OTHER in self.top):
            raise ValueError(f'top lists different values, and not "{OTHER}", which covers all others')
        return self

    @property
    def rule(self) -> dict[str, Any]:
        """The coarsening as plain data; empty for a column that is published unchanged."""
        return self.model_dump(mode="json", by_alias=True, exclude={"column"})


def columns_of(keep: Iterable[str | Kept]) -> set[str]:
    """Return the names of kept columns."""
    return {item if isinstance(item, str) else item.column for item in keep}


def share_folder(sinks: Iterable[str]) -> bool:
    """Return whether a sink is, or lies in, another one: publication replaces a whole folder, and tables inside it."""
    places = sorted(f"{sink if '://' in sink else os.path.abspath(sink)}".rstrip("/") + "/" for sink in sinks)  # noqa: PTH100
    return any(inner.startswith(outer) for outer, inner in pairwise(places))


class Audience(Checked):
    """Publish the released texts a second time, for other readers: other columns and other ids of the same draws.

    Equal drawn texts join the rows of two audiences, whatever their ids are.

    Attributes:
        name: Name of the audience: letters, digits, "-", and "_". The key of its ids follows from it.
        sink: Folder or URL of its table, which is plain files; holds "{partition}" if `source` does.
        keep: Columns to publish next to the texts: names, or tables that coarsen a column.
        ids: "keyed" publishes hashes under a key that no other audience has, "drop" publishes no ids.
    """

    what: ClassVar[str] = "[[audience]]"

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,60}$")]
    sink: Place
    keep: tuple[Name | Kept, ...] = ()
    ids: Literal["keyed", "drop"] = "keyed"


def require_other_variables(ledger: str, key: str, id_key: str | None, options: Iterable[tuple[str, str]]) -> None:
    """Refuse options of stores and catalogs that name the variable of a key or of the ledger, or one of equal value."""
    ledger_variable = variable_of(ledger)
    url = ledger if ledger_variable is None else os.environ.get(ledger_variable)
    references = [key, id_key or f"file:{(url or '').removeprefix('sqlite:///')}.id.key"]
    secret_variables = {ledger_variable, *map(variable_of, references)}
    for option, value in options:
        variable = variable_of(value)
        if variable is None:
            continue
        value_here = os.environ.get(variable, "")
        if (
            variable in secret_variables
            or (value_here and value_here == url)
            or any(_holds(value_here, reference) for reference in references)
        ):
            msg = f"{option} names a variable that holds the noise key, the id key, or the URL of the ledger"
            raise ValueError(f"{msg}, and the store would get it; name the variable of this credential")


def _holds(value: str, reference: str) -> bool:
    """Return whether a value is the key of a reference; a key that is not here is not a value of this environment."""
    if not KEY_DIGITS.fullmatch(value):
        return False
    try:
        key = keys.resolve(reference)
    except KeyReferenceError:
        return False
    other = _kernel.Secret.from_bytes(bytes.fromhex(value.strip()))
    return _kernel.fingerprint(key, "") == _kernel.fingerprint(other, "")


SETTABLE = ("source", "sink", "table.name", "release", "environment")
"""The entries that may differ between environments: `dptext … --set`, and variables in a policy file."""
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def for_environment(values: dict[str, Any], settings: Mapping[str, str]) -> dict[str, Any]:
    """Return a policy's entries with some of them set, and with the values of the variables that they name.

    "env:NAME" or "${NAME}" in one of `SETTABLE` names a variable of this environment.
    """
    if other := sorted(settings.keys() - set(SETTABLE)):
        raise PolicyError(f"{other[0]} cannot be set for a single call", f"--set accepts {', '.join(SETTABLE)}")
    if "table.name" in settings and not isinstance(values.get("table"), dict):
        raise PolicyError("table.name cannot be set: the policy has no table [table]", "remove it from --set")
    if "sink" in settings and values.get("audience"):
        msg = "sink cannot be set: the policy has entries [[audience]], whose sinks would stay"
        raise PolicyError(msg, "write variables into all sinks, such as ${DPTEXT_SINKS}/analysts")
    for entry in SETTABLE:
        table, _, name = entry.rpartition(".")
        entries = values.get(table) if table else values
        if isinstance(entries, dict) and entry in settings:
            entries[name] = settings[entry]
        if isinstance(entries, dict) and isinstance(text := entries.get(name), str):
            whole = variable_of(text)
            entries[name] = _value_of(entry, whole) if whole else _with_values(entry, text)
    for item in _audiences(values):
        item["sink"] = _with_values("audience.sink", item["sink"])
    return values


def _audiences(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the entries of audiences that have a sink; they are checked later."""
    listed = values.get("audience")
    items = listed if isinstance(listed, list) else []
    return [item for item in items if isinstance(item, dict) and isinstance(item.get("sink"), str)]


def _with_values(entry: str, text: str) -> str:
    resolved = _VARIABLE.sub(lambda match: _value_of(entry, match[1]), text)
    if "${" in _VARIABLE.sub("", text):
        raise PolicyError(f"{entry} holds ${{ without the name of a variable and }}", "write ${NAME}")
    return resolved


def _value_of(entry: str, variable: str) -> str:
    """Return the value of a variable that may be part of a path: else a policy could send any credential to a store."""
    if not variable.startswith("DPTEXT_") or is_secret(variable):
        msg = f"{entry}: only variables whose names begin with DPTEXT_, and hold no secret, may be part of an entry"
        raise PolicyError(msg, f"for example DPTEXT_{entry.upper().replace('.', '_')}")
    value = os.environ.get(variable)
    if not value:
        raise PolicyError(f"{entry}: the variable {variable} is not set", f"set {variable}, or use --set {entry}=…")
    return value


def anchored(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a policy's entries with relative paths resolved from a folder."""
    for table, names in (
        (values, ("source", "sink", "staging", "key")),
        (values.get("ledger"), ("url", "id_key")),
        *((item, ("sink",)) for item in _audiences(values)),
    ):
        for name in names:
            if isinstance(table, dict) and isinstance(table.get(name), str):
                table[name] = _from_folder(table[name], folder)
    table = values.get("table")
    for properties in (table.get("catalog") if isinstance(table, dict) else None, values.get("source_catalog")):
        if isinstance(properties, dict) and str(properties.get("uri")).startswith("sqlite:///"):
            properties["uri"] = _from_folder(properties["uri"], folder)
    synthetic = values.get("synthetic")
    maxent = synthetic.get("mechanism") if isinstance(synthetic, dict) else None
    for entries, name in ((synthetic, "pool"), (maxent, "corpus")):
        if isinstance(entries, dict) and name in entries:
            entries[name] = _existing(entries[name], folder)
    for column in values.get("column", ()):
        if isinstance(column, dict):
            steps = column.get("postprocess")
            _anchor_named("mechanisms", column.get("mechanism"), folder)
            for step in steps if isinstance(steps, list) else ():
                _anchor_named("postprocesses", step, folder)
    return values


def _anchor_named(group: extensions.Group, parameters: Any, folder: Path) -> None:
    """Resolve the paths among the parameters of a mechanism or a post-processing, which are checked later."""
    if isinstance(parameters, dict) and extensions.exists(group, parameters.get("name")):
        load = catalog.load if group == "mechanisms" else catalog.load_postprocess
        _anchor(parameters, load(parameters["name"]), folder)


def _anchor(parameters: dict[str, Any], kind: type[BaseModel], folder: Path) -> None:
    """Resolve the paths in the fields of a model that name artifacts, at any depth; they are changed in place."""
    paths: frozenset[str] = getattr(kind, "artifact_fields", frozenset())
    hub: frozenset[str] = getattr(kind, "hub_fields", frozenset())
    for name in parameters.keys() & paths:
        value, anchor = parameters[name], _existing if name in hub else _named
        parameters[name] = (
            [anchor(item, folder) for item in value] if isinstance(value, list) else anchor(value, folder)
        )
    for name in parameters.keys() & kind.model_fields.keys():
        inner = next(models_in(kind.model_fields[name].annotation), None)
        for item in parameters[name] if isinstance(parameters[name], list) else [parameters[name]]:
            if inner is not None and isinstance(item, dict):
                _anchor(item, inner, folder)


def _named(reference: Any, folder: Path) -> Any:
    """Resolve a path from the policy's folder; a name without slash and suffix is an embedded artifact and stays."""
    path = isinstance(reference, str) and ("/" in reference or Path(reference).suffix)
    return _from_folder(reference, folder) if path else reference


def _existing(reference: Any, folder: Path) -> Any:
    """Resolve a path from the policy's folder if it exists; other names belong to a hub or a distribution and stay."""
    if not isinstance(reference, str) or "://" in reference:
        return reference
    if (folder / reference).exists():
        return str(folder / reference)
    kind, colon, place = reference.partition(":")  # such as "nltk:FOLDER"
    return kind + colon + str(folder / place) if place and (folder / place).exists() else reference


def _from_folder(reference: str, folder: Path) -> str:
    scheme, _, name = reference.partition(":")
    if scheme == "env" or reference.startswith(TABLE):
        return reference
    for prefix in ("file:", "sqlite:///"):
        if reference.startswith(prefix):
            return prefix + str(folder / reference.removeprefix(prefix))
    if name:
        from dptext_etl.key_providers import installed

        if "://" in reference or scheme in installed():
            return reference
    return str(folder / reference)
