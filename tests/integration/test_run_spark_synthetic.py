"""Synthetic tables on Spark, beyond the contract of all engines: tasks that die, and sources that change."""

import polars as pl
import pytest

from dptext_etl.engines import run
from dptext_etl.engines.spark.spark_engine import SparkEngine
from dptext_etl.errors import DPTextError
from dptext_etl.polars import label
from dptext_etl.spark import label_function

from ..synthetic_runs import labeled, used, verified
from .spark_runs import failing_once, frame_of


@pytest.fixture
def make_pair(make_synthetic):
    """Make a job that has run in this process, and one for Spark with the same rows and the same key."""

    def made(**changes):
        here, there = make_synthetic("here", **changes), make_synthetic("spark", **changes)
        return here, here.run(), there

    return made


@pytest.mark.thorough
@pytest.mark.parametrize(("how", "step"), [("dies", "committed"), ("dies", "reserved"), ("raises", "reserved")])
def test_a_task_that_is_retried_counts_once(spark, make_pair, how, step):
    here, expected, there = make_pair(shard_rows=60)
    failures = there.folder / "failures"
    checkpoint = failing_once(failures, step, how)
    summary = run(there.policy(), engine=SparkEngine(frame_of(spark, there)), checkpoint=checkpoint)
    assert len(list(failures.iterdir())) >= 2
    assert (there.files(), summary.manifest) == (here.files(), expected.manifest)
    assert used(there) == used(here)
    assert verified(there) == []


@pytest.mark.thorough
def test_a_run_that_stopped_half_way_goes_on_in_this_process(spark, make_pair):
    here, expected, there = make_pair(shard_rows=60)

    def checkpoint(name):
        from pyspark import TaskContext

        if name == "committed" and TaskContext.get() is not None:
            raise ValueError("zzqsentinelqzz")

    with pytest.raises(DPTextError, match="computing on Spark failed"):
        run(there.policy(), engine=SparkEngine(frame_of(spark, there)), checkpoint=checkpoint)
    assert not (there.folder / "published.manifest.json").exists()
    assert there.run().manifest == expected.manifest
    assert used(there) == used(here)
    assert verified(there) == []


@pytest.mark.thorough
def test_a_source_that_changes_between_two_readings_is_not_published(spark, make_synthetic, reviews, save):
    job = make_synthetic()
    frame = frame_of(spark, job)

    def checkpoint(name):
        from pyspark.sql import SparkSession

        if name == "staged":
            save(labeled(reviews()).with_columns(review=pl.lit("another")), job.folder / "raw.parquet")
            SparkSession.active().catalog.clearCache()  # kept rows are lost with their executors, and read again

    with pytest.raises(DPTextError):
        run(job.policy(), engine=SparkEngine(frame), checkpoint=checkpoint)
    assert not (job.folder / "published.manifest.json").exists()
    save(labeled(reviews()), job.folder / "raw.parquet")
    assert job.run().rows["resumed"] == 240
    assert verified(job) == []


def test_a_column_of_spark_is_labeled_by_the_published_classifier(spark, make_synthetic):
    if not hasattr(pytest.importorskip("pyspark.sql.pandas.functions"), "arrow_udf"):
        pytest.skip("Spark 3.5 has no functions of Arrow columns")
    job = make_synthetic()
    job.run()
    place, texts = job.folder / "published", ["the bank closed my account", None, "play the new album"]
    frame = spark.createDataFrame([(text,) for text in texts], "text string")
    spark.udf.register("topic", label_function(place))
    found = [row.t for row in frame.selectExpr("topic(text) AS t").collect()]
    assert found == pl.DataFrame({"text": texts}).select(label("text", place))["text"].to_list()
    assert found[1] is None
