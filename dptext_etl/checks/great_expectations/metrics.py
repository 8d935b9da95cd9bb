"""Define the metrics behind the expectations: whole numbers, computed by us, in every engine.

Great Expectations quotes the values that it rejects, in results, in exceptions and in Data Docs, whatever a suite asks
for (its issue 8780). These classes hand out counts, in every result format:

* Every metric is ours and returns whole numbers. The values that a map expectation would collect are never asked for,
  and Great Expectations itself evaluates no frame, where Spark's message could quote a cell.
* `Redacted` lets nothing but numbers into a result, whatever result format a caller sets.
* A metric that fails raises our own error with a type's name, so no message and no traceback holds a cell.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar

import polars as pl

from dptext_etl.checks.great_expectations import released_text, spark_tallies, sql_tallies, tallies
from dptext_etl.checks.great_expectations.tallies import Counts, Tally, known
from dptext_etl.checks.kept_types import published_types, without_published
from dptext_etl.checks.table_metadata import shown
from dptext_etl.errors import GateError, seam

os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")

from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.core.result_format import ResultFormat
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.execution_engine.sparkdf_execution_engine import SparkDFExecutionEngine
from great_expectations.execution_engine.sqlalchemy_execution_engine import SqlAlchemyExecutionEngine
from great_expectations.expectations.expectation_configuration import parse_result_format
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider


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


class TableMetric(TableMetricProvider):
    """Counts over a whole table.

    Attributes:
        metric_name: Its name in Great Expectations.
        tally: Prepares the counting from the expectation's arguments, which come by name.
    """

    metric_name: str
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
            counts: Counts = cls.count(shown(table), **tallies.read(metric_value_kwargs))
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
            counts: Counts = cls.count_on_spark(table, **tallies.read(metric_value_kwargs))
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
                counts: Counts = cls.count_in_sql(connection, table, **tallies.read(metric_value_kwargs))
            return counts


def _whole(execution_engine: Any, domain: Any) -> Any:
    return execution_engine.get_compute_domain(domain, domain_type=MetricDomainTypes.TABLE)[0]


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
        return tallies.columns(sql_tallies.schema(connection, table), **arguments)


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
    tally = staticmethod(released_text.released_text)

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
