"""Runs that publish a table of Iceberg through a catalog: one snapshot of the table is the publication."""

import sqlite3
import sys

import polars as pl
import pytest

from dptext_etl.errors import BusyError, InputError, PolicyError
from dptext_etl.runner.planning import plan
from dptext_etl.runner.publish.forgetting import forget
from dptext_etl.runner.publish.versions import clean
from tests.later import later

from ..quick import quick
from .table_kinds import Iceberg

pytest.importorskip("pyiceberg", reason="pyiceberg is not installed (extra: tables)")
later("sqlalchemy", reason="sqlalchemy is not installed (extra: dev)")

table, rows = Iceberg.table, Iceberg.rows


@pytest.fixture(scope="module")
def released_with():
    return lambda folder: {"table": Iceberg.entry(folder)}


@pytest.fixture
def job(make_job):
    made = make_job()
    made.values["table"] = Iceberg.entry(made.folder)
    return made


def test_another_writer_cannot_ask_for_bounds_of_cells(released):
    """Manifests outlive the rows that they describe."""
    with table(released).transaction() as change:
        names = ("default", "column.id")
        change.set_properties({f"write.metadata.metrics.{name}": "full" for name in names})
    released.run(release="2026-12")
    files = table(released).inspect.files().to_pylist()
    assert not any(file[name] for file in files for name in ("lower_bounds", "upper_bounds", "value_counts"))


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


def test_a_tag_on_an_older_snapshot_is_named_and_kept(released, reviews, save):
    """It lists rows of someone who is forgotten: the call is not complete until the tag goes."""
    table(released).manage_snapshots().create_tag(table(released).current_snapshot().snapshot_id, "audit").commit()
    save(reviews().filter(pl.col("user_id") != "u007"), released.folder / "raw.parquet")
    with pytest.raises(InputError, match=r"older snapshots of the table public.* because of 1 tag or branch"):
        forget(released.policy(), subjects=["u007"])
    assert rows(released).height == 234
    table(released).manage_snapshots().remove_tag("audit").commit()
    assert forget(released.policy(), subjects=["u007"]).versions == ["v1"]
    assert len(table(released).snapshots()) == 1


def test_clean_expires_the_snapshots_whose_files_go(job):
    for release in ("1", "2", "3"):
        job.run(release=release)
    assert clean(job.policy(release="3", retention={"versions": 2})).versions == ["v1"]
    assert len(table(job).snapshots()) == 2
    for one in table(job).snapshots():
        assert table(job).scan(snapshot_id=one.snapshot_id).to_arrow().num_rows == 240


@pytest.mark.parametrize("made", quick([pl.col("stars").cast(pl.Float64), pl.struct("stars")]))
def test_other_types_are_refused_before_anything_is_charged(released, reviews, save, made):
    save(reviews().with_columns(stars=made), released.folder / "raw.parquet")
    for attempt in (released.run, lambda **changes: plan(released.policy(**changes))):
        with pytest.raises(InputError, match="has other columns than this policy publishes"):
            attempt(release="2026-12")
    with released.ledger() as ledger:
        assert {row["release"] for row in ledger.reports.show()} == {"2026-11"}


def test_partitions_that_another_writer_made_are_refused(released):
    """A file without values of them would be excluded by readers who ask for one."""
    with table(released).update_spec() as change:
        change.add_identity("stars")
    with pytest.raises(InputError, match=r"another writer has given the table public.* partitions"):
        released.run(release="2026-12")
    with released.ledger() as ledger:
        assert {row["release"] for row in ledger.reports.show()} == {"2026-11"}


def test_a_plan_and_a_refused_run_make_no_catalog(job, reviews, save):
    plan(job.policy())
    shared = job.folder.with_name("shared.db")
    with sqlite3.connect(shared) as database:
        database.execute("create table theirs(a)")
        plan(job.policy(table=job.values["table"] | {"catalog": {"type": "sql", "uri": f"sqlite:///{shared}"}}))
        assert database.execute("select name from sqlite_master").fetchall() == [("theirs",)]
    save(reviews().with_columns(stars=pl.lit(1, pl.Int8)), job.folder / "raw.parquet")
    with pytest.raises(InputError, match="cannot be stored in a table of Iceberg"):
        job.run()
    assert sorted(path.name for path in job.folder.iterdir()) == ["noise.key", "raw.parquet"]


@pytest.mark.parametrize(("kind", "uri"), [("sql", "sqlite:///{}/nowhere/catalog.db"), ("rest", "http://127.0.0.1:9")])
def test_a_catalog_that_is_missing_or_does_not_answer_is_refused_at_once(job, kind, uri):
    unknown = job.values["table"] | {"catalog": {"type": kind, "uri": uri.format(job.folder)}}
    with pytest.raises(InputError, match="looking at the table in its catalog failed"):
        job.run(table=unknown)
    assert not (job.folder / "ledger.db").exists()


@pytest.fixture
def spy(tmp_path, monkeypatch):
    """A module whose class leaves a file when it is called, as code that a table or a setting names would be."""
    folder = tmp_path / "modules"
    folder.mkdir()
    called = f"open({str(folder / 'called')!r}, 'w').close()"
    body = f"    def __init__(self, *given):\n        super().__init__(*given)\n        {called}"
    lines = [
        "from pyiceberg.io.pyarrow import PyArrowFileIO",
        "from pyiceberg.table.locations import SimpleLocationProvider",
    ]
    lines += ["class Files(PyArrowFileIO):", body, "class Places(SimpleLocationProvider):", body]
    (folder / "spy_of_tables.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "spy_of_tables", raising=False)
    return folder / "called"


@pytest.mark.parametrize(
    ("name", "code"),
    [("py-io-impl", "spy_of_tables.Files"), ("write.py-location-provider.impl", "spy_of_tables.Places")],
)
def test_code_that_a_table_names_is_not_called(released, spy, name, code):
    there = table(released)
    with there.transaction() as change:
        change.set_properties({name: code})
    place = there.metadata_location
    spy.unlink()
    for changes in ({"release": "2026-12"}, {"source": place, "table": None, "sink": str(released.folder / "other")}):
        for attempt in (released.run, lambda **changes: plan(released.policy(**changes))):
            with pytest.raises(InputError, match="name code"):
                attempt(**changes)
    assert not spy.exists()


def test_code_that_a_policy_names_is_not_called(job, spy):
    for name in ("py-catalog-impl", "py-io-impl"):
        with pytest.raises(PolicyError, match="not an allowed option"):
            plan(job.policy(table={**job.values["table"], "catalog": {name: "spy_of_tables.Files"}}))
    assert not spy.exists()


def test_settings_in_the_working_folder_are_not_read(released, tmp_path, monkeypatch):
    (tmp_path / ".pyiceberg.yaml").write_text("catalog:\n  default:\n    py-io-impl: spy_of_tables.Files\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PolicyError, match=r"\.pyiceberg\.yaml"):
        plan(released.policy())
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    assert plan(released.policy()).hosts == []


NAMED = {"format": "iceberg", "name": "a.b"}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"format": "iceberg"}, 'needs name = "namespace.table"'),
        ({"format": "iceberg", "name": "a.b"}, "catalog"),
        ({"format": "delta", "name": "a.b"}, "entries of Iceberg"),
        ({**NAMED, "catalog": {"s3.secret-access-key": "not-to-be-quoted"}}, "s3.secret-access-key is a secret"),
        ({**NAMED, "catalog": {"uri": "postgresql://u:not-to-be-quoted@host/db"}}, "uri is a secret"),
        ({"format": "iceberg", "name": "a.{partition}", "catalog": {"type": "sql"}}, "must be in both name and sink"),
    ],
)
def test_an_entry_that_is_wrong_is_named(job, spec, said):
    with pytest.raises(PolicyError, match="table") as caught:
        job.policy(table=spec)
    assert said in str(caught.value)
    assert "not-to-be-quoted" not in str(caught.value)
