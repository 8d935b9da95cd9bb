"""`dptext run --engine spark`: the same release from every format, and a sentence where Spark cannot start."""

import json
import os
import subprocess
import sys

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

from dptext_etl.cli.app import app
from dptext_etl.cli.commands import run as command
from dptext_etl.engines.spark import session
from dptext_etl.engines.spark.session import read_source
from dptext_etl.errors import PolicyError
from dptext_etl.runner import scan_published
from dptext_etl.spark import run_frame
from tests.quick import quick


def saved(job, **changes):
    """Save a job's policy as a file; JSON is near enough to TOML to be rewritten line by line."""

    def value(item):
        if isinstance(item, dict):
            return "{" + ", ".join(f"{name} = {value(one)}" for name, one in item.items() if one is not None) + "}"
        return json.dumps(item) if not isinstance(item, list) else f"[{', '.join(map(value, item))}]"

    facts = job.policy(**changes).model_dump(mode="json", by_alias=True, exclude_none=True)
    path = job.folder / "privacy.toml"
    path.write_text("\n".join(f"{name} = {value(item)}" for name, item in facts.items()))
    return str(path)


def published(job):
    return scan_published(str(job.folder / "published")).collect().sort("id")


ODD = ['"quoted", and a comma', "two\nlines", " blanks ", "back\\slash", "", None, "ümlaut 漢字"]


@pytest.mark.parametrize("suffix", quick([".csv", ".parquet", ".ndjson"]))
def test_every_format_is_read_as_polars_reads_it(spark, make_job, reviews, suffix):
    texts = [ODD[i % len(ODD)] if i % 3 else f"worda{chr(97 + i % 26)} {i}" for i in range(240)]
    raw = reviews().with_columns(
        review=pl.Series(texts), id=pl.format("{}", pl.int_range(240).cast(pl.String).str.zfill(5))
    )
    job, other = make_job("spark", raw, suffix), make_job("polars", raw, suffix)
    expected = other.run()
    summary = run_frame(read_source(spark, job.policy()), job.policy())
    assert_frame_equal(published(job), published(other))
    assert summary.rows == expected.rows
    assert summary.notes[2:] == expected.notes[2:], "the first ones name places"
    assert {path.suffix for path in (job.folder / "published").iterdir()} == {suffix}


def test_the_command(spark, make_job):
    job, other = make_job("spark"), make_job("polars")
    done = CliRunner().invoke(app, ["run", saved(job), "--engine", "spark", "--json"])
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert tuple(facts) == command.KEYS
    assert facts["rows"] == other.run().rows
    assert_frame_equal(published(job), published(other))
    assert spark.range(1).count() == 1  # the session was there before, so it stays


def test_a_refusal_of_the_executors_has_its_exit_code(spark, job):
    cap = {"measure": "pure", "epsilon": 100.0, "period": "2026"}
    done = CliRunner().invoke(app, ["run", saved(job, cap=cap, on_cap="refuse"), "--engine", "spark"])
    assert done.exit_code == 3
    assert "nothing was computed or charged" in done.stderr


@pytest.mark.thorough
def test_a_session_of_its_own(java, job, sentinel):
    """The command on the page about Spark starts one, too."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    asked = [sys.executable, "-m", "dptext_etl.cli", "run", saved(job), "--engine", "spark", "--json"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, env=bare)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"]["released"] == 240
    assert sentinel not in done.stdout + done.stderr


def test_without_pyspark(monkeypatch, job):
    monkeypatch.setattr(session, "find_spec", lambda _: None)
    done = CliRunner().invoke(app, ["run", saved(job), "--engine", "spark"])
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
