"""Runs that publish a table of Delta Lake: one commit of the table is the publication."""

import json
import shutil
import threading

import polars as pl
import pytest

from dptext_etl import Policy, run
from dptext_etl.checks.published import check_published
from dptext_etl.engines import stage
from dptext_etl.errors import BusyError, InputError, PolicyError
from dptext_etl.runner import check, publish, scan_published
from dptext_etl.runner.cleaning import clean
from dptext_etl.runner.planning import plan
from dptext_etl.runner.publish.erasing import _partitions
from dptext_etl.runner.publish.forgetting import forget
from dptext_etl.table_formats import table_format

from .conftest import SENTINEL, make_reviews

deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed (extra: tables)")

TABLE = {"table": {"format": "delta"}}
THEIRS = [f"r{i:05d}" for i in range(7, 240, 40)]
"""The records of subject u007."""


class StopError(Exception):
    """Stands for a process that dies."""


@pytest.fixture
def job(make_job):
    return make_job(**TABLE)


def place(job):
    return str(job.folder / "published")


def table(job):
    return deltalake.DeltaTable(place(job))


def rows(job):
    return pl.read_delta(place(job))


def failing(job, **changes):
    verdicts = check_published(job.folder / "published", job.policy(**changes))
    return {verdict.name: verdict.message for verdict in verdicts if not verdict.passed}


def recorded(job):
    """The names of the publications of the first column in the ledger."""
    with job.ledger() as ledger:
        assert ledger.verify().ok
        return list(ledger.published(ledger.find_all(job.policy())["review"]))


def log(job):
    return b"".join(path.read_bytes() for path in sorted((job.folder / "published" / "_delta_log").iterdir()))


def test_the_table_holds_the_rows_that_a_folder_would(make_job):
    plain, job = make_job("plain"), make_job("table", **TABLE)
    plain.run()
    summary = job.run()
    assert (summary.version, summary.published_rows, summary.changed) == (1, 240, True)
    expected = scan_published(str(plain.folder / "published")).collect()
    assert rows(job).equals(expected)
    assert scan_published(place(job)).collect().equals(expected)
    assert table(job).version() == 0
    assert not failing(job)
    again = job.run()
    assert not again.changed
    assert table(job).version() == 0
    first, named = recorded(job)
    assert named == f"{first}@delta-0"
    assert table(job).history()[0]["dptext.manifest"].startswith(first.partition("-")[2])


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
    for change in STRANGERS.values():
        change(job)
    assert log(job).count(b'"add"') > 3
    assert b"r0000" not in log(job)


def test_an_incremental_run_adds_files_in_one_commit(job, reviews, save):
    changes = {"incremental": True}
    job.run(**changes)
    before = set(table(job).file_uris())
    save(reviews(300), job.folder / "raw.parquet")
    summary = job.run(**changes)
    assert (summary.version, summary.rows["already_published"], summary.published_rows) == (2, 240, 300)
    assert rows(job)["id"].sort().to_list() == reviews(300)["id"].to_list()
    assert before < set(table(job).file_uris())
    assert table(job).version() == 1
    assert not failing(job, **changes)


def test_an_incremental_run_adds_no_files_of_other_types(job, reviews, save):
    changes = {"incremental": True}
    job.run(**changes)
    charged = job.charged()
    save(reviews(300).with_columns(pl.col("stars").cast(pl.Float64)), job.folder / "raw.parquet")
    with pytest.raises(InputError, match="column 'stars' is of type Float64, and published as Int64"):
        job.run(**changes)
    assert job.charged() == charged
    assert plan(job.policy()).rows == 300
    job.run()
    assert rows(job)["stars"].dtype == pl.Float64
    assert not failing(job)


def test_other_columns_change_the_schema_of_the_table(job):
    job.run()
    job.run(keep=["stars", "user_id"], release="2026-12")
    assert rows(job).columns == ["id", "stars", "user_id", "review", "note"]
    assert table(job).version() == 1
    assert not failing(job, keep=["stars", "user_id"], release="2026-12")


@pytest.mark.parametrize("ids", ["keyed", "drop"])
def test_published_ids_are_those_of_the_policy(job, ids):
    job.run(ids=ids)
    assert ("id" in rows(job).columns) == (ids == "keyed")
    assert "r00007" not in str(rows(job).to_dicts())


def test_a_synthetic_table_is_published_and_named(make_synthetic):
    job = make_synthetic(**TABLE)
    assert job.run().version == 1
    assert rows(job).height == job.policy().synthetic.rows
    with job.ledger() as ledger:
        (ref,) = ledger.find_all(job.policy()).values()
        assert [name.partition("@")[2] for name in ledger.published(ref)] == ["", "delta-0"]
    assert not job.run().changed


@pytest.mark.parametrize("step", ["recorded", "version written", "manifest written", "shown", "cleared"])
def test_a_run_that_died_settles_without_a_second_version(make_job, step):
    job, whole = make_job("died", **TABLE), make_job("whole", **TABLE)
    whole.run()
    assert job.stop(step)
    committed = step in {"shown", "cleared"}
    assert deltalake.DeltaTable.is_deltatable(place(job)) == committed
    assert len(recorded(job)) == 1, "the table's version is not yet named"
    summary = job.run()
    assert summary.version == 1
    assert summary.rows["new"] == 0
    assert table(job).version() == 0
    assert rows(job).equals(rows(whole))
    assert [name.partition("@")[2] for name in recorded(job)] == ["", "delta-0"]
    assert not failing(job)


@pytest.mark.parametrize("step", ["manifest written", "shown"])
def test_a_second_version_settles_as_well(job, reviews, save, step):
    job.values["incremental"] = True
    job.run()
    save(reviews(300), job.folder / "raw.parquet")
    assert job.stop(step)
    assert rows(job).height == (300 if step == "shown" else 240)
    job.run()
    assert table(job).version() == 1
    assert rows(job).height == 300
    assert recorded(job)[-1].endswith("@delta-1")


def test_two_runs_at_once_make_one_version(job):
    ended = []

    def one():
        try:
            ended.append(run(job.policy()).version)
        except BusyError as problem:
            ended.append(type(problem))

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 in ended
    assert job.run().version == 1
    assert table(job).version() == 0
    assert len(recorded(job)) == 2


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


STRANGERS = {
    "append": lambda job: rows(job).head(3).write_delta(place(job), mode="append"),
    "delete": lambda job: table(job).delete("stars = 1"),
    "compact": lambda job: table(job).optimize.compact(),
}


@pytest.mark.parametrize("what", STRANGERS)
def test_a_table_that_another_writer_changed_is_refused_before_anything_is_charged(job, what):
    job.run()
    STRANGERS[what](job)
    assert "shown otherwise" in failing(job)["published_files"]
    before, charged = rows(job), job.charged()
    for attempt in (
        job.run,
        lambda **changes: plan(job.policy(**changes)),
        lambda **changes: forget(job.policy(), subjects=["u007"]),
    ):
        with pytest.raises(InputError, match="another writer has changed the rows of the table"):
            attempt(release="2026-12")
    assert rows(job).equals(before)
    assert job.charged() == charged
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


@pytest.mark.parametrize("what", STRANGERS)
def test_another_writer_between_staging_and_publication_is_refused(job, what):
    job.run()
    staged = stage(job.policy(release="2026-12"))
    verdicts = check(staged)
    STRANGERS[what](job)
    before = rows(job)
    with pytest.raises(InputError, match="another writer has changed"):
        publish(staged, verdicts)
    assert rows(job).equals(before)


@pytest.mark.parametrize("what", STRANGERS)
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

    def late(self, files, schema, release, digest, before):
        table(job).delete("stars = 1")
        return opened(self, files, schema, release, digest, before)

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


def test_who_is_forgotten_is_in_no_file_and_in_no_older_version(job, reviews, save):
    job.run()
    save(reviews().filter(pl.col("user_id") != "u007"), job.folder / "raw.parquet")
    before = rows(job)
    done = forget(job.policy(), subjects=["u007"])
    assert (done.version, done.removed, done.rows, done.versions) == (2, 6, 234, ["v1"])
    assert rows(job).equals(before.filter(~pl.col("id").is_in(THEIRS)))
    left = [path for path in (job.folder / "published").rglob("*.parquet") if "_delta_log" not in path.parts]
    assert sorted(path.parent.name for path in left) == ["v2", "v2", "v2"]
    assert not any(set(pl.read_parquet(path)["id"]) & set(THEIRS) for path in left)
    with pytest.raises(Exception, match=r"v1/part|not found|No such file"):
        pl.read_delta(place(job), version=0)
    assert b"r00007" not in log(job)
    assert recorded(job)[-1].endswith("@delta-1")
    assert not failing(job)
    assert job.run().published_rows == 234


def test_files_of_another_writer_go_with_those_who_are_forgotten(job, reviews, save):
    """What a compaction left behind holds them, too, though the log lists it no more."""
    job.run()
    STRANGERS["compact"](job)
    table(job).restore(0)
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
    with pytest.raises(InputError, match="1 other published tables lie in the folder of the table"):
        forget(job.policy(), subjects=["u007"])
    assert rows(job).height == 240
    assert scan_published(inner["sink"]).collect().height == 240
    assert forget(job.policy(**inner), subjects=["u007"]).rows == 234


@pytest.mark.parametrize("step", ["forgotten", "parts written", "recorded", "manifest written", "shown"])
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


def test_clean_leaves_the_version_that_the_table_still_shows(job):
    """The run that was to replace it died before its commit."""
    job.run()
    job.values["release"] = "2026-12"
    assert job.stop("manifest written")
    assert clean(job.policy(retention={"versions": 1})).versions == []
    assert rows(job).height == 240
    job.run()
    assert clean(job.policy(retention={"versions": 1})).versions == ["v1"]
    assert rows(job).height == 240


def test_forget_commits_a_synthetic_table_that_a_run_did_not(make_synthetic, save):
    """Older versions go with the call, so the table must show the newest one first."""
    from .synthetic_runs import labeled

    job = make_synthetic(**TABLE)
    job.run()
    job.values["release"] = "2026-12"
    assert job.stop("manifest written")
    assert table(job).version() == 0
    save(labeled(make_reviews()).filter(pl.col("user_id") != "u007"), job.folder / "raw.parquet")
    assert forget(job.policy(), subjects=["u007"]).versions == ["v1"]
    assert rows(job).height == job.policy().synthetic.rows
    assert not failing(job)


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
    with pytest.raises(InputError, match="shows version 2, and its manifest is that of version 1"):
        job.run(release="2026-12")
    manifest.unlink()
    with pytest.raises(InputError, match="shows version 2, and its manifest is missing"):
        job.run(release="2026-12")


def test_a_table_of_someone_else_is_refused(job, reviews):
    reviews(10).write_delta(place(job))
    with pytest.raises(InputError, match="is a table that no run of dptext made"):
        job.run()
    with pytest.raises(InputError, match="files or folders that no run of dptext wrote"):
        job.run(table=None)
    assert not (job.folder / "ledger.db").exists()


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
    """A folder of a log is no table yet."""
    (job.folder / "published" / (log or "")).mkdir(parents=True)
    (job.folder / "published" / "theirs.txt").touch()
    with pytest.raises(InputError, match="1 file or folder that no run of dptext wrote"):
        job.run()
    assert not (job.folder / "ledger.db").exists()


def test_without_the_extra_nothing_is_charged(job, monkeypatch):
    monkeypatch.setattr(table_format, "find_spec", lambda name: None)
    for attempt in (job.run, lambda: plan(job.policy())):
        with pytest.raises(InputError, match="publishing a table of Delta Lake needs deltalake") as caught:
            attempt()
        assert "pip install 'dptext-etl[tables]'" in caught.value.hint
    assert not (job.folder / "ledger.db").exists()
    assert not (job.folder / "published").exists()


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (pl.col("stars").cast(pl.UInt8), "column 'stars' of type UInt8 cannot stand in a table of Delta Lake"),
        (pl.col("stars").cast(pl.String).cast(pl.Categorical), "column 'stars' of type Categorical"),
        (pl.duration(days="stars"), "column 'stars' of type Duration"),
        (pl.lit(0).cast(pl.Datetime("ns")), "column 'stars' of type Datetime"),
    ],
)
def test_a_column_that_the_format_does_not_have_is_named(job, reviews, save, made, said):
    save(reviews().with_columns(stars=made), job.folder / "raw.parquet")
    with pytest.raises(InputError, match=said):
        job.run()
    assert not (job.folder / "ledger.db").exists()


def test_a_name_that_the_format_forbids_is_named(job, reviews, save):
    save(reviews().rename({"stars": "number of stars"}), job.folder / "raw.parquet")
    with pytest.raises(InputError, match="the name of column 'number of stars' has a space"):
        job.run(keep=["number of stars"])


def test_names_that_differ_in_case_alone_are_named(job, reviews, save):
    save(reviews().with_columns(Stars="stars"), job.folder / "raw.parquet")
    with pytest.raises(InputError, match="the name of column 'stars' is that of another one in small letters"):
        job.run(keep=["stars", "Stars"])
    assert not (job.folder / "ledger.db").exists()


def test_a_sink_that_names_a_file_is_refused(job):
    with pytest.raises(PolicyError, match="sink is the folder of the table"):
        job.policy(sink=str(job.folder / "published.csv"))
    with pytest.raises(PolicyError, match="format"):
        job.policy(table={"format": "hudi"})


MANY = {
    "small": pl.col("stars").cast(pl.Int8),
    "share": pl.col("stars") / 3,
    "good": pl.col("stars") > 3,
    "day": pl.date(2026, 1, "stars"),
    "moment": pl.datetime(2026, 1, "stars"),
    "zoned": pl.datetime(2026, 1, "stars", time_zone="Europe/Berlin"),
    "price": pl.col("stars").cast(pl.Decimal(10, 2)),
    "raw": pl.lit(b"x"),
    "several": pl.concat_list("stars", "stars"),
    "both": pl.struct("stars", half=pl.col("stars") / 2),
}


def test_columns_of_other_types_come_back_as_they_were(job, reviews, save):
    source = reviews().with_columns(**MANY)
    save(source, job.folder / "raw.parquet")
    job.run(keep=["stars", *MANY])
    found = rows(job).with_columns(pl.col("zoned").dt.convert_time_zone("Europe/Berlin"))
    assert found.select("id", *MANY).equals(source.select("id", *MANY))


def test_partitions_have_a_table_each(job, reviews, save):
    places = {"source": str(job.folder / "{partition}.parquet"), "sink": str(job.folder / "out" / "{partition}")}
    for at, name in enumerate(("a", "b")):
        save(reviews(120, 120 * at), job.folder / f"{name}.parquet")
        run(job.policy(**places), partition=name)
    assert pl.read_delta(str(job.folder / "out" / "b"))["id"][0] == "r00120"


def test_forget_everywhere_finds_the_tables_of_all_partitions(job, reviews, save):
    places = {"source": str(job.folder / "{partition}.parquet"), "sink": str(job.folder / "out" / "{partition}")}
    policy = job.policy(**places, staging=str(job.folder / "staging"))
    for at, name in enumerate(("a", "b")):
        save(reviews(120, 120 * at), job.folder / f"{name}.parquet")
        run(policy, partition=name)
        save(reviews(120, 120 * at).filter(pl.col("user_id") != "u007"), job.folder / f"{name}.parquet")
    entries = {name: value for name, value in policy.model_dump(mode="json", by_alias=True).items() if value}
    assert _partitions(Policy.parse(entries)) == ["a", "b"]
    for found in (_partitions(policy), _partitions(policy.model_copy(update={"staging": None}))):
        assert found == ["a", "b"]
