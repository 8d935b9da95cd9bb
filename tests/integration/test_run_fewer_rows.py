"""A run that would lose published rows, which the source still holds, is refused before it charges anything."""

import polars as pl
import pytest

from dptext_etl import _kernel, run
from dptext_etl.errors import PolicyError
from dptext_etl.runner import plan
from tests.quick import quick

from ..refusals import same_refusal
from ..review_jobs import SURROGATE

COLUMN = [{"name": "review", "mechanism": {**SURROGATE, "epsilon": 1.0}}]
CAP = {"measure": "approx", "epsilon": 9.0, "delta": 1e-6, "period": "2026"}
"""Six rows of each of 40 persons cost 6, so that three of each fit a second time."""


@pytest.fixture
def released(make_job):
    def made(**changes):
        job = make_job(**{"column": COLUMN, "cap": CAP, **changes})
        job.run()
        return job

    return made


def rotated(job):
    """The entries of a policy with another key, under another release name."""
    _kernel.Secret().write(str(job.folder / "other.key"))
    return {"key": f"file:{job.folder / 'other.key'}", "release": "next"}


def edit(job, change):
    path = job.folder / "raw.parquet"
    change(pl.read_parquet(path)).write_parquet(path)


@pytest.mark.parametrize("ids", quick(["keep", "drop", "keyed"], first=2))
def test_a_rotated_key_loses_rows_only_with_consent(released, ids):
    job = released(ids=ids)
    entries = rotated(job)
    error = same_refusal(job, entries, PolicyError)
    assert "120 of 240 published rows that the source still holds would be excluded" in error.message
    assert "published now: 240 rows; this run: 120. Nothing was charged" in error.message
    assert error.fields == {"rows": 120, "published": 240}
    assert "--accept-fewer-rows" in error.hint
    assert job.published().height == 240
    planned = plan(job.policy(**entries), accept_fewer_rows=True)
    assert (planned.refusal, planned.table["published"]) == (None, {"now": 240, "this_run": 120})
    done = run(job.policy(**entries), accept_fewer_rows=True)
    assert (done.published_rows, done.table["published"]) == (120, {"now": 240, "this_run": 120})


def test_new_rows_do_not_hide_that_others_are_lost(released):
    job = released()
    new = [pl.format("n{}", name).alias(name) for name in ("id", "user_id")]
    edit(job, lambda rows: pl.concat([rows.with_columns(*new), rows]))
    error = same_refusal(job, rotated(job), PolicyError)
    assert "120 of 240 published rows" in error.message
    assert "published now: 240 rows; this run: 360" in error.message


@pytest.mark.parametrize(("kept", "lost"), quick([(3, None), (4, "40 of 160"), (2, None)], first=2))
def test_rows_that_the_source_lost_do_not_count(released, kept, lost):
    """With three rows of each person, all fit; with four, one of each is over the cap."""
    job = released()
    edit(job, lambda rows: rows.filter(pl.int_range(pl.len()).over("user_id") < kept))
    entries = rotated(job)
    if lost is None:
        assert job.run(**entries).published_rows == 40 * kept
    else:
        assert lost in same_refusal(job, entries, PolicyError).message


def test_up_to_a_tenth_may_go(released):
    """Of 24 of 40 persons, all rows fit again; of 4 others, one row does not."""
    job = released(cap={**CAP, "epsilon": 11.0})
    edit(job, lambda rows: rows.filter((pl.int_range(pl.len()).over("user_id") < 5) | (pl.col("user_id") < "u004")))
    done = job.run(**rotated(job))
    assert (done.rows["quarantined"], done.published_rows) == (4, 200)


def test_rows_that_lose_their_person_are_lost(released):
    """The policy may leave out rows without a person from its second run on; a third of the table is too much."""
    job = released(on_null_subject="refuse")
    path = job.folder / "raw.parquet"
    whole = pl.read_parquet(path)

    def without_person(every):
        return pl.when(pl.int_range(pl.len()) % every < 1).then(None).otherwise("user_id").alias("user_id")

    whole.with_columns(without_person(40)).write_parquet(path)
    done = job.run(on_null_subject="quarantine")
    assert (done.rows["without_subject"], done.published_rows) == (6, 234)
    whole.with_columns(without_person(3)).write_parquet(path)
    error = same_refusal(job, {"on_null_subject": "quarantine"}, PolicyError)
    assert "of 234 published rows" in error.message


def test_a_shuffled_release_counts_its_texts(make_shuffled):
    job = make_shuffled(cap=None)
    job.run()
    shuffled = {**job.values["shuffled"], "per_subject": 3, "rows": 60}
    error = same_refusal(job, {"release": "next", "shuffled": shuffled}, PolicyError)
    assert "120 of 240 published rows" in error.message


@pytest.mark.thorough
def test_spark_counts_the_same_rows(spark, released):
    from dptext_etl.spark import run_frame as run_on_spark

    job = released()
    frame, entries = spark.createDataFrame(pl.read_parquet(job.folder / "raw.parquet").to_pandas()), rotated(job)
    with pytest.raises(PolicyError, match="120 of 240 published rows"):
        run_on_spark(frame, job.policy(**entries))
    assert run_on_spark(frame, job.policy(**entries), accept_fewer_rows=True).published_rows == 120
