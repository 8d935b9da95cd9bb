"""Judge released data with Great Expectations: the gates as a suite, without a value, an id or a library's message.

Great Expectations quotes the values that it rejects, in results, in exceptions and in Data Docs, whatever a suite asks
for (its issue 8780). These expectations hand out counts, in every result format:

* They use no metric of the library, which would collect values. They count by tallies of ours, in every engine, and
  Great Expectations itself evaluates no frame, where Spark's message could quote a cell.
* Rows of a table of a database come here in batches over one connection, and SQL computes nothing. SQLite keeps dates
  and times as strings: kept columns of these types are read. An id of such a type is one that the ledger does not know.
* An expectation that fails raises our own error with a type's name, so no message and no traceback holds a cell.

An expectation's arguments are stored in suites, results and pages; they are a policy: names, parameters, references.
Tables are pandas or Spark frames, classic or Spark Connect, or tables of a database.

Example:
    >>> from dptext_etl.checks.great_expectations.expectations import validate  # doctest: +SKIP
    >>> validate(released, "privacy.toml").require()  # doctest: +SKIP
"""

from __future__ import annotations

import json
import os
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import great_expectations as gx
import pandas as pd
import polars as pl
from great_expectations.compatibility import pydantic
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.core.result_format import ResultFormat
from great_expectations.data_context.types.base import ProgressBarsConfig
from great_expectations.execution_engine.sparkdf_execution_engine import SparkDFExecutionEngine
from great_expectations.execution_engine.sqlalchemy_execution_engine import SqlAlchemyExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation, Expectation
from great_expectations.render.components import LegacyDiagnosticRendererType
from great_expectations.render.renderer.renderer import renderer

from dptext_etl import markup
from dptext_etl.checks.gate import Stage, judges, load
from dptext_etl.checks.gates.table_gates import RawColumnAbsent
from dptext_etl.checks.great_expectations import tallies
from dptext_etl.checks.great_expectations.tallies import BY_FILE, Counts, Tally, parse_policy, written
from dptext_etl.checks.published import as_columns
from dptext_etl.checks.verdict import ExpectationOutcome, VerdictRecord
from dptext_etl.errors import GateError, InputError, PolicyError, bare, seam
from dptext_etl.ledger.storage.store import resolve_url
from dptext_etl.policy import Policy, PolicyLike, resolve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")


class _TableExpectation(BatchExpectation):
    """Judges a table by one tally, and returns only counts under every result format."""

    policy: str

    tally: ClassVar[Callable[..., Callable[[], Tally]]]
    """Prepares the tally from the arguments in `success_keys`, which come by name."""

    @pydantic.validator("policy", pre=True)
    def _take_policy(cls, given: PolicyLike) -> str:  # noqa: N805  (a class method to pydantic's first version)
        """Take a policy or the path of its file, too, and store it written out; "file:PATH" is read later."""
        return given if isinstance(given, str) and given.startswith(("{", BY_FILE)) else written(resolve(given))

    success_keys: ClassVar[tuple[str, ...]] = ("policy",)

    @pydantic.root_validator(skip_on_failure=True)
    def _name_subject(cls, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N805
        """Name the gate in the sentence for pages: a suite has the same expectation several times."""
        sentence = (given["description"] or "").replace("{gate}", str(given.get("gate")))
        return {**given, "description": sentence or None}

    def _validate(self, metrics: Any, runtime_configuration: Any = None, execution_engine: Any = None) -> Any:  # noqa: ARG002
        with seam(f"evaluating {getattr(self, 'gate', 'the released text')}", GateError):
            domain = {"batch_id": self.batch_id}
            table, *_ = execution_engine.get_compute_domain(domain, domain_type=MetricDomainTypes.TABLE)
            given = tallies.read({name: getattr(self, name) for name in self.success_keys})
            if isinstance(execution_engine, SparkDFExecutionEngine):
                counts = self._count_on_spark(table, given)
            elif isinstance(execution_engine, SqlAlchemyExecutionEngine):
                with execution_engine.get_connection() as connection:
                    counts = self._count(tallies.sql_batches(connection, table, given["policy"]), given)
            else:
                counts = self._count([as_columns(table, parse_policy(given["policy"]).id)], given)
        problems = sum(count for name, count in counts.items() if name != "checked")
        return {"success": counts["checked"] > 0 and not problems, "result": {"observed_value": problems, **counts}}

    @classmethod
    def _count(cls, batches: Iterable[pl.DataFrame], given: dict[str, str]) -> Counts:
        tally = cls.tally(**given)()
        for batch in batches:
            tally.feed(batch)
        return tally.counts()

    @classmethod
    def _count_on_spark(cls, table: DataFrame, given: dict[str, str], *, reads_ledger: bool = False) -> Counts:
        if reads_ledger:
            tallies.require_reach(table, parse_policy(given["policy"]).ledger.url)
        return tallies.count_on_spark(cls.tally(**given), table)

    @classmethod
    @renderer(renderer_type=LegacyDiagnosticRendererType.OBSERVED_VALUE)
    def _diagnostic_observed_value_renderer(
        cls,
        configuration: Any = None,  # noqa: ARG003
        result: Any = None,
        runtime_configuration: Any = None,  # noqa: ARG003
    ) -> str:
        """Write the counts for a page of Data Docs; another name than the library's would be logged at import."""
        counts = {} if result is None else dict(result.result)
        counts.pop("observed_value", None)
        return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items()) or "not evaluated"


class ExpectOnlyReleasedText(_TableExpectation):
    """Expect all text of a table, nested or not, to be committed by the ledger for its row, or declared public.

    This is THE check to put downstream, on every table that was made from a release: joined, renamed, exploded, with
    more columns. Every cell that may hold text is looked up by the record id of its row, under whatever name its column
    has; the policy's kept columns, and those that `public` names, may hold other text, and ids of text are ids that the
    ledger knows. Bytes and objects are text that no one released, as is all text of a table without the id column.

    Not seen: text in a public column, in numbers or dates, in column names; values other than text
    that were computed from raw text; a release of another policy.
    """

    description: str | None = "All text was released for its row by the ledger, or is declared public."
    public: str = "[]"

    tally: ClassVar = staticmethod(tallies.released_text)
    success_keys: ClassVar[tuple[str, ...]] = ("policy", "public")
    args_keys: ClassVar[tuple[str, ...]] = ("public", "policy")

    @pydantic.validator("public", pre=True)
    def _take_names(cls, given: str | Sequence[str]) -> str:  # noqa: N805  (a class method to pydantic's first version)
        """Accept names, too, one as well as several; the stored value is written out."""
        return given if isinstance(given, str) and given.startswith("[") else _paths(given)

    @classmethod
    def _count_on_spark(cls, table: DataFrame, given: dict[str, str], **_: Any) -> Counts:
        from dptext_etl.engines.spark.session import metadata

        counts, entries = super()._count_on_spark(table, given, reads_ledger=True), metadata(table)
        return {**counts, "unreleased_in_metadata": entries} if entries else counts


class ExpectGateToPass(_TableExpectation):
    """Expect a gate to count no problem; one class for every gate that names its problems.

    Not seen: data that the gate does not read; its own description lists the defects that it catches. For tables that
    were made from a release, use `ExpectOnlyReleasedText`.
    """

    description: str | None = "Gate {gate} finds none of the problems that it counts."
    gate: str

    tally: ClassVar = staticmethod(tallies.gate)
    success_keys: ClassVar[tuple[str, ...]] = ("policy", "gate")
    args_keys: ClassVar[tuple[str, ...]] = ("gate", "policy")

    @classmethod
    def _count(cls, batches: Iterable[pl.DataFrame], given: dict[str, str]) -> Counts:
        # types are judged once: another batch of a database may hold only nulls
        return super()._count(islice(batches, 1) if given["gate"] == RawColumnAbsent.name else batches, given)

    @classmethod
    def _count_on_spark(cls, table: DataFrame, given: dict[str, str], **_: Any) -> Counts:
        from dptext_etl.engines.spark.session import metadata, polars_schema

        if given["gate"] != RawColumnAbsent.name:
            return super()._count_on_spark(table, given, reads_ledger=load(given["gate"]).reads_ledger)
        counts = cls._count([pl.DataFrame(schema=polars_schema(table))], given)
        return {**counts, "unknown": counts["unknown"] + metadata(table)}


def _paths(public: Sequence[str] | str) -> str:
    return json.dumps([public] if isinstance(public, str) else sorted(public))


def _suite_name(*parts: str) -> str:
    """Return the name of a suite, which pages show without escaping it."""
    return markup.html(" ".join(parts))


@bare
def suite_for(policy: PolicyLike, *, argument: str | None = None) -> gx.ExpectationSuite:
    """Return the suite of a policy, for the table that it publishes.

    Every gate for published tables that names its `problems` is an expectation of the suite. With `ids = "keyed"` or
    `"drop"`, only staging knows whose rows the table holds: a warning names the expectations that are excluded.
    """
    policy = resolve(policy)
    argument = argument or written(policy)
    gates = [gate for gate in judges(policy, Stage.PUBLISHED) if gate.problems]
    by_id = [gate.name for gate in gates if policy.ids != "keep" and policy.id in (gate.columns(policy) or ())]
    expectations = [ExpectGateToPass(gate=gate.name, policy=argument) for gate in gates if gate.name not in by_id]
    if policy.ids != "keep":
        names = ", ".join(f"ExpectGateToPass({name})" for name in by_id)
        msg = f"ids = {policy.ids!r}: the suite leaves out {names}; `dptext check POLICY` judges whose rows these are"
        warnings.warn(msg, stacklevel=2)
    return gx.ExpectationSuite(name=_suite_name(policy.dataset, policy.release), expectations=expectations)


def downstream_suite(
    policy: PolicyLike, public: Sequence[str] | str = (), *, argument: str | None = None
) -> gx.ExpectationSuite:
    """Return the suite of a table that was made from a release: all of its text is released, or declared public.

    Raises:
        PolicyError: The release is shuffled: its texts have no record ids by which they could be found.
    """
    policy = resolve(policy)
    if policy.shuffled is not None:
        msg = "a shuffled release holds no record ids, so the cells of a table made from it cannot be looked up"
        raise PolicyError(msg, "`dptext check` and the suite of the release itself judge the published table")
    if policy.ids != "keep":
        msg = f"with ids = {policy.ids!r} a published table does not say whose rows these are"
        raise PolicyError(msg, "`suite_for` and `dptext check POLICY` judge the published table itself")
    argument = argument or written(policy)
    expectations: list[Expectation] = [ExpectOnlyReleasedText(policy=argument, public=_paths(public))]
    name = _suite_name(policy.dataset, policy.release, "downstream")
    return gx.ExpectationSuite(name=name, expectations=expectations)


@bare
def validate(frame: pl.DataFrame | pd.DataFrame | DataFrame, policy: PolicyLike) -> VerdictRecord:
    """Validate a released table against its policy's suite."""
    return validate_suite(frame, suite_for(policy))


@bare
def validate_downstream(
    frame: pl.DataFrame | pd.DataFrame | DataFrame, policy: PolicyLike, public: Sequence[str] | str = ()
) -> VerdictRecord:
    """Validate a table that was made from a release: all of its text is released, or declared public."""
    return validate_suite(frame, downstream_suite(policy, public))


def validate_suite(frame: pl.DataFrame | pd.DataFrame | DataFrame, suite: gx.ExpectationSuite) -> VerdictRecord:
    """Validate a table against a suite, such as one of `suite_for` with more expectations."""
    with _validating() as context:
        if type(frame).__module__.startswith("pyspark.sql."):
            source: Any = context.data_sources.add_spark("dptext", persist=False)
            table: Any = frame
        else:
            source = context.data_sources.add_pandas("dptext")
            in_polars = isinstance(frame, pl.DataFrame)
            table = as_columns(frame).to_pandas(use_pyarrow_extension_array=True) if in_polars else frame
        definition = source.add_dataframe_asset("released").add_batch_definition_whole_dataframe("whole")
        return judged(definition.get_batch({"dataframe": table}), suite)


@bare
def validate_table(
    url: str, table: str, policy: PolicyLike, *, schema: str | None = None, suite: gx.ExpectationSuite | None = None
) -> VerdictRecord:
    """Validate a released table of a database against its policy's suite."""
    import sqlalchemy

    place = resolve_url(url)
    with _validating() as context:
        sources = context.data_sources
        add: Any = sources.add_sqlite if place.startswith("sqlite:") else sources.add_sql
        if place.startswith("postgresql"):
            # name the driver where the URL does not, and UTF-8, also for a database without an encoding
            address = sqlalchemy.make_url(place)
            if "+" not in address.drivername:
                address = address.set(drivername=f"{address.drivername}+psycopg")
            address = address.set(query={"client_encoding": "UTF8", **address.query})
            place, add = address.render_as_string(hide_password=False), sources.add_postgres
        named: dict[str, Any] = {} if schema is None else {"schema_name": schema}
        asset = add("dptext", connection_string=place).add_table_asset("released", table_name=table, **named)
        return judged(asset.add_batch_definition_whole_table("whole").get_batch(), suite or suite_for(policy))


@contextmanager
def _validating() -> Iterator[Any]:
    with seam("validating with Great Expectations", GateError):
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = ProgressBarsConfig(globally=False, metric_calculations=False)
        yield context


def judged(batch: Any, suite: gx.ExpectationSuite) -> VerdictRecord:
    outcomes = []
    for result in batch.validate(suite, result_format=ResultFormat.SUMMARY.value).results:
        config, success = result.expectation_config, bool(result.success)
        counts = {name: int(value) for name, value in result.result.items() if name != "observed_value"}
        errored = not success and not counts
        outcomes.append(ExpectationOutcome(config.type, config.kwargs.get("gate"), success, errored, counts))
    return VerdictRecord(suite.name, len(suite.expectations), tuple(outcomes))


STORE = Path("gx", "expectations")
"""Where a file context keeps its suites, below the root of a project."""
_NAMES = uuid.UUID("6f0a3a53-6a54-5c0e-9d2f-5d4f6c1b7a10")


def write_suite(
    policy: Path, output: Path = STORE, *, downstream: bool = False, public: Sequence[str] = ()
) -> tuple[str, Path]:
    """Write a policy's suite as a file context of Great Expectations stores it, and return its name and its file.

    The suite is called like the dataset, and its ids follow from the dataset: written again, also for a new release, it
    replaces itself, and checkpoints keep it. Its expectations name the policy file as it was given here, and read
    it when they are evaluated.
    """
    read, argument = Policy.load(policy), f"{BY_FILE}{policy.as_posix()}"
    suite = downstream_suite(read, public, argument=argument) if downstream else suite_for(read, argument=argument)
    name = _suite_name(read.dataset, *(["downstream"] if downstream else []))
    stored: dict[str, Any] = {**suite.to_json_dict(), "name": name, "id": _id(name)}
    ids = [_id(name, item["type"], str(item["kwargs"].get("gate"))) for item in stored["expectations"]]
    stored["expectations"] = [{**item, "id": own} for item, own in zip(stored["expectations"], ids, strict=True)]
    stored["meta"] = {"great_expectations_version": gx.__version__}
    if output.suffix != ".json" and ("/" in name or "\\" in name or markup.one_line(name) != name):
        raise InputError("the name of the dataset cannot be the name of a file", "name a file: --output FILE.json")
    path = output if output.suffix == ".json" else output / f"{name}.json"
    with seam("writing the suite", InputError, "the folder must be writable by you"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{json.dumps(stored, indent=2, sort_keys=True)}\n", encoding="utf-8")
    return name, path


def _id(*about: str) -> str:
    return str(uuid.uuid5(_NAMES, json.dumps(about)))
