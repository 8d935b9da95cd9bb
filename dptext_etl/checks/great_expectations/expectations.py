"""Great Expectations over released data: the same gates as a suite, without a value, an id or a library's message.

Great Expectations quotes the values that it rejects, in results, in exceptions and in Data Docs, whatever a suite asks
for (its issue 8780). The classes here hand out counts, in every result format:

* every metric is one of ours and returns whole numbers: the values that a map expectation would collect are never
  asked for, and nothing of Great Expectations' own evaluates a frame, where Spark's message could quote a cell;
* `Redacted` lets nothing but numbers into a result, whatever result format a caller sets;
* a metric that fails raises our own error with a type's name, so no message and no traceback holds a cell.

An expectation's arguments are stored in suites, results and pages. They are a policy: names, parameters, references.
Tables are pandas or Spark frames, classic or Spark Connect, or tables of a database.

Example:
    >>> from dptext_etl.checks.great_expectations.expectations import validate  # doctest: +SKIP
    >>> validate(released, Policy.load("privacy.toml")).require()  # doctest: +SKIP
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import polars as pl

from dptext_etl.checks.great_expectations import spark_tallies, sql_tallies, tallies
from dptext_etl.checks.great_expectations.tallies import Counts, Tally, known, written
from dptext_etl.checks.record import ExpectationOutcome, VerdictRecord
from dptext_etl.errors import GateError, seam
from dptext_etl.ledger.storage.store import resolved
from dptext_etl.policy import Policy

os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")

import great_expectations as gx
import pandas as pd
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.core.result_format import ResultFormat
from great_expectations.data_context.types.base import ProgressBarsConfig
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.execution_engine.sparkdf_execution_engine import SparkDFExecutionEngine
from great_expectations.execution_engine.sqlalchemy_execution_engine import SqlAlchemyExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation, Expectation
from great_expectations.expectations.expectation_configuration import parse_result_format
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from great_expectations.render.components import LegacyDiagnosticRendererType
from great_expectations.render.renderer.renderer import renderer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Redacted:
    """Lets an expectation say counts and nothing else, under every result format."""

    def get_validation_dependencies(
        self, execution_engine: Any = None, runtime_configuration: Any = None, **_: Any
    ) -> Any:
        """Ask for counts only; values, rows and indices of what failed are never computed."""
        asked = parse_result_format((runtime_configuration or {}).get("result_format", ResultFormat.SUMMARY))
        modest = {**(runtime_configuration or {}), "result_format": {"result_format": ResultFormat.BOOLEAN_ONLY}}
        needed = super().get_validation_dependencies(execution_engine=execution_engine, runtime_configuration=modest)  # type: ignore[misc]
        needed.result_format = {"result_format": asked["result_format"]}
        return needed

    def _validate(self, metrics: Any, runtime_configuration: Any = None, execution_engine: Any = None) -> Any:  # noqa: ARG002
        counts = self._counts(metrics)
        problems = sum(count for name, count in counts.items() if name != "checked")
        return {"success": counts["checked"] > 0 and not problems, "result": {"observed_value": problems, **counts}}

    def _counts(self, metrics: Any) -> Counts:
        """Return how much was "checked", and how many of each problem there are."""
        raise NotImplementedError


class _TableMetric(TableMetricProvider):
    """Counts over a whole table; an expectation's arguments come by name."""

    metric_name: str
    tally: ClassVar[Callable[..., Callable[[], Tally]]]
    """Prepares the counting."""

    @classmethod
    def count(cls, table: pl.DataFrame, **arguments: str) -> Counts:
        """Count over a table that is here."""
        return tallies.count(cls.tally(**arguments), table)

    @classmethod
    def count_on_spark(cls, table: Any, **arguments: str) -> Counts:
        """Count over a Spark frame."""
        return spark_tallies.count(cls.tally(**arguments), table)

    @classmethod
    def count_in_sql(cls, connection: Any, table: Any, **arguments: str) -> Counts:
        """Count over a table of a database."""
        return sql_tallies.count(cls.tally(**arguments), connection, table)

    @metric_value(engine=PandasExecutionEngine)
    def _pandas(
        cls,  # noqa: N805  (the decorator makes it a class method)
        execution_engine: Any,
        metric_domain_kwargs: Any,
        metric_value_kwargs: Any,
        metrics: Any,  # noqa: ARG002
        runtime_configuration: Any,  # noqa: ARG002
    ) -> Counts:
        with seam(f"evaluating {cls.metric_name}", GateError):
            table = _whole(execution_engine, metric_domain_kwargs)
            counts: Counts = cls.count(pl.from_pandas(table), **metric_value_kwargs)
            return counts

    @metric_value(engine=SparkDFExecutionEngine)
    def _spark(
        cls,  # noqa: N805
        execution_engine: Any,
        metric_domain_kwargs: Any,
        metric_value_kwargs: Any,
        metrics: Any,  # noqa: ARG002
        runtime_configuration: Any,  # noqa: ARG002
    ) -> Counts:
        with seam(f"evaluating {cls.metric_name}", GateError):
            table = _whole(execution_engine, metric_domain_kwargs)
            counts: Counts = cls.count_on_spark(table, **metric_value_kwargs)
            return counts

    @metric_value(engine=SqlAlchemyExecutionEngine)
    def _sql(
        cls,  # noqa: N805
        execution_engine: Any,
        metric_domain_kwargs: Any,
        metric_value_kwargs: Any,
        metrics: Any,  # noqa: ARG002
        runtime_configuration: Any,  # noqa: ARG002
    ) -> Counts:
        with seam(f"evaluating {cls.metric_name}", GateError):
            table = _whole(execution_engine, metric_domain_kwargs)
            with execution_engine.get_connection() as connection:
                counts: Counts = cls.count_in_sql(connection, table, **metric_value_kwargs)
            return counts


def _whole(execution_engine: Any, domain: Any) -> Any:
    return execution_engine.get_compute_domain(domain, domain_type=MetricDomainTypes.TABLE)[0]


class _Columns(_TableMetric):
    metric_name = "table.dptext_columns"
    value_keys = ("policy",)

    @classmethod
    def count(cls, table: pl.DataFrame, **arguments: str) -> Counts:
        return tallies.columns(table.schema, **arguments)

    @classmethod
    def count_on_spark(cls, table: Any, **arguments: str) -> Counts:
        return tallies.columns(spark_tallies.polars_schema(table), **arguments)

    @classmethod
    def count_in_sql(cls, connection: Any, table: Any, **arguments: str) -> Counts:
        return tallies.columns(sql_tallies.schema(connection, table), **arguments)


class _Canaries(_TableMetric):
    metric_name = "table.dptext_canaries"
    value_keys = ("policy",)
    tally = staticmethod(tallies.canaries)


class _Ledgered(_TableMetric):
    metric_name = "table.dptext_ledgered"
    value_keys = ("policy",)
    tally = staticmethod(tallies.ledgered)

    @classmethod
    def count_on_spark(cls, table: Any, **arguments: str) -> Counts:
        spark_tallies.require_reach(table, known(arguments["policy"]).policy.ledger.url)
        return super().count_on_spark(table, **arguments)


class _OutputSet(_TableMetric):
    metric_name = "table.dptext_output_set"
    value_keys = ("policy", "column")
    tally = staticmethod(tallies.words)


class _TableExpectation(Redacted, BatchExpectation):
    """Judges a table by one metric of ours."""

    policy: str

    success_keys: ClassVar[tuple[str, ...]] = ("policy",)
    domain_keys: ClassVar[tuple[str, ...]] = ("batch_id",)

    def _counts(self, metrics: Any) -> Counts:
        counts: Counts = metrics[self.metric_dependencies[0]]
        return counts

    @classmethod
    @renderer(renderer_type=LegacyDiagnosticRendererType.OBSERVED_VALUE)
    def _observed(cls, configuration: Any = None, result: Any = None, **_: Any) -> str:  # noqa: ARG003
        """Write the counts for a page of Data Docs."""
        counts = {} if result is None else dict(result.result)
        counts.pop("observed_value", None)
        return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items()) or "not evaluated"


class ExpectTableColumnsToBePublished(_TableExpectation):
    """Expect exactly the columns that the policy publishes, text columns as strings."""

    description: str | None = (
        "The table has the columns that the policy publishes, text columns as strings, and no others."
    )
    metric_dependencies: ClassVar[tuple[str, ...]] = (_Columns.metric_name,)


class ExpectNoCanaryToSurvive(_TableExpectation):
    """Expect none of the canaries' pseudo-words in any column, in any writing."""

    description: str | None = "No pseudo-word of a canary row stands in any column, in any writing."
    metric_dependencies: ClassVar[tuple[str, ...]] = (_Canaries.metric_name,)


class ExpectReleasedRowsToBeLedgered(_TableExpectation):
    """Expect every released cell to have a committed spend in the policy's ledger, and the committed bytes."""

    description: str | None = "Every released cell has a committed spend in the ledger, and the committed bytes."
    metric_dependencies: ClassVar[tuple[str, ...]] = (_Ledgered.metric_name,)


class ExpectColumnValuesToStayInOutputSet(_TableExpectation):
    """Expect every word of a text column to be an output word of its mechanism; all of them, in all rows."""

    description: str | None = "Every word is an output word of the column's mechanism."
    column: str
    row_condition: Literal[None] = None

    metric_dependencies: ClassVar[tuple[str, ...]] = (_OutputSet.metric_name,)
    success_keys: ClassVar[tuple[str, ...]] = ("policy", "column")
    args_keys: ClassVar[tuple[str, ...]] = ("column", "policy")


def suite_for(policy: Policy) -> gx.ExpectationSuite:
    """Return the suite of a policy, for the table that it publishes.

    Faithful columns, which are never published, have no fixed output words and get no expectation about them.
    """
    said = written(policy)
    expectations: list[Expectation] = [
        ExpectTableColumnsToBePublished(policy=said),
        ExpectNoCanaryToSurvive(policy=said),
        ExpectReleasedRowsToBeLedgered(policy=said),
    ]
    expectations += [
        ExpectColumnValuesToStayInOutputSet(column=spec.name, policy=said)
        for spec, column in zip(policy.columns, policy.column_policies(), strict=True)
        if column.mechanism.publishable
    ]
    return gx.ExpectationSuite(name=f"{policy.dataset} {policy.release}", expectations=expectations)


def validate(frame: pl.DataFrame | pd.DataFrame | DataFrame, policy: Policy) -> VerdictRecord:
    """Validate a released table against its policy's suite.

    Args:
        frame: The released table, without canary rows: Polars, pandas or Spark.
        policy: Its policy.

    Returns:
        The outcome, with counts; ask `VerdictRecord.require`, or write it down and read it where it decides.
    """
    with _validating() as context:
        if spark_tallies.is_spark(frame):
            source: Any = context.data_sources.add_spark("dptext", persist=False)
            table: Any = frame
        else:
            source = context.data_sources.add_pandas("dptext")
            table = frame.to_pandas(use_pyarrow_extension_array=True) if isinstance(frame, pl.DataFrame) else frame
        definition = source.add_dataframe_asset("released").add_batch_definition_whole_dataframe("whole")
        return _judged(definition.get_batch({"dataframe": table}), suite_for(policy))


def validate_table(url: str, table: str, policy: Policy, *, schema: str | None = None) -> VerdictRecord:
    """Validate a released table of a database against its policy's suite.

    Args:
        url: The database: "sqlite:///PATH", "postgresql://HOST/DATABASE", another URL of SQLAlchemy, or "env:NAME".
        table: Name of the released table, without canary rows.
        policy: Its policy.
        schema: Schema of the table, where it is not the connection's own.

    Returns:
        As `validate`.

    Raises:
        LedgerError: "env:NAME" names no variable that holds a URL.
        GateError: The database cannot be read; what it said is not repeated.
    """
    place = resolved(url)
    with _validating() as context:
        sources = context.data_sources
        add: Any = sources.add_sqlite if place.startswith("sqlite:") else sources.add_sql
        if place.startswith("postgresql"):
            place, add = _postgres(place), sources.add_postgres
        named: dict[str, Any] = {} if schema is None else {"schema_name": schema}
        asset = add("dptext", connection_string=place).add_table_asset("released", table_name=table, **named)
        return _judged(asset.add_batch_definition_whole_table("whole").get_batch(), suite_for(policy))


def _postgres(url: str) -> str:
    """Name the driver where the URL does not, and UTF-8, also for a database without an encoding."""
    import sqlalchemy

    named = sqlalchemy.make_url(url)
    if "+" not in named.drivername:
        named = named.set(drivername=f"{named.drivername}+psycopg")
    return named.set(query={"client_encoding": "UTF8", **named.query}).render_as_string(hide_password=False)


@contextmanager
def _validating() -> Iterator[Any]:
    with seam("validating with Great Expectations", GateError):
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = ProgressBarsConfig(globally=False, metric_calculations=False)
        yield context


def _judged(batch: Any, suite: gx.ExpectationSuite) -> VerdictRecord:
    results = batch.validate(suite, result_format=ResultFormat.SUMMARY.value).results
    return VerdictRecord(suite.name, len(suite.expectations), tuple(map(_outcome, results)))


def _outcome(result: Any) -> ExpectationOutcome:
    about = result.expectation_config
    counts = {name: int(value) for name, value in result.result.items() if name != "observed_value"}
    errored = not result.success and not counts
    return ExpectationOutcome(about.type, about.kwargs.get("column"), bool(result.success), errored, counts)
