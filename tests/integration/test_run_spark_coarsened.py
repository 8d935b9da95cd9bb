"""Kept columns are coarsened and counted on Spark as in one process."""

import polars as pl
import pytest

from dptext_etl import run
from dptext_etl.engines.spark.session import read_source
from dptext_etl.engines.spark.spark_engine import SparkEngine
from dptext_etl.errors import PolicyError
from dptext_etl.runner import scan_published
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.source.table import Files
from dptext_etl.spark import register_view
from tests.quick import quick

KEEP = [
    {"column": "opened", "as": "month"},
    {"column": "closed", "as": "year"},
    {"column": "age", "bins": [18, 65]},
    {"column": "shop", "top": ["a"]},
    "stars",
]


def rows_of(reviews):
    number = pl.int_range(pl.len())
    opened = pl.datetime(2026, 1, 31, 20) + pl.duration(hours=number)
    return reviews().with_columns(
        opened=opened.dt.replace_time_zone("UTC"),
        closed=opened,
        age=pl.when(number % 7 > 0).then(number % 90),
        shop=pl.when(number % 5 > 0).then(pl.lit("a")).otherwise(pl.lit("b")),
    )


def run_on_spark(spark, policy):
    source = Files.find(Layout.of(policy))
    return run(policy, engine=SparkEngine(read_source(spark, policy, None, source), source=source))


@pytest.mark.parametrize("suffix", quick([".parquet", ".csv"]))
def test_the_published_columns_and_the_counts_are_those_of_a_run_in_one_process(spark, make_job, reviews, suffix):
    frame, keep = rows_of(reviews), KEEP
    values = {"incremental": suffix == ".parquet", "keep_unique": None}
    if suffix == ".csv":
        frame, keep = frame.drop("opened"), KEEP[1:]
        frame = frame.with_columns(pl.col("closed").dt.strftime("%Y-%m-%d %H:%M:%S"))
        values["csv"] = {"types": {"closed": "Datetime"}}
    job, other = (make_job(name, frame=frame, suffix=suffix, keep=keep, **values) for name in ("spark", "polars"))
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
    try:
        summary = run_on_spark(spark, job.policy())
        assert run_on_spark(spark, job.policy()).rows["new"] == 0
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    expected = other.run()
    assert expected.table["spellings"]["persons"] == 40
    assert summary.table == expected.table
    assert summary.table["traceable"]["few"] > 0 or suffix == ".csv"
    published = [scan_published(str(one.folder / "published")).collect().sort("id") for one in (job, other)]
    assert published[0].equals(published[1])
    assert published[0].schema == published[1].schema
    assert set(published[0]["age"]) == {None, "<18", "18 to <65", "65+"}


def test_the_refusal_is_that_of_a_run_in_one_process(spark, make_job, reviews):
    job = make_job(frame=rows_of(reviews), keep=["opened", "shop"], keep_unique=None)
    with pytest.raises(PolicyError, match="single out 240 of 240 rows") as here:
        job.run()
    with pytest.raises(PolicyError) as there:
        run_on_spark(spark, job.policy())
    assert there.value.message == here.value.message
    assert not (job.folder / "ledger.db").exists()


def test_a_view_does_not_show_a_column_that_the_policy_coarsens(spark, make_job, reviews):
    job = make_job(frame=rows_of(reviews), keep=KEEP)
    with pytest.raises(PolicyError, match="a view shows kept columns as the table has them"):
        register_view(spark, "shown", table="raw", policy=job.policy())
