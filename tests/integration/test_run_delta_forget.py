"""Forget people in a table of Delta Lake, and clean up its older versions: no reader gets their rows back."""

import polars as pl
import pytest

from dptext_etl import Policy, run
from dptext_etl.errors import InputError
from dptext_etl.runner import scan_published
from dptext_etl.runner.publish.erasing import clean, partitions_of
from dptext_etl.runner.publish.forgetting import forget
from tests.quick import quick

from ..review_jobs import make_reviews
from .table_kinds import Delta, failing, place, recorded

pytest.importorskip("deltalake", reason="deltalake is not installed (extra: tables)")

table, rows = Delta.table, Delta.rows

TABLE = {"table": {"format": "delta"}}


class StopError(Exception):
    """Stands for a process that dies."""


@pytest.fixture
def job(make_job):
    return make_job(**TABLE)


def test_no_older_version_can_be_read_after_forget(job, reviews, save):
    job.run()
    save(reviews().filter(pl.col("user_id") != "u007"), job.folder / "raw.parquet")
    forget(job.policy(), subjects=["u007"])
    with pytest.raises(Exception, match=r"v1/part|not found|No such file"):
        pl.read_delta(place(job), version=0)
    log = (job.folder / "published" / "_delta_log").iterdir()
    assert not any(b"r00007" in path.read_bytes() for path in log)
    assert recorded(job)[-1].endswith("@delta-1")


def test_files_of_another_writer_go_with_those_who_are_forgotten(job, reviews, save):
    """What a compaction left behind holds them, too, though the log lists it no more."""
    job.run()
    Delta.rewrite(job)
    save(reviews().filter(pl.col("user_id") != "u007"), job.folder / "raw.parquet")
    assert list((job.folder / "published").glob("*.parquet"))
    forget(job.policy(), subjects=["u007"])
    assert not list((job.folder / "published").glob("*.parquet"))
    assert not failing(job)


@pytest.mark.parametrize("spec", [None, *TABLE.values()])
def test_forget_deletes_no_other_table_that_lies_in_the_folder(job, reviews, save, spec):
    job.run()
    inner = {"sink": f"{place(job)}/inner", "dataset": "others", "table": spec}
    job.run(**inner)
    save(reviews().filter(pl.col("user_id") != "u007"), job.folder / "raw.parquet")
    with pytest.raises(InputError, match="1 other published table lies in the folder of the table"):
        forget(job.policy(), subjects=["u007"])
    assert rows(job).height == 240
    assert scan_published(inner["sink"]).collect().height == 240
    assert forget(job.policy(**inner), subjects=["u007"]).rows == 234


@pytest.mark.parametrize(
    "step", quick(["parts written", "manifest written", "forgotten", "recorded", "shown"], first=2)
)
def test_a_call_of_forget_that_died_is_completed_by_the_next(job, reviews, save, step):
    job.run()
    save(reviews().filter(pl.col("user_id") != "u007"), job.folder / "raw.parquet")

    def checkpoint(name):
        if name == step:
            raise StopError

    with pytest.raises(StopError):
        forget(job.policy(), subjects=["u007"], checkpoint=checkpoint)
    forget(job.policy(), subjects=["u007"])
    assert rows(job).height == 234
    assert sorted(path.name for path in (job.folder / "published").glob("v*")) == ["v2"]
    assert len([entry for entry in table(job).history() if "dptext.manifest" in entry]) == 2
    assert not failing(job)


def test_clean_keeps_the_versions_that_the_policy_keeps(job):
    for stars in (["stars"], [], ["stars", "user_id"]):
        job.run(keep=stars)
    assert clean(job.policy(retention={"versions": 2})).versions == ["v1"]
    assert pl.read_delta(place(job), version=1).columns == ["id", "review", "note"]
    assert rows(job).height == 240


def test_forget_commits_a_synthetic_table_that_a_run_did_not(make_synthetic, save):
    """Older versions go with the call, so the table must show the newest one first."""
    from ..synthetic_runs import labeled

    job = make_synthetic(**TABLE)
    job.run()
    job.values["release"] = "2026-12"
    assert job.stop("manifest written")
    assert table(job).version() == 0
    save(labeled(make_reviews()).filter(pl.col("user_id") != "u007"), job.folder / "raw.parquet")
    assert forget(job.policy(), subjects=["u007"]).versions == ["v1"]
    assert rows(job).height == job.policy().synthetic.rows
    assert not failing(job)


def test_forget_everywhere_finds_the_tables_of_all_partitions(job, reviews, save):
    places = {"source": str(job.folder / "{partition}.parquet"), "sink": str(job.folder / "out" / "{partition}")}
    policy = job.policy(**places, staging=str(job.folder / "staging"))
    for at, name in enumerate(("a", "b")):
        save(reviews(120, 120 * at), job.folder / f"{name}.parquet")
        run(policy, partition=name)
        save(reviews(120, 120 * at).filter(pl.col("user_id") != "u007"), job.folder / f"{name}.parquet")
    entries = {name: value for name, value in policy.model_dump(mode="json", by_alias=True).items() if value}
    assert partitions_of(Policy.parse(entries)) == ["a", "b"]
    elsewhere = Policy.load(job.write_policy(**places, staging=None))  # the manifests show them
    for found in (partitions_of(policy), partitions_of(elsewhere)):
        assert found == ["a", "b"]
