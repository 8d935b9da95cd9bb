"""Drills in separate Spark applications: speculation, the logs of a failing query, and a declarative pipeline."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from dptext_etl import ColumnPolicy, Ledger, _kernel, privatize
from dptext_etl.polars import privatize as expression_of

MARK = "qzxvjkwpqzxvjkwp"
ROWS = [(f"r{i}", f"a good film {MARK} {i}", i) for i in range(40)]


@pytest.fixture
def asked(java, spark_settings, tmp_path):
    """The input of an application, without its queries."""
    _kernel.Secret().write(str(tmp_path / "noise.key"))
    policy = {"dataset": "films", "column": "review", "release": "1", "allow": ["cluster"]}
    policy |= {"mechanism": {"name": "custext", "epsilon": 2.0}, "key": f"file:{tmp_path / 'noise.key'}"}
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    return {"settings": dict(spark_settings), "policy": policy, "rows": ROWS, "ledger": url, "folder": str(tmp_path)}


def application(asked, tmp_path, **environment):
    """Run it and return the answers to its queries, and everything that it printed."""
    command = [sys.executable, str(Path(__file__).parents[1] / "spark_cluster.py"), json.dumps(asked)]
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **environment}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=1500)
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed[-4000:]
    return json.loads((tmp_path / "said.json").read_text()), printed


def expected(asked):
    policy = ColumnPolicy(**asked["policy"])
    return privatize(pa.array([row[1] for row in ROWS]), pa.array([row[0] for row in ROWS]), policy).to_pylist()


def test_speculation_in_a_cluster_makes_one_release_and_one_charge(asked, cluster, speculating, tmp_path):
    asked["settings"] |= speculating
    asked |= {"master": cluster, "slow": 60, "one_machine": True}
    asked["queries"] = ["SELECT n, private_review(review, id) AS review FROM films"]
    (out,), _ = application(asked, tmp_path)
    attempts = (tmp_path / "attempts").read_text().split()
    assert {"0-0", "0-1"} <= set(attempts), "no speculative attempt was started"
    assert [text for _, text in sorted(out)] == expected(asked)
    with Ledger.open(asked["ledger"], create=False) as ledger:
        report = ledger.verify()
    assert report.ok, report.problems
    assert report.counts["records"] == report.counts["committed"] == len(ROWS)


PATCH = """
import os
if os.environ.get("SPARK_PYTHON_RUNTIME") or "pyspark" in " ".join(__import__("sys").orig_argv):
    import pyarrow
    from dptext_etl.mechanisms import custext
    def release(self, texts, keys):
        raise ValueError("inside: " + str(texts.to_pylist()))
    custext.CusText.release = release
"""


@pytest.mark.thorough
def test_the_logs_of_failing_queries_quote_no_text_and_no_secret(asked, tmp_path):
    (tmp_path / "events").mkdir()
    (tmp_path / "patch").mkdir()
    (tmp_path / "patch" / "sitecustomize.py").write_text(PATCH)
    secret = (tmp_path / "noise.key").read_text().strip()
    asked["policy"]["key"] = "env:DPTEXT_SECRET"
    asked["settings"] |= {
        "spark.eventLog.enabled": "true", "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{tmp_path / 'events'}", "spark.executorEnv.DPTEXT_SECRET": secret,
    }  # fmt: skip
    asked["master"] = "local[2]"
    asked["queries"] = [
        "SELECT private_review(review, id) FROM films",
        "SELECT private_review(n, review) FROM films",
        "SELECT private_review(review, 'one id') FROM films",
    ]
    said, printed = application(
        asked, tmp_path, DPTEXT_SECRET=secret, DPTEXT_LOG="INFO", PYTHONPATH=str(tmp_path / "patch")
    )
    assert "releasing the column failed (ValueError)" in said[0]
    assert "the first argument is the text column" in said[1]
    assert "belongs to several texts" in said[2]
    events = "".join(path.read_text() for path in (tmp_path / "events").rglob("*") if path.is_file())
    assert "private_review" in events
    for place in (*said, printed, events):
        assert MARK not in place
        assert secret not in place
    with Ledger.open(asked["ledger"], create=False) as ledger:
        assert ledger.verify().counts["committed"] == 0


PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"


@pytest.mark.thorough
def test_the_recipe_releases_what_any_engine_does(java, tmp_path, monkeypatch):
    pytest.importorskip("pyspark.pipelines", reason="this Spark has no declarative pipelines")
    section = PAGE.read_text(encoding="utf-8").partition("{#declarative-pipelines}")[2].partition("\n## ")[0]
    files = dict(re.findall(r"```\w+\n# ([\w./-]+)\n(.*?)```", section, re.DOTALL))
    assert files.keys() == {"spark-pipeline.yml", "transformations/reviews.py"}
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace("file:///srv/reviews/storage", f"file://{tmp_path}/storage"))
    raw = pl.DataFrame({"id": ["r1", "r2"], "review": ["a good film", "a bad ending"]})
    raw.write_parquet(tmp_path / "raw.parquet")
    monkeypatch.setenv("DPTEXT_NOISE_SECRET", "6b" * 31 + "02")
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    command = [str(Path(sys.executable).parent / "spark-pipelines"), "run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    policy = ColumnPolicy(
        dataset="reviews",
        column="review",
        release="1",
        mechanism={"name": "surrogate", "epsilon": 4.0, "corpus": "everyday-30k-2"},
        key="env:DPTEXT_NOISE_SECRET",
    )
    wanted = raw.select("id", expression_of("review", id="id", policy=policy))
    found = pl.read_parquet(tmp_path / "spark-warehouse" / "reviews" / "*.parquet")
    assert found.sort("id").equals(wanted.sort("id"))
