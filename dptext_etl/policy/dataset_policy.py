"""Define `Policy`, which describes a dataset and its text columns; `dptext run` reads it from a TOML file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import Field, PrivateAttr, field_validator, model_validator

from dptext_etl.accounting import is_finite
from dptext_etl.accounting.shuffling import COUNT, OTHER, Shuffled, ShuffledLabels, shuffled_of
from dptext_etl.errors import PolicyError
from dptext_etl.families.words import by_text
from dptext_etl.guarantee import DEFAULT_ALLOWED, Disclosure, GuaranteeClass
from dptext_etl.keys import Normalization
from dptext_etl.mechanism import Mechanism
from dptext_etl.object_stores import require_options
from dptext_etl.parameters import PositiveInt
from dptext_etl.policy.column_policy import PARTITION, ColumnPolicy, ColumnSpec
from dptext_etl.policy.synthetic import Synthetic, no_rows
from dptext_etl.policy.terms import (
    FASTEST,
    PLAIN_CSV,
    TABLE,
    Audience,
    Cap,
    Catalog,
    Checked,
    Compression,
    CsvSpec,
    DagsterSpec,
    Kept,
    KeyReference,
    LedgerSpec,
    Name,
    Place,
    Retention,
    TableSpec,
    anchored,
    columns_of,
    for_environment,
    omitted,
    require_other_variables,
    share_folder,
)

if TYPE_CHECKING:
    from dptext_etl.corpora import Corpus
    from dptext_etl.families.aggregate import Statistic

_APPROXIMATE = frozenset({GuaranteeClass.APPROX_LDP, GuaranteeClass.COND_APPROX})
_SHOWN = ("dataset", "release", "source", "sink", "id", "subject", "unit", "keep", "on_cap", "publish")
"""Entries that a notebook shows."""


class Policy(Checked):
    """Describe a dataset and its text columns completely for `dptext run`; a file `privacy.toml` holds it.

    Attributes:
        dataset: Name of the dataset.
        release: Name that pins one configuration per column, for all partitions.
        environment: Name of the environment, such as "production".
        source: File, folder, glob, or URL of the raw table, or "table:NAME" of a catalog of Iceberg (`source_catalog`)
            or of Spark; may hold "{partition}".
        source_catalog: Iceberg catalog of the source, with properties as in `table.catalog`.
        csv: Form of CSV files that are not UTF-8 with commas, and types of kept columns.
        sink: Folder or URL of the published table; holds "{partition}" if `source` does.
        table: Publish a Delta Lake or Iceberg table in the sink, instead of plain files.
        compression: Compression of published Parquet files. Another one publishes the same rows in new files.
        id: Column of record ids, unique and without nulls.
        subject: Column of the person behind a record; caps are per subject.
        normalize: Normalization of subjects before they are hashed, so that variants of an id share a budget.
        unit: "subject", or "record": every record is its own unit.
        ids: How record ids are published: "keep", "drop", or "keyed".
        keep: Columns to publish next to the texts: names, or tables that coarsen a column.
        keep_unique: "accepted" publishes a first version although kept columns single out more than 5% of the rows.
        keep_copies: Columns of `keep` (or `id`) that may hold raw texts of their rows, which readers then see.
        strict_columns: Refuse columns that the policy does not name, instead of dropping them.
        key: Reference to the noise secret.
        ledger: The ledger that records the spends.
        cap: The largest amount that a unit may spend.
        on_cap: Records over the cap: "quarantine" leaves them out, "refuse" stops the run.
        on_null_subject: Rows without a person: "refuse" stops the run, "quarantine" leaves them out, "own" treats each
            as its own person.
        on_changed: Released records whose text changed: "refuse" stops the run, "keep" publishes the earlier released
            text, "quarantine" leaves them out, "release_again" charges them for the new text.
        per_subject: Most records of a person in a partition, chosen by the key; released ones always stay.
        min_released: Least share of the rows that a version must hold; with less, nothing is charged or published.
        publish: Publish the table after the gates; only strict mechanisms can be published.
        incremental: Read only record ids that the release has not seen.
        deletions: Published records that an incremental source lacks: "refuse" stops the run, "keep" keeps them, for a
            source of new rows only.
        staging: Folder or URL inside the boundary for files that are not published yet; by default in `.dptext`, next
            to the policy file.
        storage_options: Options for the stores of source, staging, sink, and a corpus URL; credentials are "env:NAME".
        retention: What `dptext clean` keeps.
        shard_rows: Most rows that are reserved, computed, staged, and committed together.
        shard_bytes: Most bytes of the strings of these rows; a shard ends at either limit.
        sql_function: Allow SQL functions whose callers choose the ids (`register`); false allows only views
            (`register_view`).
        copy_gate_false_alarm: False-alarm bound of the copy gate over a run, charged as delta; without it, copies are
            only reported.
        reports: "copies" counts unchanged texts in all rows, instead of at most 512 rows per shard.
        dagster: Settings for Dagster: `tags` of the staging step and of the job's runs.
        shuffled: Publish the multiset of released texts, without ids, order, and other columns than labels.
        synthetic: Publish a table of public texts that follow one noisy statistic of a text column.
        audiences: Further tables of the same draws for other readers, in the same run and for the same charge. Equal
            drawn texts still join the rows of two audiences.
        columns: The text columns; none with `synthetic`.
    """

    copied: ClassVar[tuple[str, ...]] = ("_folder", "_audience")

    dataset: Name
    release: Name
    environment: Name | None = omitted(None)
    source: Place
    source_catalog: Catalog = Field(default_factory=dict, exclude_if=lambda catalog: not catalog)
    csv: CsvSpec = Field(default_factory=CsvSpec, exclude_if=lambda csv: csv == PLAIN_CSV)
    sink: Place
    table: TableSpec | None = omitted(None)
    compression: Compression = omitted(FASTEST)
    id: Name
    subject: Name | None = None
    normalize: tuple[Normalization, ...] = omitted(())
    unit: Literal["subject", "record"] = "subject"
    ids: Literal["keep", "drop", "keyed"] = omitted("keep")
    keep: tuple[Name | Kept, ...] = ()
    keep_unique: Literal["accepted"] | None = omitted(None)
    keep_copies: tuple[Name, ...] = omitted(())
    strict_columns: bool = False
    key: KeyReference
    ledger: LedgerSpec
    cap: Cap | None = None
    on_cap: Literal["quarantine", "refuse"] = "quarantine"
    on_null_subject: Literal["refuse", "quarantine", "own"] = omitted("refuse")
    on_changed: Literal["refuse", "keep", "quarantine", "release_again"] = omitted("refuse")
    per_subject: PositiveInt | None = omitted(None)
    min_released: Annotated[float, Field(ge=0, le=1)] = 0.5
    publish: bool = True
    incremental: bool = False
    deletions: Literal["refuse", "keep"] = "refuse"
    staging: Place | None = None
    storage_options: dict[str, str] = Field(default_factory=dict)
    retention: Retention = Field(default_factory=Retention)
    shard_rows: PositiveInt = 100_000
    shard_bytes: PositiveInt = 8 << 20
    sql_function: bool = True
    copy_gate_false_alarm: Annotated[float, Field(gt=0, lt=0.5)] | None = None
    reports: tuple[Literal["copies"], ...] = ()
    dagster: DagsterSpec = Field(default_factory=DagsterSpec, exclude_if=lambda spec: not spec.tags)
    shuffled: Shuffled | None = omitted(None)
    synthetic: Synthetic | None = omitted(None)
    audiences: tuple[Audience, ...] = Field(default=(), alias="audience", exclude_if=lambda audiences: not audiences)
    columns: tuple[ColumnSpec, ...] = Field(default=(), alias="column")
    _column_policies: tuple[ColumnPolicy, ...] = PrivateAttr(default=())
    _folder: Path | None = PrivateAttr(default=None)
    _audience: str | None = PrivateAttr(default=None)

    def _repr_html_(self) -> str:
        """Show the policy in a notebook, without places of the ledger and of keys."""
        from dptext_etl import markup

        about = {name: getattr(self, name) for name in _SHOWN} | {"keep": self.kept_columns}
        limits = {} if self.cap is None else self.cap.model_dump(exclude_none=True)
        about["cap"] = ", ".join(f"{name} {value}" for name, value in limits.items())
        claims = [(item.column, item.mechanism, item.mechanism.guarantee) for item in self._column_policies]
        names = ("column", "mechanism", "its parameter epsilon", "guarantee", "released exactly")
        rows = [
            (column, mechanism.name, f"{mechanism.epsilon:g}", claim.guarantee_class.value, claim.disclosures)
            for column, mechanism, claim in claims
        ]
        return markup.facts(f"policy of {self.dataset}", about) + markup.table("columns", names, rows)

    def __init__(self, /, **values: Any) -> None:
        with self.checking():
            super().__init__(**values)

    @field_validator("normalize")
    @classmethod
    def _in_order(cls, normalize: tuple[Normalization, ...]) -> tuple[Normalization, ...]:
        """Bring the steps into the one order in which they are done: equal policies pin equal forms."""
        return tuple(step for step in get_args(Normalization) if step in normalize)

    @field_validator("storage_options")
    @classmethod
    def _allowed(cls, options: dict[str, str]) -> dict[str, str]:
        """Refuse other options, and secrets: policies are printed, sent to executors, and shown by Dagster."""
        require_options(options)
        return options

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        """Refuse entries that contradict each other, and build the policies of all columns once."""
        _require_consistent(self)
        catalog = {} if self.table is None else self.table.catalog
        options = [*self.storage_options.items(), *catalog.items(), *self.source_catalog.items()]
        require_other_variables(self.ledger.url, self.key, self.ledger.id_key, options)
        shared = {name: getattr(self, name) for name in ("dataset", "release", "key", "sql_function")}
        if self.synthetic is not None:
            summed = self.synthetic.aggregate(self.storage_options)
            self._column_policies = (ColumnPolicy(column=self.synthetic.column, mechanism=summed, **shared),)
            return self
        columns = list[ColumnPolicy]()
        for item in self.columns:
            mechanism = item.mechanism.fetch_inputs(self.storage_options)
            if self.shuffled is not None:
                _require_unlinkable(self, mechanism, self.shuffled)
                mechanism = mechanism.model_copy(update={"shuffled": self.shuffled})
            elif shuffled_of(mechanism) is not None:
                raise ValueError("the mechanism belongs to a shuffled release, and the policy has no table [shuffled]")
            own = ("allow", "accept_unbounded", "postprocess", "keep_intermediate")
            given = {name: getattr(item, name) for name in own}
            columns.append(ColumnPolicy(column=item.name, mechanism=mechanism, **shared, **given))
        self._column_policies = tuple(columns)
        for column in columns:
            _require_fit(self, column)
        return self

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Make a policy from plain data.

        Args:
            values: Its entries under the names of a policy file.

        Returns:
            The policy; its relative paths start from the working folder.

        Raises:
            PolicyError: An entry is unknown or missing, or a value is out of range.
        """
        return cls(**values)

    @classmethod
    def load(cls, path: str | Path, settings: Mapping[str, str] | None = None) -> Self:
        """Read a policy file; its relative paths start from its folder.

        Args:
            path: The TOML file. In `source`, `sink`, `table.name`, `release`, and `environment`, "env:NAME" and
                "${NAME}" name a variable of this environment.
            settings: Values of these entries that replace the file's, such as {"sink": "s3://dev/reviews"}.

        Returns:
            The policy, with absolute paths.

        Raises:
            PolicyError: The file is missing or not TOML, a variable is not set, or an entry is not allowed.
        """
        path = Path(path)
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        except OSError as exc:
            problem, hint = f"the policy {path} cannot be read: {exc.strerror}", "`dptext init FILE` writes one"
        except ValueError as exc:
            problem, hint = f"the policy {path} is not valid TOML: {exc}", None
        else:
            try:
                loaded = cls.parse(anchored(for_environment(values, settings or {}), path.parent.absolute()))
            except PolicyError as exc:
                if not exc.fields.get("entries"):
                    raise
                raise _with_lines(exc, path.read_text(encoding="utf-8-sig")) from None
            loaded._folder = path.parent.absolute()  # noqa: SLF001  (of this class)
            return loaded
        raise PolicyError(problem, hint)

    @property
    def audience(self) -> str | None:
        """The audience whose table this policy publishes; None for the policy's own table."""
        return self._audience

    @property
    def folder(self) -> Path | None:
        """The folder of the policy file; None for a policy that was made from plain data."""
        return self._folder

    @property
    def id_columns(self) -> dict[str, str]:
        """The names of the columns of ids, by "record" and, where it is the unit, "subject"."""
        columns = {"record": self.id}
        return columns if self.unit == "record" or self.subject is None else {**columns, "subject": self.subject}

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The names of the columns whose texts are released, or summed for a synthetic table."""
        names = tuple(item.name for item in self.columns)
        return names if self.synthetic is None else (self.synthetic.column,)

    @property
    def kept(self) -> tuple[Kept, ...]:
        """The columns that are published next to the texts, and how each of them is coarsened; also of labels."""
        if self.labels is not None:
            return (Kept(column=self.labels.column, top=self.labels.named),)
        return tuple(Kept(column=item) if isinstance(item, str) else item for item in self.keep)

    @property
    def kept_columns(self) -> tuple[str, ...]:
        """The names of the columns that are published next to the texts."""
        return tuple(item.column for item in self.kept)

    @property
    def labels(self) -> ShuffledLabels | None:
        """The labels of a shuffled release; None without."""
        return None if self.shuffled is None else self.shuffled.labels

    @property
    def one_table(self) -> bool:
        """Whether a release holds one complete table: it is shuffled, or a synthetic table."""
        return self.shuffled is not None or self.synthetic is not None

    @property
    def records_per_subject(self) -> int | None:
        """The most records of a person that a run uses, unless more are released; None without a limit."""
        limits = self.shuffled or self.synthetic
        most = self.per_subject if limits is None else limits.per_subject
        return None if self.unit == "record" else most

    @property
    def discloses_changes(self) -> bool:
        """Whether versions show which texts changed between two runs."""
        return self.on_changed in {"quarantine", "release_again"}

    @property
    def statistic(self) -> Statistic:
        """The statistic of a policy that publishes a synthetic table."""
        if self.synthetic is None:
            raise PolicyError("the policy publishes no synthetic table", "describe one in a table [synthetic]")
        (column,) = self._column_policies
        statistic: Statistic = getattr(column.mechanism, "statistic")  # noqa: B009  (an aggregate, which is loaded late)
        return statistic

    @property
    def pool(self) -> Corpus:
        """The corpus whose texts are the rows of a synthetic table."""
        pool = None if self.synthetic is None else self.synthetic.opened_pool(self.storage_options)
        return self.statistic.corpus if pool is None else pool

    @property
    def table_rows(self) -> int:
        """The number of rows of a synthetic table; 0 for other releases."""
        return 0 if self.synthetic is None else self.synthetic.rows or len(self.pool)

    def column_policies(self) -> list[ColumnPolicy]:
        """Return one `ColumnPolicy` per text column; the policy builds them once.

        Raises:
            PolicyError: The policy publishes a synthetic table, and no text of a record is released.
        """
        if self.synthetic is not None:
            raise no_rows(self.dataset)
        return list(self._column_policies)

    def charged_columns(self) -> list[ColumnPolicy]:
        """Return one `ColumnPolicy` per column for which records are charged: released texts, or the summed column."""
        return self.column_policies() if self.synthetic is None else list(self._column_policies)

    def placed(self, columns: Sequence[ColumnPolicy]) -> Self:
        """Return the same policy with the policies of its text columns as another machine has them.

        Args:
            columns: One per text column, in order; their artifacts are where that machine finds them.
        """
        again = self.model_copy()
        again._column_policies = tuple(columns)  # noqa: SLF001  (a copy of this one)
        return again

    def column_policy(self, column: str | None = None) -> ColumnPolicy:
        """Return the policy of one text column.

        Args:
            column: Its name; None if the policy has one text column.

        Raises:
            PolicyError: There is no text column of that name, or there are several and none is named.
        """
        policies = [item for item in self.column_policies() if column in {None, item.column}]
        if len(policies) == 1:
            return policies[0]
        names = ", ".join(item.name for item in self.columns)
        problem = f"no text column {column!r}" if column is not None else "several text columns"
        raise PolicyError(f"the policy has {problem}; text columns: {names}", "name one: policy.column_policy(…)")


def _refuse(problems: Iterable[tuple[bool, str]], where: str = "") -> None:
    for present, problem in problems:
        if present:
            raise ValueError(where + problem)


def _require_consistent(policy: Policy) -> None:
    synthetic, record, cap = policy.synthetic, policy.unit == "record", policy.cap
    names = policy.text_columns if synthetic is None else synthetic.columns
    intermediate = [item.intermediate for item in policy.columns if item.intermediate]
    roles = [*names, policy.id, *policy.kept_columns, *intermediate]
    no_subject = 'no subject column: name it with `subject = "user_id"`, or declare `unit = "record"`'
    kinds = "name text columns in entries [[column]], or one in a table [synthetic]; a policy has either of them"
    kept = {*policy.kept_columns, *(name for item in policy.audiences for name in columns_of(item.keep))}
    null_subject = 'on_null_subject is about subjects, and unit = "record" has none'
    null_as_unit = 'on_null_subject = "own" cannot bound the records of a person in [shuffled] or [synthetic] releases'
    table = "on_changed is about records: a [shuffled] or [synthetic] release is one complete table"
    adds = f'on_changed = "{policy.on_changed}" removes published records; an incremental run only adds, '
    adds += "and incremental = false publishes every row again, at no cost where its text is the same"
    types = "csv.types names columns of keep; ids, subjects, and texts of CSV files are strings"
    subject = 'subject must be another column than id and text columns; where every record is a unit: unit = "record"'
    two = "a column has two roles: text columns, their NAME_intermediate columns, id, and keep must differ"
    copies = 'copy_gate_false_alarm needs a cap of measure "approx": the bound is charged as delta'
    most = "[shuffled] and [synthetic] have their own per_subject: write it there"
    most = 'per_subject limits the rows of a subject, and unit = "record" has none' if record else most
    whole = 'per_subject needs a source with all rows of a person; with deletions = "keep" it may lack published ones'
    catalog = f'source_catalog: the source is not a table of a catalog; write source = "{TABLE}namespace.name"'
    problems = [
        (bool(policy.source_catalog) and not policy.source.startswith(TABLE), catalog),
        (not record and policy.subject is None, no_subject),
        (policy.per_subject is not None and (record or policy.one_table), most),
        (policy.per_subject is not None and policy.incremental and policy.deletions == "keep", whole),
        (record and bool(policy.normalize), 'normalize spells subjects, and unit = "record" has none'),
        ((synthetic is None) != bool(policy.columns), kinds),
        (record and policy.on_null_subject != "refuse", null_subject),
        (policy.one_table and policy.on_null_subject == "own", null_as_unit),
        (policy.one_table and policy.on_changed != "refuse", table),
        (policy.incremental and policy.discloses_changes, adds),
        (bool(policy.csv.types.keys() - kept | policy.csv.types.keys() & {policy.subject}), types),
    ]
    _refuse(problems)
    if others := sorted({*policy.keep_copies} - {policy.id, *kept}):
        raise ValueError(f"keep_copies names {', '.join(others)}, and only columns of keep, and id, are published")
    if synthetic is not None:
        _require_synthetic(policy, synthetic)
    if policy.table is not None:
        _require_table(policy)
    if policy.audiences:
        _require_audiences(policy, policy.audiences)
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
    from dptext_etl.file_formats import format_of  # policies of other releases start without its libraries

    name = None if policy.table is None else policy.table.name
    sink = policy.sink.rstrip("/")
    suffix = PurePosixPath(sink).suffix
    other = name is not None and (PARTITION in name) != (PARTITION in policy.sink)
    problems = [
        (format_of(sink) is not None, f"sink is the folder of the table, got a name that ends with {suffix}"),
        (other, f"{PARTITION} must be in both name and sink, or in neither"),
    ]
    _refuse(problems, "[table]: ")


def _require_audiences(policy: Policy, audiences: Sequence[Audience]) -> None:
    """Refuse tables that have one name or share a folder, and a release that has no rows of records."""
    names, sinks = {item.name for item in audiences}, [policy.sink, *(item.sink for item in audiences)]
    problems = [
        (policy.one_table, "a [shuffled] or [synthetic] release has no rows of records for a second table"),
        (len(names) < len(audiences), "two audiences have one name"),
        (share_folder(sinks), "the sink of one table is, or lies in, the sink of another one"),
        (len({PARTITION in sink for sink in sinks}) > 1, f"{PARTITION} must be in the sinks of all tables, or in none"),
    ]
    _refuse(problems, "[[audience]]: ")


def _require_fit(policy: Policy, column: ColumnPolicy) -> None:
    """Refuse a mechanism that cannot be published as the policy asks, or whose spends its cap cannot hold."""
    mechanism, cap, where = column.mechanism, policy.cap, f"column {column.column!r}: "
    kind = mechanism.guarantee.guarantee_class
    if policy.publish and mechanism.mode != "strict":
        raise ValueError(f"{where}a {mechanism.mode} mechanism is for benchmarks; set publish = false")
    pure = cap is not None and cap.measure == "pure"
    if pure and kind in _APPROXIMATE and not is_finite(mechanism.spend(1), "pure"):
        msg = (
            f"{where}{mechanism.name} has a delta, class {kind.value}: no cap on pure epsilon can hold it; write cap = "
        )
        msg += '{ measure = "approx", epsilon = …, delta = … }, or measure = "zcdp" with rho, which adds up better'
        raise ValueError(msg)
    if cap is not None and kind is GuaranteeClass.UMLDP:
        msg = f"{where}{mechanism.name} costs an infinite amount on every measure, class UMLDP: "
        msg += "no cap can hold it; put it into its own dataset, without a cap"
        raise ValueError(msg)
    # to show changed texts needs consent, and draws that do not vary (docs/spec/privacy.md#release-again)
    if policy.discloses_changes and Disclosure.CHANGED not in column.allow:
        line = ", ".join(f'"{item.value}"' for item in sorted((column.allow | {Disclosure.CHANGED}) - DEFAULT_ALLOWED))
        msg = f'{where}on_changed = "{policy.on_changed}" discloses {Disclosure.CHANGED.meaning}; '
        raise ValueError(f'{msg}to consent, write: allow = [{line}]; on_changed = "keep" discloses nothing')
    if policy.on_changed == "release_again" and not mechanism.reproducible:
        msg = f'{where}on_changed = "release_again" needs a mechanism that gives the same bytes '
        msg += f"again, and a model such as {mechanism.name} may not: if a text changes back, "
        raise ValueError(f'{msg}its draw is repeated; write "keep", or use a new release name')


def _require_unlinkable(policy: Policy, mechanism: Mechanism, shuffled: Shuffled) -> None:
    """Refuse a policy whose published multiset would link texts to records, or would have no central bound."""
    names, choice = [item.name for item in policy.columns], by_text(mechanism)
    labels = shuffled.labels
    published = names if labels is None else [*names, labels.column]
    drawn = choice is not None and choice.null_as_empty
    problems = [
        (choice is None, f"the bound belongs to surrogate; {mechanism.name} is released row by row"),
        (len(names) > 1, "a shuffled release has one text column: give each column its own policy"),
        (COUNT in published, f'other columns must not be called "{COUNT}", which is a column of the form "counts"'),
        (bool(policy.keep), "keep must be empty: other columns would link texts to records; labels names public ones"),
        (
            labels is not None and drawn and OTHER not in labels.values,
            f'null_as_empty draws a text for every record: labels.values must list "{OTHER}"',
        ),
        (policy.ids != "keep", "leave out ids: no ids are published"),
        (policy.incremental, "incremental must be false: a release is one batch; new rows need a new release name"),
        (PARTITION in policy.source, "a release is one batch: give each partition its own release name"),
        (policy.copy_gate_false_alarm is not None, "leave out copy_gate_false_alarm: it counts draws by record"),
        (any(item.postprocess for item in policy.columns), "leave out postprocess"),
        (policy.unit == "record" and shuffled.per_subject > 1, 'per_subject is for unit = "subject"'),
        (
            choice is not None and choice.has_model,
            "the corpus needs the encoder `words` or `task`: vectors of a model may depend on other texts",
        ),
    ]
    _refuse(problems, "[shuffled]: ")


def _require_synthetic(policy: Policy, synthetic: Synthetic) -> None:
    """Refuse entries that a synthetic table has no use for, and a cap that cannot hold its charges."""
    pure = policy.cap is not None and policy.cap.measure == "pure"
    problems = [
        (bool(policy.kept_columns), "keep must be empty: its rows are public texts, which have no other columns"),
        (policy.ids != "keep", "leave out ids: no ids are published"),
        (policy.incremental, "incremental must be false: a release is one table; new rows need a new release name"),
        (PARTITION in policy.source, "a release is one table: give each partition its own release name"),
        (policy.copy_gate_false_alarm is not None, "leave out copy_gate_false_alarm: no text of a record is released"),
        (bool(policy.reports), "leave out reports: no text of a record is released"),
        (policy.shuffled is not None, "leave out [shuffled]: a policy publishes either of them"),
        (pure, 'a discrete Gaussian has no pure epsilon: a cap of measure "zcdp" or "approx" counts it'),
        (policy.unit == "record" and synthetic.per_subject > 1, 'per_subject is for unit = "subject"'),
    ]
    _refuse(problems, "[synthetic]: ")


def _with_lines(error: PolicyError, text: str) -> PolicyError:
    """Add the lines of a file in which the entries of an error are, as far as their names occur once."""
    where = list[str]()
    for entry in (entry for entry in error.fields["entries"] if f"{entry}: is missing" not in error.message):
        pattern = rf"^[^#\n]*?(?<![\w.-]){re.escape(entry.rpartition('.')[2])}\s*="
        lines = [text.count("\n", 0, match.end()) + 1 for match in re.finditer(pattern, text, re.MULTILINE)]
        where += [f"{entry} is in line {lines[0]}"] if len(lines) == 1 else []
    hint = "; ".join(filter(None, [error.hint, *where]))
    return PolicyError(error.message, hint or None, error.fields)
