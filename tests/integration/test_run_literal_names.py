"""Names of columns are literal. Polars reads `*` and `^…$` as patterns of several names, and a series reads its own so.

A policy refuses such a name, and a source may have such columns next to those that the policy names.
"""

import polars as pl
import pytest

from dptext_etl.engines.spark.session import read_source
from dptext_etl.errors import PolicyError
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.source.guessing import guess
from dptext_etl.runner.source.roles import open_table
from tests.quick import quick

NAMES = ["*", "^.*$", "^review$", "^id$"]
SUFFIXES = [".csv", ".parquet", ".ndjson"]


@pytest.mark.parametrize("name", [*NAMES, "^a\nb$"])
@pytest.mark.parametrize("role", ["id", "subject", "keep", "column"])
def test_a_policy_names_no_pattern(job, role, name):
    column = {"name": name, "mechanism": {"name": "custext", "epsilon": 2.0}, "allow": ["cluster"]}
    values = {"id": name, "subject": name, "keep": [name], "column": [column]}
    with pytest.raises(PolicyError, match="Polars reads such a name as a pattern of other names"):
        job.policy(**{role: values[role]})


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
