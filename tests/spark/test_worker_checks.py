"""Workers that cannot compute, and the message about them before a query fails on one."""

import json
import sys
from importlib.metadata import version

import pytest

from dptext_etl import Policy, __version__
from dptext_etl.engines.spark import session, spark_engine
from dptext_etl.errors import PolicyError
from dptext_etl.policy import LedgerSpec
from dptext_etl.spark import register, register_view, run_frame
from tests.later import later

errors = later("pyspark.errors", reason="pyspark is not installed (extra: spark)")
HERE = {"host": "node-1", "python": "/opt/python", "version": __version__}
"""Answer of a worker that lacks nothing."""
LACKS = "cannot import dptext_etl: dptext-etl is not installed there"
NOT_THERE = rf"workers of Spark {LACKS}\nHint: give every worker dptext-etl"


def said(*answers):
    return {session.Answer(**{**HERE, **answer}) for answer in answers}


@pytest.fixture
def bare(films, tmp_path, monkeypatch):
    """The session, whose workers have a Python with only the standard library."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\ncd /\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(films.sparkContext, "pythonExec", str(python))
    return films


def test_workers_that_have_the_package_register_as_always(films, policy):
    assert session.require_workers(films, ["dptext_etl.spark.worker"]) == 1
    register(films, "asked_review", policy, check_workers=True)
    assert len(films.sql("SELECT asked_review(review, id) FROM films").collect()) == films.table("films").count()


@pytest.mark.thorough
def test_a_worker_without_the_package_is_named_before_anything_is_made(bare, policy, url, tmp_path, monkeypatch):
    with pytest.raises(PolicyError, match=NOT_THERE):
        register(bare, "never_review", policy, ledger=url, unit="record", check_workers=True)
    assert not bare.catalog.functionExists("never_review")
    whole = {
        "id": "id", "sink": str(tmp_path / "published"), "staging": str(tmp_path / "inside"), "ledger": {"url": url},
        "unit": "record",
    }  # fmt: skip
    with pytest.raises(PolicyError, match=NOT_THERE):
        run_frame(bare.table("films"), policy, check_workers=True, **whole)
    monkeypatch.setattr(spark_engine, "is_local", lambda spark: False)  # where no one has to ask for the question
    with pytest.raises(PolicyError, match=NOT_THERE):
        run_frame(bare.table("films"), policy, **whole)
    assert {path.name for path in tmp_path.iterdir()} <= {"python", "noise.key"}


def test_a_worker_without_a_key_is_named_before_a_query(films, policy, url, monkeypatch):
    monkeypatch.setenv("DPTEXT_DRIVER_SECRET", "ab" * 32)  # which workers of this session do not have
    here = policy.model_copy(update={"key": "env:DPTEXT_DRIVER_SECRET"})
    lacking = r"1 of 1, .* cannot resolve the key env:DPTEXT_DRIVER_SECRET \(KeyReferenceError\)"
    with pytest.raises(PolicyError, match=lacking):
        register(films, "never_review", here, check_workers=True)
    spec = LedgerSpec(url=url, id_key="env:DPTEXT_DRIVER_SECRET")
    with pytest.raises(PolicyError, match=lacking):
        register(films, "never_review", policy, spec, unit="record", check_workers=True)
    assert not films.catalog.functionExists("never_review")


def test_a_view_asks_too(films, policy, url, monkeypatch):
    monkeypatch.setattr(films.sparkContext, "pythonExec", "/not/here/python")
    whole = {"dataset": "films", "release": "1", "source": "x", "sink": "y", "id": "id", "unit": "record"}
    whole |= {"key": policy.key, "ledger": {"url": url}, "cap": {"measure": "pure", "epsilon": 9, "period": "1"}}
    whole["column"] = [{"name": "review", "mechanism": policy.mechanism, "allow": ["cluster"]}]
    with pytest.raises(PolicyError, match="no Python at the path of PYSPARK_PYTHON"):
        register_view(films, "asked_films", table="films", policy=Policy.parse(whole), check_workers=True)


def test_the_question_is_answered_by_what_imports():
    answer = json.loads(session._question(("json", "dptext_etl.spark.worker"))(0))
    assert session.Answer(**answer).lack({}) is None
    assert answer["version"] == version("dptext-etl")
    bare = session.Answer(**HERE | {"version": None, "module": "dptext_etl", "error": "ModuleNotFoundError"})
    assert LACKS in str(bare.lack({}))  # of a worker that Spark's own daemon started
    lacking = json.loads(session._question(("dptext_etl.not_there",))(0))
    assert "have dptext-etl, but cannot import dptext_etl.not_there (ModuleNotFoundError)" in str(
        session.Answer(**lacking).lack({})
    )


def test_workers_are_counted_by_what_they_lack(monkeypatch):
    old = [{"version": "0.0.9", "host": f"node-{number}"} for number in range(2, 7)]
    answers = said({}, *old, {"host": "node-7", "module": "pyarrow", "error": "ImportError"})
    monkeypatch.setattr(session, "_answers", lambda spark, modules, keys: answers)
    with pytest.raises(PolicyError) as caught:
        session.require_workers(None, [])
    message = caught.value.message
    assert "5 of 7, node-2 (/opt/python), node-3 (/opt/python), node-4 (/opt/python) and 2 more," in message
    assert f"have dptext-etl 0.0.9, and the driver has {__version__}" in message
    assert "1 of 7, node-7 (/opt/python), have dptext-etl, but cannot import pyarrow (ImportError)" in message


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (
            errors.PySparkRuntimeError(
                None, "PYTHON_VERSION_MISMATCH", {"worker_version": "3.12", "driver_version": "3.11"}
            ),
            "another Python than the driver",
        ),
        (RuntimeError("/usr/bin/python3: No module named pyspark"), "lacks pyspark"),
        (RuntimeError("what a library says"), r"did not answer a small job \(RuntimeError\)"),
    ],
)
def test_workers_that_do_not_answer(failure, words):
    found = session._failure(failure)
    assert "what a library says" not in str(found)
    with pytest.raises(PolicyError, match=words):
        raise found
