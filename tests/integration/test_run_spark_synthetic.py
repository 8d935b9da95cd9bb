"""A run on Spark publishes the synthetic table that a run over the same rows publishes."""

import polars as pl
import pytest

from dptext_etl.engines import run
from dptext_etl.engines.spark.spark_engine import SparkEngine
from dptext_etl.errors import BudgetError, DPTextError, InputError, LedgerError
from dptext_etl.families.aggregate import read_statistic
from dptext_etl.policy.synthetic import CLAIM
from dptext_etl.spark import run_frame
from tests.quick import quick

from ..synthetic_runs import CAP, CELLED, SYNTHETIC, graded, labeled, ref_of, used, verified
from .spark_runs import frame_of

TWO = {**SYNTHETIC, "per_subject": 2}


@pytest.fixture
def make_pair(make_synthetic):
    """Make a job that has run in this process, and one for Spark with the same rows and the same key."""

    def made(**changes):
        here, there = make_synthetic("here", **changes), make_synthetic("spark", **changes)
        return here, here.run(), there

    return made


def test_the_bytes_and_the_charges_are_those_of_a_run(spark, make_pair):
    """Among the rows are null texts, null and unlisted labels, and persons with more records than count."""
    here, expected, there = make_pair(synthetic=TWO, shard_rows=30, normalize=["strip"])
    summary = run_frame(frame_of(spark, there), there.policy())
    assert there.files() == here.files()
    assert (summary.rows, summary.manifest) == (expected.rows, expected.manifest)
    assert (summary.rows["over_contribution"], summary.rows["released"]) == (160, 80)
    assert summary.gates == expected.gates
    assert used(there) == used(here)
    found = [read_statistic(job.folder / "published.manifest.json", "example").sums for job in (here, there)]
    assert (found[0] == found[1]).all()
    with there.ledger() as ledger, here.ledger() as book:
        assert (
            ledger.releases.pinned_table(ref_of(there, ledger))
            == book.releases.pinned_table(ref_of(here, book))
            is not None
        )
        assert ledger.records(ref_of(there, ledger)) == 80
    assert verified(there) == []


@pytest.mark.thorough
def test_cells_of_several_columns_have_the_bytes_of_a_run(spark, make_pair, reviews):
    here, expected, there = make_pair(synthetic=CELLED, frame=graded(reviews()), shard_rows=70)
    assert run_frame(frame_of(spark, there), there.policy()).manifest == expected.manifest
    assert there.files() == here.files()


@pytest.mark.thorough
def test_the_same_table_again_costs_nothing_wherever_it_runs(spark, make_synthetic):
    job = make_synthetic()
    first = run_frame(frame_of(spark, job), job.policy())
    before, spent = job.files(), used(job)
    for again in (run_frame(frame_of(spark, job, 1), job.policy(shard_rows=70)), job.run()):
        assert (again.changed, again.rows["new"], again.rows["replayed"]) == (False, 0, 240)
        assert again.manifest == first.manifest
    assert (job.files(), used(job)) == (before, spent)
    assert verified(job) == []


@pytest.mark.parametrize("change", quick(["text", "label", "fewer"]))
def test_a_release_holds_one_table(spark, make_synthetic, change):
    from pyspark.sql import functions as F  # noqa: N812

    job = make_synthetic()
    job.run()
    before, spent, frame = job.files(), used(job), frame_of(spark, job)
    one = F.col("id") == "r00008"
    other = {
        "label": lambda: frame.withColumn("topic", F.when(one, "money").otherwise(F.col("topic"))),
        "text": lambda: frame.withColumn("review", F.when(one, "another").otherwise(F.col("review"))),
        "fewer": lambda: frame.filter(~one),
    }[change]()
    with pytest.raises((InputError, LedgerError), match="one table, whole"):
        run_frame(other, job.policy())
    assert (job.files(), used(job)) == (before, spent)
    assert verified(job) == []


@pytest.mark.parametrize(("how", "step"), quick([("dies", "committed"), ("dies", "reserved"), ("raises", "reserved")]))
def test_a_task_that_is_retried_counts_once(spark, make_pair, how, step):
    here, expected, there = make_pair(shard_rows=60)
    failures = there.folder / "failures"
    failures.mkdir()

    def checkpoint(name):
        import os

        from pyspark import TaskContext

        task = TaskContext.get()
        if task is None or name != step or task.attemptNumber():
            return
        (failures / f"{task.partitionId()}").touch()
        if how == "dies":
            os._exit(13)
        raise ValueError("zzqsentinelqzz")

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
def test_records_over_the_cap_stop_the_run_or_do_not_count(spark, make_synthetic):
    job = make_synthetic(on_cap="refuse", shard_rows=100)
    spend = job.policy().statistic.charge(CLAIM)
    job.values["cap"] = {**CAP, "epsilon": spend.eps_approx * 3 / 1e6}
    with pytest.raises(BudgetError, match="120 records would exceed the cap"):
        run_frame(frame_of(spark, job), job.policy())
    assert not (job.folder / "ledger.db").exists()
    summary = run_frame(frame_of(spark, job), job.policy(on_cap="quarantine"))
    assert (summary.rows["quarantined"], summary.rows["released"]) == (120, 120)
    lists = list((job.folder / "published.staging").rglob("quarantine-*"))
    assert sum(pl.read_parquet(path).height for path in lists) == 120
    assert verified(job) == []


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


@pytest.mark.thorough
def test_a_corpus_in_a_folder_and_no_persons(spark, make_pair, tmp_path):
    """Workers find the corpus by its hash."""
    from dptext_etl.corpora import Corpus

    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "corpus.safetensors").write_bytes(Corpus.open("example").path.read_bytes())
    made = {**SYNTHETIC["mechanism"], "corpus": str(folder)}
    changes = {"unit": "record", "subject": None, "cap": None}
    here, _, there = make_pair(synthetic={**SYNTHETIC, "per_subject": 1, "labels": None, "mechanism": made}, **changes)
    assert run_frame(frame_of(spark, there), there.policy()).rows["released"] == 240
    assert there.files() == here.files()


@pytest.mark.thorough
def test_staging_and_sink_may_be_object_stores(spark, make_synthetic, store):
    options = {**store.options, "aws_secret_access_key": "env:DPTEXT_STORE_SECRET"}
    places = {"sink": "s3://bucket/topics", "staging": "s3://bucket/staging", "storage_options": options}
    job = make_synthetic(shard_rows=1000, **places)
    assert run_frame(frame_of(spark, job), job.policy()).published_rows == 50
    assert job.run().changed is False
    assert not [name for name in store.objects if "synthetic" in name]
