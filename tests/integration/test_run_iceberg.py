"""Runs that publish a table of Iceberg through a catalog: one snapshot of the table is the publication."""

import json

import polars as pl
import pytest

from dptext_etl.checks.published import check_published
from dptext_etl.engines import stage
from dptext_etl.errors import BusyError, InputError, PolicyError
from dptext_etl.runner import check, publish, scan_published
from dptext_etl.runner.cleaning import clean
from dptext_etl.runner.planning import plan
from dptext_etl.runner.publish.forgetting import forget
from dptext_etl.table_formats import table_format

pytest.importorskip("pyiceberg", reason="pyiceberg is not installed (extra: tables)")
pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed (extra: dev)")

THEIRS = [f"r{i:05d}" for i in range(7, 240, 40)]
"""The records of subject u007."""


def entry(folder):
    return {
        "format": "iceberg",
        "name": "public.reviews",
        "catalog": {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"},
    }


@pytest.fixture
def job(make_job):
    made = make_job()
    made.values["table"] = entry(made.folder)
    return made


def table(job):
    from pyiceberg.catalog import load_catalog

    return load_catalog("default", **job.values["table"]["catalog"]).load_table("public.reviews")


def rows(job):
    return pl.DataFrame(table(job).scan().to_arrow())


def failing(job, **changes):
    verdicts = check_published(job.folder / "published", job.policy(**changes))
    return {verdict.name: verdict.message for verdict in verdicts if not verdict.passed}


def recorded(job):
    with job.ledger() as ledger:
        assert ledger.verify().ok
        return list(ledger.published(ledger.find_all(job.policy())["review"]))


def test_the_table_holds_the_rows_that_a_folder_would(make_job, job):
    plain = make_job("plain")
    plain.run()
    assert job.run().version == 1
    expected = scan_published(str(plain.folder / "published")).collect()
    assert rows(job).sort("id").equals(expected)
    assert pl.scan_iceberg(table(job)).collect().sort("id").equals(expected)
    assert scan_published(str(job.folder / "published")).collect().equals(expected)
    assert not failing(job)
    assert not job.run().changed
    (snapshot,) = table(job).snapshots()
    first, named = recorded(job)
    assert named == f"{first}@iceberg-{snapshot.snapshot_id}"
    assert snapshot.summary["dptext.manifest"].startswith(first.partition("-")[2])


def test_metadata_hold_no_bounds_of_cells(job):
    job.run()
    files = table(job).inspect.files().to_pylist()
    assert sorted(file["record_count"] for file in files) == [40, 100, 100]
    assert not any(file[name] for file in files for name in ("lower_bounds", "upper_bounds", "value_counts"))


def test_another_writer_cannot_ask_for_bounds_of_cells(job):
    """Manifests outlive the rows that they describe."""
    job.run()
    with table(job).transaction() as change:
        names = ("default", "column.id")
        change.set_properties({f"write.metadata.metrics.{name}": "full" for name in names})
    job.run(release="2026-12")
    files = table(job).inspect.files().to_pylist()
    assert not any(file[name] for file in files for name in ("lower_bounds", "upper_bounds", "value_counts"))


def test_an_incremental_run_adds_files_in_one_snapshot(job, reviews, save):
    job.run(incremental=True)
    save(reviews(300), job.folder / "raw.parquet")
    assert job.run(incremental=True).version == 2
    assert rows(job)["id"].sort().to_list() == reviews(300)["id"].to_list()
    assert len(table(job).snapshots()) == 2
    assert not failing(job, incremental=True)


def test_another_release_takes_the_place_of_all_rows(job):
    job.run()
    job.run(release="2026-12")
    assert rows(job).height == 240
    assert not failing(job, release="2026-12")


@pytest.mark.parametrize("step", ["recorded", "version written", "manifest written", "shown", "cleared"])
def test_a_run_that_died_settles_without_a_second_version(job, step):
    assert job.stop(step)
    assert len(recorded(job)) == 1, "the snapshot is not yet named"
    assert job.run().version == 1
    (snapshot,) = table(job).snapshots()
    assert recorded(job)[-1].endswith(f"@iceberg-{snapshot.snapshot_id}")
    assert rows(job).height == 240
    assert not failing(job)


STRANGERS = {
    "append": lambda job: table(job).append(rows(job).head(3).to_arrow(compat_level=pl.CompatLevel.oldest())),
    "delete": lambda job: table(job).delete("stars = 1"),
}


@pytest.mark.parametrize("what", STRANGERS)
def test_a_table_that_another_writer_changed_is_refused_before_anything_is_charged(job, what):
    job.run()
    STRANGERS[what](job)
    assert "shown otherwise" in failing(job)["published_files"]
    before, charged = rows(job), job.charged()
    for attempt in (job.run, lambda **changes: plan(job.policy(**changes))):
        with pytest.raises(InputError, match="another writer has changed the rows of the table"):
            attempt(release="2026-12")
    assert rows(job).equals(before)
    assert job.charged() == charged


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


def test_a_commit_that_lost_its_race_commits_nothing(job, monkeypatch):
    """Another writer commits after this run has opened the table to commit."""
    from dptext_etl.table_formats.iceberg import Iceberg

    job.run()
    commit, created = Iceberg.commit, Iceberg._open
    opened = []

    def late(self):
        found = created(self)
        if opened:
            table(job).delete("stars = 1")
            opened.clear()
        return found

    def committing(self, *given):
        opened.append(1)
        return commit(self, *given)

    monkeypatch.setattr(Iceberg, "_open", late)
    monkeypatch.setattr(Iceberg, "commit", committing)
    with pytest.raises(BusyError, match="another writer has committed to the table meanwhile"):
        job.run(release="2026-12")
    assert len(table(job).snapshots()) == 2
    assert rows(job).filter(pl.col("stars") == 1).is_empty()


def test_who_is_forgotten_is_in_no_file_and_in_no_snapshot(job, reviews, save):
    job.run()
    save(reviews().filter(pl.col("user_id") != "u007"), job.folder / "raw.parquet")
    before = rows(job)
    done = forget(job.policy(), subjects=["u007"])
    assert (done.version, done.removed, done.rows, done.versions) == (2, 6, 234, ["v1"])
    assert rows(job).sort("id").equals(before.filter(~pl.col("id").is_in(THEIRS)).sort("id"))
    assert len(table(job).snapshots()) == 1
    left = list((job.folder / "published").rglob("*.parquet"))
    assert {path.parent.name for path in left} == {"v2"}
    assert not any(set(pl.read_parquet(path)["id"]) & set(THEIRS) for path in left)
    assert not failing(job)
    assert job.run().published_rows == 234


def test_a_tag_on_an_older_snapshot_is_named_and_kept(job, reviews, save):
    """It lists rows of someone who is forgotten: the call is not complete until the tag goes."""
    job.run()
    table(job).manage_snapshots().create_tag(table(job).current_snapshot().snapshot_id, "audit").commit()
    save(reviews().filter(pl.col("user_id") != "u007"), job.folder / "raw.parquet")
    with pytest.raises(InputError, match=r"1 tags or branches of the table public.* keep older snapshots"):
        forget(job.policy(), subjects=["u007"])
    assert rows(job).height == 234
    table(job).manage_snapshots().remove_tag("audit").commit()
    assert forget(job.policy(), subjects=["u007"]).versions == ["v1"]
    assert len(table(job).snapshots()) == 1


def test_clean_expires_the_snapshots_whose_files_go(job):
    for release in ("1", "2", "3"):
        job.run(release=release)
    assert clean(job.policy(release="3", retention={"versions": 2})).versions == ["v1"]
    assert len(table(job).snapshots()) == 2
    for one in table(job).snapshots():
        assert table(job).scan(snapshot_id=one.snapshot_id).to_arrow().num_rows == 240


def test_clean_leaves_the_version_that_the_table_still_shows(job):
    """The run that was to replace it died before its commit."""
    job.run()
    job.values["release"] = "2026-12"
    assert job.stop("manifest written")
    assert clean(job.policy(retention={"versions": 1})).versions == []
    assert rows(job).height == 240


def test_other_columns_are_refused_before_anything_is_charged(job):
    job.run()
    charged = job.charged()
    with pytest.raises(InputError, match="has other columns than this policy publishes"):
        job.run(keep=[], release="2026-12")
    assert job.charged() == charged


@pytest.mark.parametrize("made", [pl.col("stars").cast(pl.Float64), pl.struct("stars")])
def test_other_types_are_refused_before_anything_is_charged(job, reviews, save, made):
    job.run()
    save(reviews().with_columns(stars=made), job.folder / "raw.parquet")
    for attempt in (job.run, lambda **changes: plan(job.policy(**changes))):
        with pytest.raises(InputError, match="has other columns than this policy publishes"):
            attempt(release="2026-12")
    with job.ledger() as ledger:
        assert {row["release"] for row in ledger.show()} == {"2026-11"}


def test_partitions_that_another_writer_made_are_refused(job):
    """A file without values of them would be left out by readers who ask for one."""
    job.run()
    with table(job).update_spec() as change:
        change.add_identity("stars")
    with pytest.raises(InputError, match=r"another writer has given the table public.* partitions"):
        job.run(release="2026-12")
    with job.ledger() as ledger:
        assert {row["release"] for row in ledger.show()} == {"2026-11"}


MANY = {
    "day": pl.date(2026, 1, "stars"),
    "moment": pl.datetime(2026, 1, "stars"),
    "zoned": pl.datetime(2026, 1, "stars", time_zone="UTC"),
    "price": pl.col("stars").cast(pl.Decimal(10, 2)),
    "share": pl.col("stars").cast(pl.Float32),
    "few": pl.col("stars").cast(pl.Int32),
    "good": pl.col("stars") > 3,
    "raw": pl.lit(b"x"),
    "several": pl.concat_list("stars", "stars"),
    "both": pl.struct("stars", half=pl.col("stars") / 2),
}


def test_columns_of_other_types_come_back_as_they_were(job, reviews, save):
    source = reviews().with_columns(**MANY)
    save(source, job.folder / "raw.parquet")
    for release in ("1", "2"):
        job.run(keep=["stars", *MANY], release=release)
    assert rows(job).sort("id").select("id", *MANY).equals(source.select("id", *MANY))


def test_a_table_of_someone_else_is_refused(job, reviews):
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("default", **job.values["table"]["catalog"], warehouse=f"file://{job.folder}/theirs")
    catalog.create_namespace("public")
    columns = reviews().select("id", "stars", "review", "note").to_arrow(compat_level=pl.CompatLevel.oldest())
    catalog.create_table("public.reviews", columns.schema)
    with pytest.raises(InputError, match="is a table that no run of dptext made"):
        job.run()
    assert not (job.folder / "ledger.db").exists()


def test_without_the_extra_nothing_is_charged(job, monkeypatch):
    monkeypatch.setattr(table_format, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="publishing a table of Iceberg needs pyiceberg"):
        job.run()
    assert not (job.folder / "ledger.db").exists()


def test_a_plan_and_a_refused_run_make_no_catalog(job, reviews, save):
    plan(job.policy())
    save(reviews().with_columns(stars=pl.lit(1, pl.Int8)), job.folder / "raw.parquet")
    with pytest.raises(InputError, match="cannot stand in a table of Iceberg"):
        job.run()
    assert sorted(path.name for path in job.folder.iterdir()) == ["noise.key", "raw.parquet"]


def test_a_catalog_whose_folder_is_missing_is_refused_at_once(job):
    unknown = job.values["table"] | {"catalog": {"type": "sql", "uri": f"sqlite:///{job.folder}/nowhere/catalog.db"}}
    with pytest.raises(InputError, match="looking at the table in its catalog failed"):
        job.run(table=unknown)
    assert not (job.folder / "ledger.db").exists()


def test_a_catalog_that_does_not_answer_loses_nothing(job):
    unknown = job.values["table"] | {"catalog": {"type": "rest", "uri": "http://127.0.0.1:9"}}
    with pytest.raises(InputError, match="looking at the table in its catalog failed"):
        job.run(table=unknown)
    assert not (job.folder / "ledger.db").exists()


@pytest.mark.parametrize("dtype", [pl.Int8, pl.UInt32, pl.Categorical, pl.Time])
def test_a_column_that_the_format_does_not_have_is_named(job, reviews, save, dtype):
    made = pl.lit("a").cast(dtype) if dtype == pl.Categorical else pl.lit(1).cast(dtype)
    save(reviews().with_columns(stars=made), job.folder / "raw.parquet")
    with pytest.raises(InputError, match=r"column 'stars' of type .* cannot stand in a table of Iceberg"):
        job.run()


NAMED = {"format": "iceberg", "name": "a.b"}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"format": "iceberg"}, 'needs name = "namespace.table"'),
        ({"format": "iceberg", "name": "a.b"}, "catalog"),
        ({"format": "delta", "name": "a.b"}, "entries of Iceberg"),
        (
            {**NAMED, "catalog": {"s3.secret-access-key": "xyz"}},
            "s3.secret-access-key is a secret",
        ),
        ({**NAMED, "catalog": {"uri": "postgresql://u:xyz@host/db"}}, "uri is a secret"),
        ({"format": "iceberg", "name": "a.{partition}", "catalog": {"type": "sql"}}, "must be in both name and sink"),
    ],
)
def test_an_entry_that_is_wrong_is_named(job, spec, said):
    with pytest.raises(PolicyError, match="table") as caught:
        job.policy(table=spec)
    assert said in str(caught.value)
    assert "xyz" not in str(caught.value)


def test_the_manifest_lies_in_the_table(job):
    job.run()
    assert json.loads((job.folder / "published/_dptext/manifest.json").read_text())["rows"] == 240
