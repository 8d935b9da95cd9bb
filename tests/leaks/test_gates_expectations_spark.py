"""The same expectations over Spark frames: the same counts, and nothing quoted, whatever fails and wherever."""

import json
import logging
import subprocess
import sys

import polars as pl
import pytest

from dptext_etl.checks.great_expectations import tallies
from dptext_etl.errors import GateError, LedgerError
from tests.later import later
from tests.quick import quick

from .expectation_runs import batch_of, checkpoint_of, quoted

dptx = later("dptext_etl.checks.great_expectations.expectations")

DETAILED = {"result_format": "COMPLETE", "include_unexpected_rows": True, "unexpected_index_column_names": ["id"]}


@pytest.fixture(scope="module")
def frames(spark, bench, tmp_path_factory):
    """Make a Spark frame of a Polars frame, by way of a file, in two partitions."""

    def make(table):
        path = tmp_path_factory.mktemp("frame") / "table.parquet"
        table.write_parquet(path)
        return spark.read.parquet(str(path)).repartition(2)

    return make


def test_a_correct_release_holds(bench, frames):
    record = dptx.validate(frames(bench.published), bench.policy)
    record.require()
    assert record.evaluated == record.expected == 4
    assert record == dptx.validate(bench.published, bench.policy)


def test_a_wider_table_is_judged_cell_by_cell(bench, frames):
    wider = bench.published.with_columns(turns=pl.concat_list(pl.struct(text="review", number="stars")))
    assert dptx.validate_downstream(frames(wider), bench.policy).success
    leaking = wider.join(bench.raw.select("id", comment="review"), on="id")
    found = dptx.validate_downstream(frames(leaking), bench.policy)
    assert not found.success
    assert found == dptx.validate_downstream(leaking, bench.policy)


def test_metadata_of_columns_is_counted_and_not_quoted(bench, frames):
    """Spark keeps labels there, which are texts, and writes them into Parquet files."""
    frame = frames(bench.published)
    number = bench.published.columns.index("stars")
    labels = frame.withMetadata(frame.columns[number], {"ml_attr": {"vals": [bench.sentinel]}})
    record = dptx.validate_downstream(labels, bench.policy)
    assert not record.success
    assert bench.sentinel.lower() not in json.dumps(record.as_dict()).lower()


@pytest.mark.parametrize(
    ("bug", "stopped_by"),
    quick(
        [
            (lambda table: table.with_columns(pl.col("note").shift(1)), {"rows_ledgered"}),
            (lambda table: table.drop("stars"), {"raw_column_absent"}),
            (
                lambda table: table.with_columns(pl.col("note").str.to_titlecase()),
                {"rows_ledgered", "words_in_output_set"},
            ),
            (lambda table: table.with_columns(note=pl.lit(7)), None),
            (lambda table: table.drop("note"), None),
            (lambda table: table.clear(), None),
        ]
    ),
)
def test_planted_bugs_are_counted_as_polars_counts_them(bench, frames, bug, stopped_by):
    record = dptx.validate(frames(bug(bench.published)), bench.policy)
    expected = dptx.validate(bug(bench.published), bench.policy)
    assert record == expected
    assert not record.success
    if stopped_by is not None:
        assert {item.gate or item.name for item in record.outcomes if not item.success} == stopped_by


@pytest.mark.thorough
def test_a_users_own_context_checkpoint_and_data_docs_quote_nothing(
    bench, frames, leaking, long_forbidden, tmp_path, caplog, capfd
):
    """`suite_for(policy)` joins a context that someone has already, with results as detailed as they come."""
    caplog.set_level(logging.DEBUG)
    context, definition, parameters = batch_of(frames(leaking), "spark", mode="file", project_root_dir=tmp_path)
    _, checkpoint = checkpoint_of(context, definition, bench.policy, DETAILED)
    outcome = checkpoint.run(batch_parameters=parameters)
    assert not outcome.success
    pages = [path for path in tmp_path.rglob("*") if path.suffix in {".html", ".json", ".yml"}]
    assert any(path.suffix == ".html" and "validations" in path.parts for path in pages)
    said = [path.read_text(encoding="utf-8", errors="replace") for path in pages]
    said += [str(outcome), caplog.text, *capfd.readouterr()]
    assert not {word for text in said for word in quoted(text, long_forbidden)}
    assert any('"hits"' in text for text in said)


@pytest.mark.thorough
def test_a_frame_that_fails_while_it_is_evaluated_quotes_nothing(bench, frames, long_forbidden):
    """Spark's message of a failed cast holds the cell; none of it reaches a result."""
    frame = frames(bench.published).selectExpr("id", "stars", "review", "cast(review as bigint) as note")
    with pytest.raises(Exception, match="cast") as caught:
        frame.collect()
    assert quoted(str(caught.value), long_forbidden)  # that is what there is to keep in
    _, definition, parameters = batch_of(frame, "spark")
    result = definition.get_batch(parameters).validate(dptx.suite_for(bench.policy), result_format="COMPLETE")
    said = json.dumps(result.to_json_dict())
    assert not result.success
    assert "counting on Spark failed" in said
    assert not quoted(said, long_forbidden)
    record = dptx.validate(frame, bench.policy)
    assert any(item.errored for item in record.outcomes)
    with pytest.raises(GateError, match="could not be evaluated") as refused:
        record.require()
    assert not quoted(str(refused.value), long_forbidden)


def test_a_ledger_out_of_reach_is_said(bench, frames, monkeypatch):
    real = tallies.require_reach
    monkeypatch.setattr(tallies, "require_reach", lambda _, url: real(Elsewhere, url))
    record = dptx.validate(frames(bench.published), bench.policy)
    assert {item.gate for item in record.outcomes if item.errored} == {"rows_ledgered"}


class Elsewhere:
    class sparkSession:  # noqa: N801
        class conf:  # noqa: N801
            @staticmethod
            def get(name, default=None):
                return "spark://somewhere:7077"


def test_a_sqlite_ledger_is_for_one_machine():
    with pytest.raises(LedgerError, match="file of one machine"):
        tallies.require_reach(Elsewhere, "sqlite:///ledger.db")
    tallies.require_reach(Elsewhere, "postgresql://somewhere/ledger")


def test_workers_stay_light(bench):
    """The imports of an executor for a tally leave Great Expectations out."""
    code = "import sys, dptext_etl.checks.great_expectations.tallies; print('great_expectations' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"
    assert tallies.parse_policy(tallies.written(bench.policy)) == bench.policy


CONNECT = """
import json, sys
folder, remote = sys.argv[1:]
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(remote).getOrCreate()
assert not hasattr(spark, "_jvm")
from dptext_etl.checks.great_expectations.expectations import validate
from dptext_etl.checks.great_expectations import tallies
policy = tallies.parse_policy(open(f"{folder}/policy.json").read())
for name in ("published", "raw"):
    record = validate(spark.read.parquet(f"{folder}/{name}.parquet"), policy)
    print(json.dumps(record.as_dict()))
"""


@pytest.mark.thorough
def test_spark_connect(bench, spark_connect, tmp_path, leaking):
    bench.published.write_parquet(tmp_path / "published.parquet")
    leaking.write_parquet(tmp_path / "raw.parquet")
    (tmp_path / "policy.json").write_text(tallies.written(bench.policy))
    asked = [sys.executable, "-c", CONNECT, str(tmp_path), spark_connect]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    good, bad = (json.loads(line) for line in done.stdout.splitlines())
    assert (good["success"], good["evaluated"]) == (True, 4)
    assert bad == json.loads(json.dumps(dptx.validate(leaking, bench.policy).as_dict()))
    assert bench.sentinel.lower() not in (done.stdout + done.stderr).lower()
