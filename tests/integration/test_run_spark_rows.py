"""Runs on Spark look at all rows before any is charged, and do with changed rows and null persons what runs do."""

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from dptext_etl.errors import BudgetError, InputError
from dptext_etl.spark import run_frame
from tests.quick import quick

from .spark_runs import frame_of, published, used

CHANGED = ["r00003", "r00150", "r00239"]


def consenting(job, **entries):
    found = job.policy().model_dump(by_alias=True)["column"]
    return {"column": [{**item, "allow": ["cluster", "changed"]} for item in found], **entries}


def edit(job, save):
    frame = pl.read_parquet(job.folder / "raw.parquet")
    edited = pl.when(pl.col("id").is_in(CHANGED)).then(pl.lit("word anew")).otherwise("review")
    save(frame.with_columns(review=edited), job.folder / "raw.parquet")


def listed(job):
    found = [pl.read_parquet(path)["id"] for path in (job.folder / "published.staging").rglob("changed-*")]
    return sorted(pl.concat(found))


def head(job):
    with job.ledger() as ledger:
        return str(ledger.anchor())


def test_refused_before_anything_is_charged(spark, job, save):
    low = {"cap": {"measure": "pure", "epsilon": 60.0, "period": "2026"}}
    with pytest.raises(BudgetError, match="min_released"):
        run_frame(frame_of(spark, job), job.policy(**low))
    assert not (job.folder / "ledger.db").exists()
    run_frame(frame_of(spark, job), job.policy())
    edit(job, save)
    before = head(job)
    with pytest.raises(InputError, match="texts of 3 records changed"):
        run_frame(frame_of(spark, job), job.policy())
    assert head(job) == before
    assert listed(job) == CHANGED


@pytest.mark.thorough
def test_kept(spark, job, save):
    run_frame(frame_of(spark, job), job.policy())
    before, spent = published(job), used(job)
    edit(job, save)
    summary = run_frame(frame_of(spark, job), job.policy(on_changed="keep"))
    assert summary.rows["changed_kept"] == 3
    assert_frame_equal(published(job), before)
    assert used(job) == spent


@pytest.mark.thorough
@pytest.mark.parametrize("choice", quick(["release_again", "quarantine"]))
def test_released_again_and_left_out(spark, make_job, save, choice):
    jobs = [make_job(engine) for engine in ("spark", "polars")]
    entries = consenting(jobs[0], on_changed=choice)
    run_frame(frame_of(spark, jobs[0]), jobs[0].policy(**entries))
    jobs[1].run(**entries)
    for job in jobs:
        edit(job, save)
    found = run_frame(frame_of(spark, jobs[0]), jobs[0].policy(**entries))
    expected = jobs[1].run(**entries)
    assert found.rows == expected.rows
    assert_frame_equal(published(jobs[0]), published(jobs[1]))
    assert used(jobs[0]) == used(jobs[1])


@pytest.mark.thorough
@pytest.mark.parametrize("choice", ["own", "quarantine"])
def test_null_persons(spark, make_job, reviews, choice):
    frame = reviews().with_columns(user_id=pl.when(pl.col("stars") > 1).then("user_id"))
    jobs = [make_job(name, frame=frame, shard_rows=50, on_null_subject=choice) for name in ("spark", "polars")]
    found, expected = run_frame(frame_of(spark, jobs[0]), jobs[0].policy()), jobs[1].run()
    assert found.rows == expected.rows
    assert_frame_equal(published(jobs[0]), published(jobs[1]))
    assert used(jobs[0]) == used(jobs[1])
