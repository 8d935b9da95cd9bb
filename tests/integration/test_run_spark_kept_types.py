"""Kept columns of CSV files have the types on Spark that they have in one process."""

import polars as pl
import pytest

from dptext_etl import run
from dptext_etl.engines.spark.session import read_source
from dptext_etl.engines.spark.spark_engine import SparkEngine
from dptext_etl.errors import InputError
from dptext_etl.polars import run_frame
from dptext_etl.runner import scan_published
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.source.table import Files
from dptext_etl.spark import published
from tests.quick import quick

CELLS = {"zip": "0{}", "count": "{}", "share": "{}.5", "price": "{}.10", "code": "{}E5"}


def run_on_spark(spark, policy):
    source = Files.find(Layout.of(policy))
    return run(policy, engine=SparkEngine(read_source(spark, policy, None, source), source=source))


@pytest.mark.thorough
@pytest.mark.parametrize("sink", quick(["published.csv", "published.parquet"]))
def test_spark_publishes_the_same_types_and_refuses_the_same_values(spark, make_job, reviews, save, sink):
    frame = reviews().with_columns(**{name: pl.format(form, "stars") for name, form in CELLS.items()})
    job, other = (make_job(name, frame, ".csv", keep=[*CELLS], incremental=True) for name in ("spark", "polars"))
    for one in (job, other):
        one.values["sink"] = str(one.folder / sink)
    run_on_spark(spark, job.policy())
    other.run()
    found, expected = (scan_published(one.values["sink"]).collect().sort("id") for one in (job, other))
    assert found.schema == expected.schema
    assert found.equals(expected)
    assert dict(published(spark, job.values["sink"]).dtypes) == {
        **dict.fromkeys(("id", "zip", "price", "code", "review", "note"), "string"),
        "count": "bigint",
        "share": "double",
    }
    charged = job.charged()
    save(
        reviews(300).with_columns(count=pl.lit("007"), **{name: pl.lit("1") for name in CELLS if name != "count"}),
        job.folder / "raw.csv",
    )
    with pytest.raises(InputError, match=r"\('count'\) is published as Int64, and 300 values do not keep"):
        run_on_spark(spark, job.policy())
    assert job.charged() == charged


@pytest.mark.thorough
def test_spark_reads_types_of_a_csv_release_that_it_lacks(spark, make_job, reviews):
    job = make_job()
    job.values |= {"sink": str(job.folder / "published.csv"), "keep": ["small", "large", "at", "infinite"]}
    more = {"small": pl.col("stars").cast(pl.UInt8), "large": pl.col("stars").cast(pl.UInt64), "at": pl.time("stars")}
    run_frame(reviews().with_columns(**more, infinite=pl.lit(float("inf"))), job.policy())
    rows = published(spark, job.values["sink"])
    assert {name: kind for name, kind in rows.dtypes if name in job.values["keep"]} == {
        "small": "smallint",
        "large": "decimal(20,0)",
        "at": "string",
        "infinite": "double",
    }
    assert rows.agg({"small": "sum", "infinite": "max"}).collect()[0].asDict() == {
        "sum(small)": 720,
        "max(infinite)": float("inf"),
    }
