"""Spark's declarative pipelines: a function that no session registers, in the recipe of the page."""

import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from dptext_etl.mechanisms.custext import CusText
from dptext_etl.polars import privatize
from dptext_etl.policy import ColumnPolicy

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
        mechanism=CusText(epsilon=2.0),
        key="env:DPTEXT_NOISE_SECRET",
        allow=["cluster"],
    )
    wanted = raw.select("id", privatize("review", id="id", policy=policy))
    found = pl.read_parquet(tmp_path / "spark-warehouse" / "reviews" / "*.parquet")
    assert found.sort("id").equals(wanted.sort("id"))
