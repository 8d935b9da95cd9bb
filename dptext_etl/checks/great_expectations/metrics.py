"""Define the metrics behind the expectations: whole numbers, computed by us, in every engine.

Great Expectations quotes the values that it rejects, in results, in exceptions and in Data Docs, whatever a suite asks
for (its issue 8780). These classes hand out counts, in every result format:

* Every metric is ours and returns whole numbers. The values that a map expectation would collect are never asked for,
  and Great Expectations itself evaluates no frame, where Spark's message could quote a cell.
* `Redacted` lets nothing but numbers into a result, whatever result format a caller sets.
* Rows of a table of a database come here in batches over one connection, and SQL computes nothing. A type that the
  database does not keep (a date in SQLite) arrives as another type, whose ids the ledger does not know: it fails.
* A metric that fails raises our own error with a type's name, so no message and no traceback holds a cell.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import polars as pl
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.core.result_format import ResultFormat
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.execution_engine.sparkdf_execution_engine import SparkDFExecutionEngine
from great_expectations.execution_engine.sqlalchemy_execution_engine import SqlAlchemyExecutionEngine
from great_expectations.expectations.expectation_configuration import parse_result_format
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider

from dptext_etl.checks.candidate import BATCH_ROWS
from dptext_etl.checks.great_expectations import spark_tallies, tallies
from dptext_etl.checks.great_expectations.tallies import Counts, Tally, known
from dptext_etl.checks.table_metadata import published_types, shown, without_published
from dptext_etl.errors import GateError, seam

if TYPE_CHECKING:
    from sqlalchemy import Connection


os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")


class Redacted:
    """Lets an expectation hand out counts and nothing else, under every result format."""

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


def _evaluated(engine: type, count: Callable[[Any, Any, Any, dict[str, str]], Counts]) -> Any:
    """Make the method that counts in one engine; Great Expectations fixes its arguments and makes it a class method."""

    @metric_value(engine=engine)
    def evaluate(  # noqa: PLR0917
        cls: Any,
        execution_engine: Any,
        metric_domain_kwargs: Any,
        metric_value_kwargs: Any,
        metrics: Any,  # noqa: ARG001
        runtime_configuration: Any,  # noqa: ARG001
    ) -> Counts:
        with seam(f"evaluating {cls.metric_name}", GateError):
            domain = execution_engine.get_compute_domain(metric_domain_kwargs, domain_type=MetricDomainTypes.TABLE)
            return count(cls, execution_engine, domain[0], tallies.read(metric_value_kwargs))

    return evaluate


def _counted_in_sql(cls: Any, execution_engine: Any, table: Any, given: dict[str, str]) -> Counts:
    with execution_engine.get_connection() as connection:
        counts: Counts = cls.count_in_sql(connection, table, **given)
    return counts


class TableMetric(TableMetricProvider):
    """Counts over a whole table."""

    metric_name: str  # its name in Great Expectations
    # prepares the counting from the expectation's arguments, which come by name
    tally: ClassVar[Callable[..., Callable[[], Tally]]]

    @classmethod
    def count(cls, table: pl.DataFrame, **arguments: str) -> Counts:
        """Count over a table in memory."""
        return tallies.count(cls.tally(**arguments), table)

    @classmethod
    def count_on_spark(cls, table: Any, **arguments: str) -> Counts:
        """Count over a Spark frame."""
        return spark_tallies.count(cls.tally(**arguments), table)

    @classmethod
    def count_in_sql(cls, connection: Any, table: Any, **arguments: str) -> Counts:
        """Count over a table of a database."""
        return _count_in_sql(cls.tally(**arguments), connection, table)

    _pandas = _evaluated(PandasExecutionEngine, lambda cls, _, table, given: cls.count(shown(table), **given))
    _spark = _evaluated(SparkDFExecutionEngine, lambda cls, _, table, given: cls.count_on_spark(table, **given))
    _sql = _evaluated(SqlAlchemyExecutionEngine, _counted_in_sql)


class Columns(TableMetric):
    """Counts columns that are missing, unknown or of another type."""

    metric_name = "table.dptext_columns"
    value_keys = ("policy",)

    @classmethod
    def count(cls, table: pl.DataFrame, **arguments: str) -> Counts:
        """Compare the columns of a table in memory."""
        types = published_types(known(arguments["policy"]).policy)
        return tallies.columns(without_published(table, types).schema, **arguments)

    @classmethod
    def count_on_spark(cls, table: Any, **arguments: str) -> Counts:
        """Compare the columns of a Spark frame."""
        counts = tallies.columns(spark_tallies.polars_schema(table), **arguments)
        return {**counts, "unknown": counts["unknown"] + spark_tallies.metadata(table)}

    @classmethod
    def count_in_sql(cls, connection: Any, table: Any, **arguments: str) -> Counts:
        """Compare the columns of a table of a database."""
        return tallies.columns(_sql_schema(connection, table), **arguments)


class Canaries(TableMetric):
    """Counts pseudo-words of canaries."""

    metric_name = "table.dptext_canaries"
    value_keys = ("policy",)
    tally = staticmethod(tallies.canaries)


class Ledgered(TableMetric):
    """Counts cells that the ledger does not vouch for."""

    metric_name = "table.dptext_ledgered"
    value_keys = ("policy",)
    tally = staticmethod(tallies.ledgered)

    @classmethod
    def count_on_spark(cls, table: Any, **arguments: str) -> Counts:
        """Look up the rows of a Spark frame, where the executors can reach the ledger."""
        spark_tallies.require_reach(table, known(arguments["policy"]).policy.ledger.url)
        return super().count_on_spark(table, **arguments)


class ReleasedText(TableMetric):
    """Counts cells of text that are neither released nor declared public."""

    metric_name = "table.dptext_released_text"
    value_keys = ("policy", "public")
    tally = staticmethod(tallies.released_text)

    @classmethod
    def count_on_spark(cls, table: Any, **arguments: str) -> Counts:
        """Look up the cells of a Spark frame, where the executors can reach the ledger."""
        spark_tallies.require_reach(table, known(arguments["policy"]).policy.ledger.url)
        counts, metadata = super().count_on_spark(table, **arguments), spark_tallies.metadata(table)
        return {**counts, "unreleased_in_metadata": metadata} if metadata else counts


class OutputSet(TableMetric):
    """Counts texts with a word outside the output set."""

    metric_name = "table.dptext_output_set"
    value_keys = ("policy", "column")
    tally = staticmethod(tallies.words)


class GateCounts(TableMetric):
    """Counts what a gate calls problems."""

    metric_name = "table.dptext_gate"
    value_keys = ("policy", "gate")
    tally = staticmethod(tallies.gate)


def _sql_batches(connection: Connection, table: Any) -> Iterator[pl.DataFrame]:
    """Read a table, or anything that can be selected from, in batches; an empty table gives one batch without rows."""
    import sqlalchemy

    found = connection.execution_options(stream_results=True).execute(
        sqlalchemy.select(sqlalchemy.text("*")).select_from(table)
    )
    names = list(found.keys())
    yield pl.DataFrame(schema=names)
    for rows in found.partitions(BATCH_ROWS):
        cells = zip(*rows, strict=True)
        yield pl.DataFrame([_column(name, list(column)) for name, column in zip(names, cells, strict=True)])


def _sql_schema(connection: Connection, table: Any) -> pl.Schema:
    """Return the columns and the types of their cells; a column that holds only nulls counts as text."""
    found = pl.Schema()
    for place, batch in enumerate(_sql_batches(connection, table)):
        found = pl.Schema({name: pl.String() if dtype == pl.Null else dtype for name, dtype in batch.schema.items()})
        if place:
            break
    return found


def _count_in_sql(make: Callable[[], Tally], connection: Connection, table: Any) -> Counts:
    tally = make()
    for batch in _sql_batches(connection, table):
        tally.feed(batch)
    return tally.counts()


def _column(name: str, cells: list[Any]) -> pl.Series:
    found = pl.Series(name, cells, strict=True)
    return found.cast(pl.String) if found.dtype == pl.Null else found
