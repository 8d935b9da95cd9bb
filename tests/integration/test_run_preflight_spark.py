"""A plan foretells what a run on Spark is refused for, before its executors draw."""

from functools import partial

import pytest
from typer.testing import CliRunner

from dptext_etl.cli.app import app
from dptext_etl.engines.spark import worker_policy
from dptext_etl.engines.spark.spark_engine import SparkEngine
from dptext_etl.errors import LedgerError, PolicyError
from dptext_etl.runner import plan
from dptext_etl.spark import run_frame
from tests.quick import quick

from ..refusals import same_refusal
from . import test_run_preflight as texts
from . import test_run_preflight_synthetic as tables
from .spark_runs import frame_of

CASES = (
    "changed texts",
    "pinned epsilon",
    "over the cap",
    "below min_released",
    "a manifest that the ledger did not record",
    "another person",
    "repeated ids",
    "more records than an unlinked release holds",
    "too few texts for an unlinked release",
)
OF_TABLES = (
    tables.over_the_cap,
    tables.changed_labels,
    tables.forgotten_people,
)


def foretold_and_met(spark, job, entries, kind):
    frame = frame_of(spark, job)
    planning = partial(plan, require=SparkEngine(frame).open)
    return same_refusal(
        job, entries, kind, running=lambda **given: run_frame(frame, job.policy(**given)), planning=planning
    )


@pytest.mark.parametrize("case", quick(CASES))
def test_a_run_of_texts(spark, job, case, sentinel):
    assert sentinel not in str(foretold_and_met(spark, job, *texts.prepared(job, case)))


@pytest.mark.parametrize("case", quick(OF_TABLES), ids=lambda case: case.__name__)
def test_a_synthetic_table(spark, make_synthetic, case, sentinel):
    job = make_synthetic()
    assert sentinel not in str(foretold_and_met(spark, job, case(job), tables.CASES[case]))


def test_executors_elsewhere(spark, job, monkeypatch):
    monkeypatch.setattr(worker_policy, "is_local", lambda _: False)
    assert "file of one machine" in foretold_and_met(spark, job, {}, LedgerError).message


def test_staging_in_a_store_and_a_sink_in_a_folder(spark, job):
    entries = {"staging": "s3://bucket/staging"}
    assert "executors may share nothing" in foretold_and_met(spark, job, entries, PolicyError).message


def test_the_command_asks_spark(spark, job, monkeypatch):
    path = str(job.write_policy())
    done = CliRunner().invoke(app, ["plan", path, "--engine", "spark", "--json"])
    assert done.exit_code == 0, done.output
    monkeypatch.setattr(worker_policy, "is_local", lambda _: False)
    done = CliRunner().invoke(app, ["plan", path, "--engine", "spark"])
    assert done.exit_code == 5
    assert "file of one machine" in done.stderr
