"""Runs that publish a table of Delta Lake: one commit is the publication; forgetting leaves no older rows."""

import json
import shutil

import polars as pl
import pytest

from dptext_etl import Policy, run
from dptext_etl.engines import stage
from dptext_etl.errors import BusyError, InputError, PolicyError
from dptext_etl.runner import check, publish, scan_published
from dptext_etl.runner.planning import plan
from dptext_etl.runner.publish.forgetting import forget, partitions_of
from tests.quick import quick

from ..review_jobs import SENTINEL, StopError, make_reviews, stopping_at
from .table_kinds import Delta, failing, place

pytest.importorskip("deltalake", reason="deltalake is not installed (extra: tables)")

table, rows, STRANGERS = Delta.table, Delta.rows, Delta.strangers

TABLE = {"table": {"format": "delta"}}


@pytest.fixture
def job(make_job):
    return make_job(**TABLE)


@pytest.fixture(scope="module")
def released_with():
    return lambda _: TABLE


def log(job):
    return b"".join(path.read_bytes() for path in sorted((job.folder / "published" / "_delta_log").iterdir()))


def test_a_log_holds_no_statistics_of_cells(released):
    stats = [json.loads(line)["add"]["stats"] for line in log(released).splitlines() if b'"add"' in line]
    assert [json.loads(item) for item in stats] == [{"numRecords": 120}, {"numRecords": 120}]
    assert b"r00007" not in log(released)
    everything = b"".join(path.read_bytes() for path in (released.folder / "published").rglob("*") if path.is_file())
    assert SENTINEL.encode() not in everything


def test_other_writers_keep_no_statistics_of_cells_either(released):
    """The log outlives the files that it describes, and `forget` does not rewrite it."""
    for change in (*STRANGERS.values(), Delta.rewrite):
        change(released)
    assert log(released).count(b'"add"') > 3
    assert b"r0000" not in log(released)


NAIVE = pl.datetime(2026, 1, "stars")


@pytest.mark.parametrize("made", quick([NAIVE, pl.struct("user_id", at=NAIVE), pl.concat_list(pl.struct(at=NAIVE))]))
def test_a_table_without_the_feature_of_naive_timestamps_gets_none(released, reviews, save, made):
    """No commit can add a feature to a table, and without it no reader opens the table again."""
    charged = released.charged()
    save(reviews(300).with_columns(stars=made), released.folder / "raw.parquet")
    for attempt in (released.run, lambda **changes: plan(released.policy(**changes))):
        with pytest.raises(InputError, match="column 'stars' holds timestamps without a time zone"):
            attempt(release="2026-12")
    assert released.charged() == charged
    assert rows(released).height == 240
    released.run(release="2026-12", sink=str(released.folder / "other"))
    assert pl.read_delta(str(released.folder / "other")).height == 300


def test_other_columns_change_the_schema_of_the_table(released):
    released.run(keep=["stars", "user_id"], release="2026-12")
    assert rows(released).columns == ["id", "stars", "user_id", "review", "note"]
    assert table(released).version() == 1
    assert not failing(released, keep=["stars", "user_id"], release="2026-12")


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
def test_a_table_that_is_restored_is_taken_again(released, what):
    STRANGERS[what](released)
    table(released).restore(0)
    assert not failing(released)
    released.run(release="2026-12")
    assert not failing(released, release="2026-12")


def test_an_older_protocol_with_features_of_its_own_is_refused(released):
    """Column mapping, for one, gives the columns of files other names."""
    older = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
    (released.folder / "published/_delta_log/00000000000000000001.json").write_text(json.dumps(older))
    with pytest.raises(InputError, match="features that a run does not write: reader version 2, writer version 5"):
        released.run(release="2026-12")


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


def test_commits_of_no_rows_change_nothing(released):
    table(released).alter.set_table_properties({"delta.logRetentionDuration": "interval 7 days"})
    table(released).create_checkpoint()
    assert not failing(released)
    released.run(release="2026-12")
    assert not failing(released, release="2026-12")


def test_check_notices_a_log_that_is_gone(released):
    shutil.rmtree(released.folder / "published" / "_delta_log")
    assert "shown otherwise: 2" in failing(released)["published_files"]
    released.run(release="2026-12")
    assert not failing(released, release="2026-12")


def test_a_manifest_that_is_gone_or_older_is_refused(released):
    manifest = released.folder / "published/_dptext/manifest.json"
    first = manifest.read_bytes()
    released.run(keep=[])
    manifest.write_bytes(first)
    with pytest.raises(InputError, match="shows version 2, and its manifest is for version 1"):
        released.run(release="2026-12")
    manifest.unlink()
    with pytest.raises(InputError, match="shows version 2, and its manifest is missing"):
        released.run(release="2026-12")


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


def test_files_of_another_writer_go_with_those_who_are_forgotten(released, reviews, save):
    """Files that a compaction left behind hold them, too, though the log lists them no more."""
    Delta.rewrite(released)
    save(reviews().filter(pl.col("user_id") != "u007"), released.folder / "raw.parquet")
    assert list((released.folder / "published").glob("*.parquet"))
    forget(released.policy(), subjects=["u007"])
    assert not list((released.folder / "published").glob("*.parquet"))
    assert not failing(released)


@pytest.mark.parametrize("spec", [None, *TABLE.values()])
def test_forget_deletes_no_other_table_that_lies_in_the_folder(released, reviews, save, spec):
    inner = {"sink": f"{place(released)}/inner", "dataset": "others", "table": spec}
    released.run(**inner)
    save(reviews().filter(pl.col("user_id") != "u007"), released.folder / "raw.parquet")
    with pytest.raises(InputError, match="1 other published table lies in the folder of the table"):
        forget(released.policy(), subjects=["u007"])
    assert rows(released).height == 240
    assert scan_published(inner["sink"]).collect().height == 240
    assert forget(released.policy(**inner), subjects=["u007"]).rows == 234


@pytest.mark.parametrize(
    "step", quick(["parts written", "manifest written", "forgotten", "recorded", "shown"], first=2)
)
def test_a_call_of_forget_that_died_is_completed_by_the_next(released, reviews, save, step):
    save(reviews().filter(pl.col("user_id") != "u007"), released.folder / "raw.parquet")

    with pytest.raises(StopError):
        forget(released.policy(), subjects=["u007"], checkpoint=stopping_at(step))
    forget(released.policy(), subjects=["u007"])
    assert rows(released).height == 234
    assert sorted(path.name for path in (released.folder / "published").glob("v*")) == ["v2"]
    assert len([entry for entry in table(released).history() if "dptext.manifest" in entry]) == 2
    assert not failing(released)


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
