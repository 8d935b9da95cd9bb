"""Runs that publish a table of Delta Lake: one commit of the table is the publication."""

import json
import shutil

import polars as pl
import pytest

from dptext_etl import run
from dptext_etl.engines import stage
from dptext_etl.errors import BusyError, InputError, PolicyError
from dptext_etl.runner import check, publish
from dptext_etl.runner.planning import plan
from tests.quick import quick

from ..review_jobs import SENTINEL
from .table_kinds import Delta, failing

pytest.importorskip("deltalake", reason="deltalake is not installed (extra: tables)")

table, rows, STRANGERS = Delta.table, Delta.rows, Delta.strangers

TABLE = {"table": {"format": "delta"}}


@pytest.fixture
def job(make_job):
    return make_job(**TABLE)


def log(job):
    return b"".join(path.read_bytes() for path in sorted((job.folder / "published" / "_delta_log").iterdir()))


def test_a_log_holds_no_statistics_of_cells(job):
    job.run()
    stats = [json.loads(line)["add"]["stats"] for line in log(job).splitlines() if b'"add"' in line]
    assert [json.loads(item) for item in stats] == [{"numRecords": 100}, {"numRecords": 100}, {"numRecords": 40}]
    assert b"r00007" not in log(job)
    everything = b"".join(path.read_bytes() for path in (job.folder / "published").rglob("*") if path.is_file())
    assert SENTINEL.encode() not in everything


def test_other_writers_keep_no_statistics_of_cells_either(job):
    """The log outlives the files that it describes, and `forget` does not rewrite it."""
    job.run()
    for change in (*STRANGERS.values(), Delta.rewrite):
        change(job)
    assert log(job).count(b'"add"') > 3
    assert b"r0000" not in log(job)


NAIVE = pl.datetime(2026, 1, "stars")


@pytest.mark.parametrize("made", quick([NAIVE, pl.struct("user_id", at=NAIVE), pl.concat_list(pl.struct(at=NAIVE))]))
def test_a_table_without_the_feature_of_naive_timestamps_gets_none(job, reviews, save, made):
    """No commit can add a feature to a table, and without it no reader opens the table again."""
    job.run()
    charged = job.charged()
    save(reviews(300).with_columns(stars=made), job.folder / "raw.parquet")
    for attempt in (job.run, lambda **changes: plan(job.policy(**changes))):
        with pytest.raises(InputError, match="column 'stars' holds timestamps without a time zone"):
            attempt(release="2026-12")
    assert job.charged() == charged
    assert rows(job).height == 240
    job.run(release="2026-12", sink=str(job.folder / "other"))
    assert pl.read_delta(str(job.folder / "other")).height == 300


def test_other_columns_change_the_schema_of_the_table(job):
    job.run()
    job.run(keep=["stars", "user_id"], release="2026-12")
    assert rows(job).columns == ["id", "stars", "user_id", "review", "note"]
    assert table(job).version() == 1
    assert not failing(job, keep=["stars", "user_id"], release="2026-12")


def test_two_releases_at_once_make_two_versions_at_most(job):
    """The second publishes while the first is between its gates and its publication."""
    one, two = job.policy(release="one"), job.policy(release="two")
    staged = stage(one)
    verdicts = check(staged)
    run(two)
    publish(staged, verdicts)
    assert table(job).version() == 1
    assert json.loads((job.folder / "published/_dptext/manifest.json").read_text())["release"] == "one"
    assert not failing(job, release="one")
    assert "other release" in failing(job, release="two")["published_files"]


@pytest.mark.parametrize("what", quick(STRANGERS))
def test_a_table_that_is_restored_is_taken_again(job, what):
    job.run()
    STRANGERS[what](job)
    table(job).restore(0)
    assert not failing(job)
    job.run(release="2026-12")
    assert not failing(job, release="2026-12")


def test_an_older_protocol_with_features_of_its_own_is_refused(job):
    """Column mapping, for one, gives the columns of files other names."""
    job.run()
    older = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
    (job.folder / "published/_delta_log/00000000000000000001.json").write_text(json.dumps(older))
    with pytest.raises(InputError, match="features that a run does not write: reader version 2, writer version 5"):
        job.run(release="2026-12")


@pytest.mark.parametrize("what", quick(STRANGERS))
def test_another_writer_right_before_the_commit_is_refused(job, what):
    job.run()

    def checkpoint(name):
        if name == "manifest written":
            STRANGERS[what](job)

    with pytest.raises(InputError, match="another writer has changed"):
        run(job.policy(release="2026-12"), checkpoint=checkpoint)
    assert table(job).version() == 1, "the version of the other writer stays"
    table(job).restore(0)
    assert job.run(release="2026-12").version == 2
    assert not failing(job, release="2026-12")


def test_a_commit_that_lost_its_race_commits_nothing(job, monkeypatch):
    """Another writer commits after this run has looked at the table for the last time."""
    from dptext_etl.table_formats.delta import Delta

    job.run()
    opened = Delta.commit

    def late(self, files, schema, facts, before):
        table(job).delete("stars = 1")
        return opened(self, files, schema, facts, before)

    monkeypatch.setattr(Delta, "commit", late)
    with pytest.raises(BusyError, match="another writer has committed to the table meanwhile"):
        job.run(release="2026-12")
    assert table(job).version() == 1


def test_commits_of_no_rows_change_nothing(job):
    job.run()
    table(job).alter.set_table_properties({"delta.logRetentionDuration": "interval 7 days"})
    table(job).create_checkpoint()
    assert not failing(job)
    job.run(release="2026-12")
    assert not failing(job, release="2026-12")


def test_check_notices_a_log_that_is_gone(job):
    job.run()
    shutil.rmtree(job.folder / "published" / "_delta_log")
    assert "shown otherwise: 3" in failing(job)["published_files"]
    job.run(release="2026-12")
    assert not failing(job, release="2026-12")


def test_a_manifest_that_is_gone_or_older_is_refused(job):
    job.run()
    manifest = job.folder / "published/_dptext/manifest.json"
    first = manifest.read_bytes()
    job.run(keep=[])
    manifest.write_bytes(first)
    with pytest.raises(InputError, match="shows version 2, and its manifest is for version 1"):
        job.run(release="2026-12")
    manifest.unlink()
    with pytest.raises(InputError, match="shows version 2, and its manifest is missing"):
        job.run(release="2026-12")


def test_plain_files_and_a_table_do_not_take_each_others_place(make_job):
    plain, job = make_job("plain"), make_job("table", **TABLE)
    plain.run()
    with pytest.raises(InputError, match="holds plain files that a run published"):
        plain.run(release="2026-12", **TABLE)
    job.run()
    with pytest.raises(InputError, match="holds a table with a log, and the policy has no entry table"):
        job.run(release="2026-12", table=None)


@pytest.mark.parametrize("log", [None, "_delta_log"])
def test_foreign_files_in_the_folder_are_refused(job, log):
    """A folder of a log is not a table yet."""
    (job.folder / "published" / (log or "")).mkdir(parents=True)
    (job.folder / "published" / "theirs.txt").touch()
    with pytest.raises(InputError, match="1 file or folder that no run of dptext wrote"):
        job.run()
    assert not (job.folder / "ledger.db").exists()


def test_a_name_that_the_format_forbids_is_named(job, reviews, save):
    save(reviews().rename({"stars": "number of stars"}), job.folder / "raw.parquet")
    with pytest.raises(InputError, match="the name of column 'number of stars' has a space"):
        job.run(keep=["number of stars"])


def test_names_that_differ_in_case_alone_are_named(job, reviews, save):
    save(reviews().with_columns(Stars="stars"), job.folder / "raw.parquet")
    with pytest.raises(InputError, match="and another column have the same name in lowercase"):
        job.run(keep=["stars", "Stars"])
    assert not (job.folder / "ledger.db").exists()


def test_a_sink_that_names_a_file_is_refused(job):
    with pytest.raises(PolicyError, match="sink is the folder of the table"):
        job.policy(sink=str(job.folder / "published.csv"))
    with pytest.raises(PolicyError, match="format"):
        job.policy(table={"format": "hudi"})
