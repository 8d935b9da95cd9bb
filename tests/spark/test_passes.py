"""How often a run on Spark goes over its frame, the counts on the way, and the files that are left."""

import runpy
import sys

import polars as pl
import pyarrow as pa
import pytest

from dptext_etl.engines.spark import tasks
from dptext_etl.errors import BudgetError
from dptext_etl.spark import run_frame
from tests.later import later

from .. import review_jobs

later("pyspark")
job, make_job, reviews = review_jobs.job, review_jobs.make_job, review_jobs.reviews  # fixtures


def frame_of(spark, job, parts=3):
    return spark.read.parquet(str(job.folder / "raw.parquet")).repartition(parts)


def kept_frames(spark):
    return spark.sparkContext._jsc.getPersistentRDDs().size()


def noted(frame, folder):
    """Return the frame, whose evaluations each leave a file for a partition in a folder."""
    folder.mkdir()

    def passing(batches):
        import secrets
        from pathlib import Path

        from pyspark import TaskContext

        Path(folder, f"{TaskContext.get().partitionId()}-{secrets.token_hex(8)}").touch()
        yield from batches

    return frame.mapInArrow(passing, frame.schema)


def test_a_run_takes_few_jobs_and_passes_over_its_frame(spark, make_job, tmp_path):
    """Passes count, compare ids of canary rows, and exchange the rows, which then are kept for look and release."""
    job = make_job(keep=["stars"])
    raw, jobs = spark.read.parquet(str(job.folder / "raw.parquet")), spark.sparkContext._jsc.sc().dagScheduler()
    frame, kept = noted(raw, tmp_path / "passes"), kept_frames(spark)  # of other tests, whose runs were stopped
    before = jobs.numTotalJobs()
    run_frame(frame, job.policy(shard_rows=90))
    assert jobs.numTotalJobs() - before <= 10
    assert len(list((tmp_path / "passes").iterdir())) == 3  # the frame has one partition
    assert kept_frames(spark) == kept


def test_rows_are_removed_after_a_refusal(spark, job):
    terms = {"cap": {"measure": "pure", "epsilon": 1e-3, "period": "2026"}, "on_cap": "refuse"}
    kept = kept_frames(spark)
    with pytest.raises(BudgetError):
        run_frame(frame_of(spark, job), job.policy(**terms))
    assert kept_frames(spark) == kept


@pytest.mark.thorough
def test_several_tasks_count_spellings_of_persons_and_traceable_rows_as_one_process_does(spark, make_job, reviews):
    spelled = ["Zo\u00eb@x", "zoe\u0308@X ", "STRASSE", "stra\u00dfe", "b", None] * 20
    frame = reviews(120).with_columns(user_id=pl.Series(spelled), stars=pl.int_range(120) // 3)
    terms = {"normalize": ["nfc", "strip"], "keep": ["stars"], "keep_unique": "accepted"}
    terms |= {"on_null_subject": "own", "shard_rows": 30, "min_released": 0.0}
    job, other = (make_job(name, frame=frame, **terms) for name in ("spark", "polars"))
    expected = other.run()
    found = run_frame(frame_of(spark, job), job.policy())
    assert found.table["spellings"] == expected.table["spellings"] == {"persons": 5, "alike": 3, "folded": 3}
    assert found.table["traceable"] == expected.table["traceable"]


def test_bundles_keep_their_rows_and_the_daemon_has_imported_what_workers_need(monkeypatch):
    monkeypatch.setattr(tasks, "_BUNDLE_BYTES", 100)
    rows = pa.table({"id": pa.array(range(1000)), "text": pa.array([None, "a", "bcd", ""] * 250)})
    cells = list(tasks.bundled(iter(rows.to_batches(max_chunksize=300))))
    assert len(cells) > 50
    assert pa.Table.from_batches(tasks.unbundled(cells)) == rows
    from pyspark import daemon

    seen = []
    monkeypatch.setattr(daemon, "manager", lambda: seen.append("dptext_etl.engines.spark.tasks" in sys.modules))
    monkeypatch.setattr("gc.freeze", lambda: seen.append("frozen"))
    runpy.run_module("dptext_etl.spark.daemon", run_name="__main__")
    assert seen == ["frozen", True]
