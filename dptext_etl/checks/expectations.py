"""Great Expectations over released data: the same gates as a suite, without a value, an id or a library's message.

Great Expectations quotes the values that it rejects, in results, in exceptions and in Data Docs, whatever a suite asks
for (its issue 8780). The classes here hand out counts, in every result format:

* metrics of ours return whole numbers, and the values that a map expectation would collect are never asked for;
* `Redacted` lets nothing but numbers into a result, whatever result format a caller sets;
* a metric that fails raises our own error with a type's name, so no message and no traceback holds a cell.

An expectation's arguments are stored in suites, results and pages. They are a policy: names, parameters, references.
The engine is pandas.

Example:
    >>> from dptext_etl.checks.expectations import validate  # doctest: +SKIP
    >>> validate(released, Policy.load("privacy.toml")).require()  # doctest: +SKIP
"""

from __future__ import annotations

import json
import os
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple

import polars as pl

from dptext_etl.checks.canary_words import policy_tokens
from dptext_etl.checks.gate_columns import ColumnsGate
from dptext_etl.checks.gate_foreign import ForeignGate
from dptext_etl.checks.gate_ledger import LedgerGate
from dptext_etl.checks.gate_words import inside_output_set
from dptext_etl.checks.lineage import Lineage
from dptext_etl.checks.record import ExpectationOutcome, VerdictRecord
from dptext_etl.errors import GateError, InputError, seam
from dptext_etl.ledger import Ledger
from dptext_etl.policy import ColumnPolicy, Policy

os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")

import great_expectations as gx
import pandas as pd
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.core.result_format import ResultFormat
from great_expectations.data_context.types.base import ProgressBarsConfig
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation, ColumnMapExpectation, Expectation
from great_expectations.expectations.expectation_configuration import parse_result_format
from great_expectations.expectations.metrics.map_metric_provider.column_condition_partial import (
    column_condition_partial,
)
from great_expectations.expectations.metrics.map_metric_provider.column_map_metric_provider import (
    ColumnMapMetricProvider,
)
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider

Counts = dict[str, int]


class _Known(NamedTuple):
    policy: Policy
    columns: dict[str, ColumnPolicy]


def written(policy: Policy) -> str:
    """Write a policy as an expectation's argument: names, parameters and references; no storage options."""
    return json.dumps(policy.model_dump(mode="json", by_alias=True, exclude={"storage_options"}), sort_keys=True)


@lru_cache(maxsize=16)
def _known(policy: str) -> _Known:
    read = Policy.parse(json.loads(policy))
    return _Known(read, {spec.name: column for spec, column in zip(read.columns, read.column_policies(), strict=True)})


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

    @staticmethod
    def count(table: pl.DataFrame, policy: str) -> Counts:
        """Return how much was "checked", and how many of each problem there are."""
        raise NotImplementedError

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
            table, _, _ = execution_engine.get_compute_domain(metric_domain_kwargs, domain_type=MetricDomainTypes.TABLE)
            counts: Counts = cls.count(pl.from_pandas(table), **metric_value_kwargs)
            return counts


class _Columns(_TableMetric):
    metric_name = "table.dptext_columns"
    value_keys = ("policy",)

    @staticmethod
    def count(table: pl.DataFrame, policy: str) -> Counts:
        known = _known(policy).policy
        gate = ColumnsGate(known, Lineage.declared(known), marked=False)
        gate.feed(table.schema)
        found = gate.verdict().counts
        return {"checked": table.width, **{name: int(found[name]) for name in ("missing", "unknown", "mistyped")}}


class _Canaries(_TableMetric):
    metric_name = "table.dptext_canaries"
    value_keys = ("policy",)

    @staticmethod
    def count(table: pl.DataFrame, policy: str) -> Counts:
        known, columns = _known(policy)
        gate = ForeignGate(known, policy_tokens(known, next(iter(columns.values())).secret))
        gate.feed(table)
        return {"checked": table.height, "hits": int(gate.verdict().counts["hits"])}


class _Ledgered(_TableMetric):
    metric_name = "table.dptext_ledgered"
    value_keys = ("policy",)

    @staticmethod
    def count(table: pl.DataFrame, policy: str) -> Counts:
        known, columns = _known(policy)
        with Ledger.open(known.ledger.url, known.ledger.id_key, create=False, read_only=True) as ledger:
            found = {name: ledger.find(column) for name, column in columns.items()}
            gate = LedgerGate(known, ledger, {name: ref for name, ref in found.items() if ref is not None})
            gate.feed(table)
        counts = {name: int(count) for name, count in gate.verdict().counts.items()}
        return {"checked": counts.pop("cells"), **counts}


class _InOutputSet(ColumnMapMetricProvider):
    condition_metric_name = "column_values.dptext_in_output_set"
    condition_value_keys = ("policy",)

    @column_condition_partial(engine=PandasExecutionEngine)
    def _pandas(cls, column: Any, policy: str, **_: Any) -> Any:  # noqa: N805
        with seam("evaluating column_values.dptext_in_output_set", GateError):
            mechanism = _known(policy).columns[column.name].mechanism
            words = mechanism.output_words()
            if words is None:
                msg = "a faithful mechanism has no fixed output words"
                raise InputError(msg)
            inside = inside_output_set(pl.Series(pl.from_pandas(column)), pl.Series(sorted(words), dtype=pl.String))
            return pd.Series(inside.to_numpy(), index=column.index)


class _TableExpectation(Redacted, BatchExpectation):
    """Judges a table by one metric of ours."""

    policy: str

    success_keys: ClassVar[tuple[str, ...]] = ("policy",)
    domain_keys: ClassVar[tuple[str, ...]] = ("batch_id",)

    def _counts(self, metrics: Any) -> Counts:
        counts: Counts = metrics[self.metric_dependencies[0]]
        return counts


class ExpectTableColumnsToBePublished(_TableExpectation):
    """Expect exactly the columns that the policy publishes, text columns as strings."""

    metric_dependencies: ClassVar[tuple[str, ...]] = (_Columns.metric_name,)


class ExpectNoCanaryToSurvive(_TableExpectation):
    """Expect none of the canaries' pseudo-words in any column, in any writing."""

    metric_dependencies: ClassVar[tuple[str, ...]] = (_Canaries.metric_name,)


class ExpectReleasedRowsToBeLedgered(_TableExpectation):
    """Expect every released cell to have a committed spend in the policy's ledger, and the committed bytes."""

    metric_dependencies: ClassVar[tuple[str, ...]] = (_Ledgered.metric_name,)


class ExpectColumnValuesToStayInOutputSet(Redacted, ColumnMapExpectation):
    """Expect every word of a text column to be an output word of its mechanism; all of them, in all rows."""

    policy: str
    mostly: Literal[1] = 1
    row_condition: Literal[None] = None

    map_metric: ClassVar[str] = _InOutputSet.condition_metric_name
    success_keys: ClassVar[tuple[str, ...]] = ("mostly", "policy")
    args_keys: ClassVar[tuple[str, ...]] = ("column", "policy")

    def _counts(self, metrics: Any) -> Counts:
        outside = int(metrics[f"{self.map_metric}.unexpected_count"])
        return {"checked": int(metrics["table.row_count"]), "rows_outside": outside}


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


def validate(frame: pl.DataFrame | pd.DataFrame, policy: Policy) -> VerdictRecord:
    """Validate a released table against its policy's suite.

    Args:
        frame: The released table, without canary rows.
        policy: Its policy.

    Returns:
        The outcome, with counts; ask `VerdictRecord.require`, or write it down and read it where it decides.
    """
    suite = suite_for(policy)
    with seam("validating with Great Expectations", GateError):
        table = frame.to_pandas(use_pyarrow_extension_array=True) if isinstance(frame, pl.DataFrame) else frame
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = ProgressBarsConfig(globally=False, metric_calculations=False)
        asset = context.data_sources.add_pandas("dptext").add_dataframe_asset("released")
        batch = asset.add_batch_definition_whole_dataframe("whole").get_batch({"dataframe": table})
        results = batch.validate(suite, result_format=ResultFormat.SUMMARY.value).results
        return VerdictRecord(suite.name, len(suite.expectations), tuple(map(_outcome, results)))


def _outcome(result: Any) -> ExpectationOutcome:
    about = result.expectation_config
    counts = {name: int(value) for name, value in result.result.items() if name != "observed_value"}
    errored = not result.success and not counts
    return ExpectationOutcome(about.type, about.kwargs.get("column"), bool(result.success), errored, counts)
