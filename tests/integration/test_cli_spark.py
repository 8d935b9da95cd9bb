"""`dptext run --engine spark`: the same release, exit codes, and an error where Spark cannot start."""

import json
import os
import subprocess
import sys

import pytest
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

from dptext_etl.cli.app import app
from dptext_etl.cli.commands import run as command
from dptext_etl.engines.spark import session, worker_policy
from dptext_etl.errors import PolicyError

from .spark_runs import published


def test_the_command(spark, make_job):
    job, other = make_job("spark"), make_job("polars")
    done = CliRunner().invoke(app, ["run", str(job.write_policy()), "--engine", "spark", "--json"])
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert tuple(facts) == command.KEYS
    assert facts["rows"] == other.run().rows
    assert_frame_equal(published(job), published(other))
    assert spark.range(1).count() == 1  # the session was there before, so it stays


@pytest.mark.thorough
def test_a_refusal_of_the_executors_has_its_exit_code(spark, job):
    cap = {"measure": "pure", "epsilon": 100.0, "period": "2026"}
    done = CliRunner().invoke(app, ["run", str(job.write_policy(cap=cap, on_cap="refuse")), "--engine", "spark"])
    assert done.exit_code == 3
    assert "nothing was computed or charged" in done.stderr


@pytest.mark.thorough
def test_a_session_of_its_own(java, job, sentinel):
    """The command on the page about Spark starts one, too."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    asked = [sys.executable, "-m", "dptext_etl.cli", "run", str(job.write_policy()), "--engine", "spark", "--json"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, env=bare)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"]["released"] == 240
    assert sentinel not in done.stdout + done.stderr


def test_without_pyspark(monkeypatch, job):
    monkeypatch.setattr(session, "find_spec", lambda _: None)
    done = CliRunner().invoke(app, ["run", str(job.write_policy()), "--engine", "spark"])
    assert done.exit_code == 5
    assert "pip install 'dptext-etl[spark]" in done.stderr


@pytest.mark.parametrize("home", [None, "/nowhere"])
def test_without_java(monkeypatch, home):
    monkeypatch.setattr(session, "find_spec", lambda _: object())
    monkeypatch.setattr(session.shutil, "which", lambda _: None)
    for name in ("JAVA_HOME", "SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    if home:
        monkeypatch.setenv("JAVA_HOME", home)
    with pytest.raises(PolicyError, match="Java") as caught:
        session.require_spark()
    assert "openjdk" in caught.value.hint
    monkeypatch.setenv("SPARK_REMOTE", "sc://somewhere")
    session.require_spark()


def test_a_plan_asks_spark(spark, job, monkeypatch):
    path = str(job.write_policy())
    done = CliRunner().invoke(app, ["plan", path, "--engine", "spark", "--json"])
    assert done.exit_code == 0, done.output
    monkeypatch.setattr(worker_policy, "is_local", lambda _: False)
    done = CliRunner().invoke(app, ["plan", path, "--engine", "spark"])
    assert done.exit_code == 5
    assert "file of one machine" in done.stderr
