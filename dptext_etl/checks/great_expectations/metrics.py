"""Define the metrics behind the expectations: whole numbers, computed by us, in every engine.

Great Expectations quotes the values that it rejects, in results, in exceptions and in Data Docs, whatever a suite asks
for (its issue 8780). These classes hand out counts, in every result format:

* Every metric is ours and returns whole numbers. The values that a map expectation would collect are never asked for,
  and Great Expectations itself evaluates no frame, where Spark's message could quote a cell.
* Rows of a table of a database come here in batches over one connection, and SQL computes nothing. SQLite keeps dates
  and times as strings: kept columns of these types are read. An id of such a type is one that the ledger does not know.
* A metric that fails raises our own error with a type's name, so no message and no traceback holds a cell.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import polars as pl
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.execution_engine.sparkdf_execution_engine import SparkDFExecutionEngine
from great_expectations.execution_engine.sqlalchemy_execution_engine import SqlAlchemyExecutionEngine
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider

from dptext_etl.checks.gate import BATCH_ROWS, Candidate
from dptext_etl.checks.gates.table_gates import RawColumnAbsent
from dptext_etl.checks.great_expectations import tallies
from dptext_etl.checks.great_expectations.tallies import Counts, Tally, parse_policy
from dptext_etl.checks.published import published_types, shown
from dptext_etl.data_types import parsed
from dptext_etl.errors import GateError, seam

if TYPE_CHECKING:
    from sqlalchemy import Connection


os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")


_TIME = r"\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?"
_MOMENT = rf"^(\d{{4}}-\d\d-\d\d([ T]{_TIME})?|{_TIME})$"
"""A date, a time, or both, as SQLite keeps them."""


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


def _count(make: Callable[[], Tally], batches: Iterable[pl.DataFrame]) -> Counts:
    tally = make()
    for batch in batches:
        tally.feed(batch)
    return tally.counts()


def _count_in_sql(cls: Any, execution_engine: Any, table: Any, arguments: dict[str, str]) -> Counts:
    with execution_engine.get_connection() as connection:
        counts: Counts = cls.count_in_sql(connection, table, **arguments)
    return counts


class TableMetric(TableMetricProvider):
    """Counts over a whole table."""

    metric_name: str  # its name in Great Expectations
    value_keys: tuple[str, ...] = ("policy",)
    # prepares the counting from the expectation's arguments, which come by name
    tally: ClassVar[Callable[..., Callable[[], Tally]]]
    needs_ledger: ClassVar[bool] = False  # whether the executors of Spark must reach the ledger

    @classmethod
    def count(cls, table: pl.DataFrame, **arguments: str) -> Counts:
        return _count(cls.tally(**arguments), [table])

    @classmethod
    def count_on_spark(cls, table: Any, **arguments: str) -> Counts:
        if cls.needs_ledger:
            tallies.require_reach(table, parse_policy(arguments["policy"]).ledger.url)
        return tallies.count_on_spark(cls.tally(**arguments), table)

    @classmethod
    def count_in_sql(cls, connection: Any, table: Any, **arguments: str) -> Counts:
        return _count(cls.tally(**arguments), _sql_batches(connection, table, arguments["policy"]))

    _pandas = _evaluated(PandasExecutionEngine, lambda cls, _, table, given: cls.count(shown(table), **given))
    _spark = _evaluated(SparkDFExecutionEngine, lambda cls, _, table, given: cls.count_on_spark(table, **given))
    _sql = _evaluated(SqlAlchemyExecutionEngine, _count_in_sql)


def _compare_columns(schema: pl.Schema, policy: str) -> Counts:
    read = parse_policy(policy)
    gate = RawColumnAbsent(Candidate.published(read))
    gate.rewritten_rows(schema.to_frame())
    counts = gate.verdict().counts
    return {"checked": len(schema), **{name: int(counts[name]) for name in ("missing", "unknown", "mistyped")}}


class Columns(TableMetric):
    """Counts columns that are missing, unknown or of another type."""

    metric_name = "table.dptext_columns"

    @classmethod
    def count(cls, table: pl.DataFrame, **arguments: str) -> Counts:
        return _compare_columns(table.schema, **arguments)

    @classmethod
    def count_on_spark(cls, table: Any, **arguments: str) -> Counts:
        from dptext_etl.engines.spark.spark_types import metadata, polars_schema

        counts = _compare_columns(polars_schema(table), **arguments)
        return {**counts, "unknown": counts["unknown"] + metadata(table)}

    @classmethod
    def count_in_sql(cls, connection: Any, table: Any, **arguments: str) -> Counts:
        return _compare_columns(_sql_schema(connection, table, arguments["policy"]), **arguments)


class Canaries(TableMetric):
    """Counts pseudo-words of canaries."""

    metric_name = "table.dptext_canaries"
    tally = staticmethod(tallies.canaries)


class Ledgered(TableMetric):
    """Counts cells that the ledger does not vouch for."""

    metric_name = "table.dptext_ledgered"
    tally = staticmethod(tallies.ledgered)
    needs_ledger = True


class ReleasedText(TableMetric):
    """Counts cells of text that are neither released nor declared public."""

    metric_name = "table.dptext_released_text"
    value_keys = ("policy", "public")
    tally = staticmethod(tallies.released_text)
    needs_ledger = True

    @classmethod
    def count_on_spark(cls, table: Any, **arguments: str) -> Counts:
        from dptext_etl.engines.spark.spark_types import metadata

        counts, entries = super().count_on_spark(table, **arguments), metadata(table)
        return {**counts, "unreleased_in_metadata": entries} if entries else counts


class OutputSet(TableMetric):
    """Counts texts with a word outside the output set."""

    metric_name = "table.dptext_output_set"
    value_keys = ("policy", "column")
    tally = staticmethod(tallies.words)


class GateCounts(TableMetric):
    """Counts the problems of a gate."""

    metric_name = "table.dptext_gate"
    value_keys = ("policy", "gate")
    tally = staticmethod(tallies.gate)


def _sql_batches(connection: Connection, table: Any, policy: str) -> Iterator[pl.DataFrame]:
    """Read a table, or anything that can be selected from, in batches; an empty table gives one batch without rows."""
    import sqlalchemy

    query = sqlalchemy.select(sqlalchemy.text("*")).select_from(table)
    result = connection.execution_options(stream_results=True).execute(query)
    names = list(result.keys())
    moments = _moments(policy) if connection.dialect.name == "sqlite" else frozenset[str]()
    yield pl.DataFrame(schema=names)
    for rows in result.partitions(BATCH_ROWS):
        cells = zip(*rows, strict=True)
        yield pl.DataFrame(
            [_column(name, list(column), moment=name in moments) for name, column in zip(names, cells, strict=True)]
        )


def _sql_schema(connection: Connection, table: Any, policy: str) -> pl.Schema:
    """Return the columns and the types of their cells; a column that holds only nulls counts as text."""
    *_, batch = islice(_sql_batches(connection, table, policy), 2)
    return pl.Schema({name: pl.String() if dtype == pl.Null else dtype for name, dtype in batch.schema.items()})


def _column(name: str, cells: list[Any], *, moment: bool) -> pl.Series:
    column = pl.Series(name, cells, strict=True)
    if moment and column.dtype == pl.String and column.str.contains(_MOMENT).all():
        return pl.Series(name, [None] * len(cells), dtype=pl.Date)  # only its type is judged
    return column.cast(pl.String) if column.dtype == pl.Null else column


def _moments(policy: str) -> frozenset[str]:
    """Return the kept columns that were published with dates or times."""
    read = parse_policy(policy)
    types = {name: parsed(kind) for name, kind in published_types(read).items() if name in read.kept_columns}
    return frozenset(name for name, dtype in types.items() if dtype is not None and dtype.is_temporal())
