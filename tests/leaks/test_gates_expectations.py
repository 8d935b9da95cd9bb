"""Great Expectations says counts and nothing else: in every result format, way of running, error and Data Docs page."""

import json
import logging
from pathlib import Path

import pandas as pd
import polars as pl
import pytest

from dptext_etl.errors import GateError
from tests.later import later
from tests.quick import quick

from .expectation_runs import batch_of, checkpoint_of, quoted

dptx = later("dptext_etl.checks.great_expectations.expectations")

FORMATS = [
    "BOOLEAN_ONLY",
    "BASIC",
    "SUMMARY",
    "COMPLETE",
    {"result_format": "COMPLETE", "include_unexpected_rows": True, "unexpected_index_column_names": ["id"]},
    {"result_format": "BASIC", "partial_unexpected_count": 50, "return_unexpected_index_query": True},
]


def test_a_correct_release_holds(bench):
    record = dptx.validate(bench.published, bench.policy)
    assert record.success
    assert record.evaluated == record.expected == 4
    record.require()
    assert dptx.validate(bench.published.to_pandas(), bench.policy).success


@pytest.mark.parametrize(
    ("bug", "stopped_by"),
    [
        (lambda table: table.drop("stars"), {"raw_column_absent"}),
        (lambda table: table.with_columns(pl.lit(1).alias("more")), {"raw_column_absent"}),
        (lambda table: table.with_columns(pl.col("note").shift(1)), {"rows_ledgered"}),
        (
            lambda table: table.with_columns(pl.col("note").str.to_titlecase()),
            {"rows_ledgered", "words_in_output_set"},
        ),
        (lambda table: table.with_columns(pl.col("id") + 5000), {"rows_ledgered"}),
    ],
)
def test_planted_bugs_are_stopped(bench, bug, stopped_by):
    record = dptx.validate(bug(bench.published), bench.policy)
    assert {item.gate or item.name for item in record.outcomes if not item.success} == stopped_by
    assert not any(item.errored for item in record.outcomes)
    with pytest.raises(GateError, match="did not hold"):
        record.require()


def test_raw_text_is_stopped_and_not_quoted(bench, leaking, forbidden):
    record = dptx.validate(leaking, bench.policy)
    stopped = {item.gate or item.name: item for item in record.outcomes if not item.success}
    assert {"canary_text_absent", "words_in_output_set"} <= set(stopped)
    assert stopped["canary_text_absent"].counts["hits"] > 0
    with pytest.raises(GateError) as caught:
        record.require()
    assert not quoted(str(caught.value) + json.dumps(record.as_dict()), forbidden)


@pytest.mark.parametrize("result_format", quick(FORMATS[::-1]), ids=str)
def test_no_result_format_quotes_a_value_an_index_or_a_row(bench, leaking, forbidden, result_format):
    suite = dptx.suite_for(bench.policy)
    _, definition, parameters = batch_of(leaking.to_pandas())
    batch = definition.get_batch(parameters)
    results = [batch.validate(suite, result_format=result_format).to_json_dict()]
    for expectation in suite.expectations:
        expectation.result_format = result_format
        results.append(batch.validate(expectation).to_json_dict())
        results.append(batch.validate(expectation, result_format=result_format).to_json_dict())
    assert not quoted(json.dumps(results), forbidden)
    assert not any(result["success"] for result in results[:1])
    if result_format != "BOOLEAN_ONLY":
        assert '"hits"' in json.dumps(results[0])


@pytest.mark.parametrize("result_format", quick(FORMATS[::-1]), ids=str)
def test_checkpoints_and_data_docs_quote_nothing(bench, leaking, forbidden, result_format, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    context, definition, parameters = batch_of(leaking.to_pandas(), mode="file", project_root_dir=tmp_path)
    validation, checkpoint = checkpoint_of(context, definition, bench.policy, result_format)
    result = validation.run(batch_parameters=parameters, result_format=result_format)
    outcome = checkpoint.run(batch_parameters=parameters)
    assert not result.success
    assert not outcome.success
    context.build_data_docs()
    pages = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.suffix == ".html" and "validations" in path.parts for path in pages)
    said = [path.read_text(encoding="utf-8", errors="replace") for path in pages if _ours(path)]
    said += [json.dumps(result.to_json_dict()), str(outcome), caplog.text]
    assert not {word for text in said for word in quoted(text, forbidden) if not word.isdigit()}
    results = [path.read_text() for path in pages if path.suffix == ".json" and "validations" in path.parts]
    assert results
    assert not {word for text in results for word in quoted(json.dumps(json.loads(text)["results"]), forbidden)}


def _ours(path):
    return path.suffix in {".html", ".json", ".yml"}


def test_pages_show_names_as_they_are(bench, tmp_path):
    """Great Expectations does not escape names of suites."""
    policy = bench.policy.model_copy(update={"release": "<img src=x onerror=alert(2)>"})
    context, definition, _ = batch_of(bench.published.to_pandas(), mode="file", project_root_dir=tmp_path)
    checkpoint_of(context, definition, policy)
    context.build_data_docs()
    pages = [path.read_text("utf-8") for path in tmp_path.rglob("*.html")]
    assert pages
    assert not [page for page in pages if "<img src=x" in page]
    assert any("&lt;img src=x" in page for page in pages)


class Stubborn:
    """A cell that no library can convert, and that quotes itself wherever someone tries."""

    def __init__(self, text):
        self._text = text

    def __str__(self):
        return self._text

    __repr__ = __str__

    def __getattr__(self, name):
        # NumPy 2.0 asks each cell for these while the test makes the table, and lets other errors through
        raise (AttributeError if name.startswith("__array") else ValueError)(f"no {name} in {self._text}")


@pytest.mark.parametrize("result_format", quick(["COMPLETE", "SUMMARY"]))
def test_errors_quote_nothing(bench, forbidden, result_format):
    text = bench.raw["review"].drop_nulls()[0]
    table = bench.published.to_pandas()
    table["note"] = pd.Series([Stubborn(text)] * len(table), dtype=object)
    _, definition, parameters = batch_of(table)
    result = definition.get_batch(parameters).validate(dptx.suite_for(bench.policy), result_format=result_format)
    said = json.dumps(result.to_json_dict())
    assert not result.success
    assert 'raised_exception": true' in said
    assert "evaluating rows_ledgered failed" in said
    assert not quoted(said, {word for word in forbidden if not word.isdigit()})
    record = dptx.validate(table, bench.policy)
    assert any(item.errored for item in record.outcomes)
    assert not record.success


def test_an_empty_table_is_no_success(bench):
    assert not dptx.validate(bench.published.clear(), bench.policy).success


def test_nothing_can_be_let_through_by_an_argument(bench):
    said = dptx.written(bench.policy)
    for loosened in ({"mostly": 0.5}, {"row_condition": "id > 5", "condition_parser": "pandas"}):
        with pytest.raises(Exception, match="validation error"):
            dptx.ExpectGateToPass(gate="rows_ledgered", policy=said, **loosened)


def test_arguments_hold_references_only(bench):
    said = json.dumps([item.configuration.to_json_dict() for item in dptx.suite_for(bench.policy).expectations])
    key = Path(bench.policy.key.removeprefix("file:")).read_text().strip()
    assert key not in said
    assert not [token for plan in bench.run.canaries for token in plan.tokens if token in said]
    secretive = bench.policy.model_copy(update={"storage_options": {"endpoint": "hunter2hunter2"}})
    assert "hunter2" not in dptx.written(secretive)
