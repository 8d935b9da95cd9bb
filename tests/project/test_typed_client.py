"""A user's own type checker: strict mypy passes a client of ten lines, and finds the mistakes in others."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy", reason="mypy is not installed (extra: dev)")
pytestmark = pytest.mark.thorough  # a minute of mypy, which `make lint` runs over the same annotations
ROOT = Path(__file__).resolve().parents[2]
CLIENT = """
import polars as pl
from pyspark.sql import SparkSession

from dptext_etl import ColumnPolicy
from dptext_etl.orchestration import build_definitions
from dptext_etl.polars import DataFrameNamespace, LazyFrameNamespace, privatize, run_frame
from dptext_etl.spark import register

mechanism = {"name": "custext", "epsilon": 2.0}
review = ColumnPolicy(dataset="d", column="review", release="r", mechanism=mechanism, key="env:DPTEXT_SECRET")
out = pl.scan_parquet("raw.parquet").with_columns(privatize("review", review, id=pl.col("id")))
frame: pl.DataFrame = DataFrameNamespace(out.collect()).privatize(review, id="id")
lazy: pl.LazyFrame = LazyFrameNamespace(out).privatize("privacy.toml")
rows: int = run_frame(lazy, "privacy.toml").rows["released"]
register(SparkSession.builder.getOrCreate(), "private_review", review)
defs = build_definitions("privacy.toml")
"""
WRONG = """
import polars as pl

from dptext_etl import ColumnPolicy
from dptext_etl.orchestration import build_definitions
from udfs.polars import ExprNamespace, LazyFrameNamespace, privatize


def wrong(policy: ColumnPolicy, lazy: pl.LazyFrame) -> None:
    ExprNamespace(pl.col("x")).privatise(policy, id="id")
    privatize(pl.col("x").str.strip_chars(), 7, id="id")
    LazyFrameNamespace(lazy).privatize(policy)
    build_definitions(7)
"""
FOUND = [
    ('"ExprNamespace" has no attribute "privatise"', "attr-defined"),
    ('Argument 2 to "privatize" has incompatible type "int"; expected "Policy | ', "arg-type"),
    ('No overload variant of "privatize" of "FrameNamespace" matches argument type "ColumnPo', "call-overload"),
    ('Argument 1 to "build_definitions" has incompatible type "int"', "arg-type"),
]
SETTINGS = """
[mypy]
strict = True

[mypy-dagster.*,pyspark.*,pyarrow.*,numpy.*]
follow_imports = skip
"""
"""Lines of a client, except for the last two lines: they spare mypy libraries that it does not use."""


@pytest.fixture
def check(tmp_path):
    """Check a client's module as its own mypy would; what mypy learns about libraries is kept for the next time."""
    (tmp_path / "mypy.ini").write_text(SETTINGS)

    def run(source):
        (tmp_path / "client.py").write_text(source)
        command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--no-error-summary", "client.py"]
        command += ["--cache-dir", str(ROOT / ".mypy_cache" / "client")]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert "INTERNAL ERROR" not in done.stdout, done.stdout
        return done.stdout.splitlines()

    return run


@pytest.mark.slow
def test_strict_mypy_sees_a_client_as_it_runs(check):
    pytest.importorskip("pyspark", reason="pyspark is not installed (extra: spark)")
    assert check(CLIENT) == []
    errors = [line for line in check(WRONG) if ": error: " in line]
    assert len(errors) == len(FOUND)
    for line, (said, code) in zip(errors, FOUND, strict=True):
        assert said in line
        assert line.endswith(f"[{code}]")
