"""Judge released data with Great Expectations: the gates as a suite, without a value, an id or a library's message.

`metrics` says how cells stay out of results, errors and Data Docs. An expectation's arguments are stored in suites,
results and pages; they are a policy: names, parameters, references. Tables are pandas or Spark frames, classic or Spark
Connect, or tables of a database.

Example:
    >>> from dptext_etl.checks.great_expectations.expectations import validate  # doctest: +SKIP
    >>> validate(released, "privacy.toml").require()  # doctest: +SKIP
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import polars as pl

from dptext_etl.checks.candidate import Stage
from dptext_etl.checks.catalog import judges
from dptext_etl.checks.great_expectations import spark_tallies
from dptext_etl.checks.great_expectations.metrics import (
    Canaries,
    Columns,
    GateCounts,
    Ledgered,
    OutputSet,
    Redacted,
)
from dptext_etl.checks.great_expectations.tallies import Counts, written
from dptext_etl.checks.record import ExpectationOutcome, VerdictRecord
from dptext_etl.errors import GateError, seam
from dptext_etl.ledger.storage.store import resolved
from dptext_etl.policy import PolicyLike, resolve

os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")

import great_expectations as gx
import pandas as pd
from great_expectations.compatibility import pydantic
from great_expectations.core.result_format import ResultFormat
from great_expectations.data_context.types.base import ProgressBarsConfig
from great_expectations.expectations.expectation import BatchExpectation, Expectation
from great_expectations.render.components import LegacyDiagnosticRendererType
from great_expectations.render.renderer.renderer import renderer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class _TableExpectation(Redacted, BatchExpectation):
    """Judges a table by one metric of ours."""

    policy: str

    @pydantic.validator("policy", pre=True)
    def _take_policy(cls, given: PolicyLike) -> str:  # noqa: N805  (a class method to pydantic's first version)
        """Take a policy or the path of its file, too; what is stored is written out."""
        return given if isinstance(given, str) and given.startswith("{") else written(resolve(given))

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
    metric_dependencies: ClassVar[tuple[str, ...]] = (Columns.metric_name,)


class ExpectNoCanaryToSurvive(_TableExpectation):
    """Expect none of the canaries' pseudo-words in any column, in any writing."""

    description: str | None = "No pseudo-word of a canary row stands in any column, in any writing."
    metric_dependencies: ClassVar[tuple[str, ...]] = (Canaries.metric_name,)


class ExpectReleasedRowsToBeLedgered(_TableExpectation):
    """Expect every released cell to have a committed spend in the policy's ledger, and the committed bytes."""

    description: str | None = "Every released cell has a committed spend in the ledger, and the committed bytes."
    metric_dependencies: ClassVar[tuple[str, ...]] = (Ledgered.metric_name,)


class ExpectColumnValuesToStayInOutputSet(_TableExpectation):
    """Expect every word of a text column to be an output word of its mechanism; all of them, in all rows."""

    description: str | None = "Every word is an output word of the column's mechanism."
    column: str
    row_condition: Literal[None] = None

    metric_dependencies: ClassVar[tuple[str, ...]] = (OutputSet.metric_name,)
    success_keys: ClassVar[tuple[str, ...]] = ("policy", "column")
    args_keys: ClassVar[tuple[str, ...]] = ("column", "policy")


class ExpectGateToPass(_TableExpectation):
    """Expect a gate to count no problem; one class for every gate that names its problems."""

    description: str | None = "The gate finds none of the problems that it counts."
    gate: str

    metric_dependencies: ClassVar[tuple[str, ...]] = (GateCounts.metric_name,)
    success_keys: ClassVar[tuple[str, ...]] = ("policy", "gate")
    args_keys: ClassVar[tuple[str, ...]] = ("gate", "policy")


def suite_for(policy: PolicyLike) -> gx.ExpectationSuite:
    """Return the suite of a policy, for the table that it publishes.

    Faithful columns are never published. They have no fixed output words, so no expectation is about them. Every gate
    for published tables that names its `problems` is an expectation of the suite.

    Args:
        policy: The policy, or the path of its file.
    """
    policy = resolve(policy)
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
    expectations += [
        ExpectGateToPass(gate=gate.name, policy=said) for gate in judges(policy, Stage.PUBLISHED) if gate.problems
    ]
    return gx.ExpectationSuite(name=f"{policy.dataset} {policy.release}", expectations=expectations)


def validate(frame: pl.DataFrame | pd.DataFrame | DataFrame, policy: PolicyLike) -> VerdictRecord:
    """Validate a released table against its policy's suite.

    Args:
        frame: The released table, without canary rows: Polars, pandas or Spark.
        policy: Its policy, or the path of its file.

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


def validate_table(url: str, table: str, policy: PolicyLike, *, schema: str | None = None) -> VerdictRecord:
    """Validate a released table of a database against its policy's suite.

    Args:
        url: The database: "sqlite:///PATH", "postgresql://HOST/DATABASE", another URL of SQLAlchemy, or "env:NAME".
        table: Name of the released table, without canary rows.
        policy: Its policy, or the path of its file.
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
