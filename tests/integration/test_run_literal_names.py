"""Names of columns are literal. Polars reads `*` and `^…$` as patterns of several names, and a series reads its own so.

A policy names such columns, and a source may have them next to those that the policy names.
"""

import ast
from pathlib import Path

import polars as pl
import pytest

from dptext_etl import run
from dptext_etl.data_types import by_name
from dptext_etl.engines.spark.session import read_source
from dptext_etl.engines.spark.spark_engine import SparkEngine
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.planning import plan
from dptext_etl.runner.publish.forgetting import forget
from dptext_etl.runner.source.guessing import guess
from dptext_etl.runner.source.roles import open_table
from tests.quick import quick

ROOT = Path(__file__).resolve().parents[2]
NAMES = ["*", "^.*$", "^review$", "^id$"]
SUFFIXES = [".csv", ".parquet", ".ndjson"]


ROLES = {"id": "id", "subject": "user_id", "keep": "note", "column": "review"}
NULLS = {"on_null_subject": "quarantine", "per_subject": 2}


def named(job, reviews, **changed):
    """Let the columns of some roles have other names, and return the table and the names of all roles."""
    names = ROLES | changed
    mechanism = {"name": "custext", "epsilon": 2.0, "k": 5, "vectors": job.vectors}
    job.values |= {"id": names["id"], "subject": names["subject"], "keep": [names["keep"]], "strict_columns": False}
    job.values |= {"column": [{"name": names["column"], "mechanism": mechanism, "allow": ["cluster"]}]}
    return reviews().rename({ROLES[role]: name for role, name in changed.items()}), names


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("name", quick(["^review$", "^.*$", "*", "^a\nb$"]))
@pytest.mark.parametrize("entries", quick([{}, {"ids": "keyed"}, {"ids": "drop"}, NULLS]), ids=str)
def test_the_columns_of_a_policy_may_have_such_names(job, reviews, role, name, entries):
    frame, names = named(job, reviews, **{role: name})
    frame.write_parquet(job.folder / "raw.parquet")
    job.values |= entries
    plan(job.policy())
    job.run()
    shown = job.published()
    assert set(shown.columns) == {
        names["keep"],
        names["column"],
        *({} if "drop" in entries.values() else {names["id"]}),
    }
    if not entries:
        cells = [*zip(*(shown[names[role]].to_list() for role in ("id", "keep")), strict=True)]
        assert sorted(cells, key=str) == sorted(reviews().select("id", "note").rows(), key=str)
    frame.filter(by_name(names["subject"]) != "u007").write_parquet(job.folder / "raw.parquet")
    if "per_subject" not in entries:
        forget(job.policy(), subjects=["u007"])
        assert job.published().height < shown.height


def between(frame):
    """Rows with columns before and behind them, whose names are patterns that match them."""
    first, *others = (pl.lit(name.encode().hex()).alias(name) for name in NAMES)
    return frame.select(first, pl.all(), *others)


@pytest.mark.parametrize("suffix", quick(SUFFIXES))
def test_other_columns_may_have_such_names(make_job, reviews, suffix):
    job, same = make_job(frame=between(reviews()), suffix=suffix), make_job("same", suffix=suffix)
    job.values["key"] = f"file:{same.folder / 'noise.key'}"
    job.run()
    same.run()
    assert job.published().equals(same.published())
    raw = str(job.folder / f"raw{suffix}")
    found = guess(raw, id="id", subject="user_id", texts=["review"])
    assert (found.id, len(found.rows_of_persons)) == ("id", 40)


@pytest.mark.parametrize("suffix", quick(SUFFIXES))
def test_spark_reads_them(spark, make_job, reviews, suffix):
    job = make_job(frame=between(reviews(5)), suffix=suffix)
    here = open_table(job.policy(), Layout.of(job.policy())).frame.collect()
    there = read_source(spark, job.policy()).select(here.columns).collect()
    assert [tuple(row) for row in there] == here.rows()


def test_spark_releases_them(spark, job, reviews):
    frame, names = named(job, reviews, **dict(zip(ROLES, NAMES, strict=True)))
    frame.head(40).write_parquet(job.folder / "raw.parquet")
    job.values["per_subject"] = 2
    with SparkEngine.started(job.policy(), None) as engine:
        run(job.policy(), engine=engine)
    assert set(job.published().columns) == {names["id"], names["keep"], names["column"]}


def test_columns_of_users_are_named_in_one_place():
    """Any other argument of `pl.col` is a literal, or a constant of a module."""
    other = []
    for path in (ROOT / "dptext_etl").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pl.col":
                names = [name for name in node.args if not isinstance(name, ast.Constant)]
                other += [(path.name, ast.unparse(name)) for name in names if not ast.unparse(name).isupper()]
    assert other == [("data_types.py", "name")]
