"""A forgotten person stays out: of older releases that are put back, of later runs, and of a run under way."""

import json
import shutil

import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from dptext_etl import Ledger, run
from dptext_etl.checks.published import check_published
from dptext_etl.cli.app import app
from dptext_etl.engines import stage
from dptext_etl.errors import LedgerError
from dptext_etl.runner import check, publish, scan_published
from dptext_etl.runner.cleaning import clean
from dptext_etl.runner.publish.forgetting import forget
from tests.quick import quick

THEIRS = [f"r{i:05d}" for i in range(7, 240, 40)]
"""The records of subject u007."""


def published(job):
    return set(scan_published(str(job.folder / "published")).collect()["id"])


def source(job, reviews, save, *, whole):
    rows = reviews()
    save(rows if whole else rows.filter(pl.col("user_id") != "u007"), job.folder / "raw.parquet")


def sound(job):
    with job.ledger() as ledger:
        report = ledger.verify()
    assert report.ok, report.problems


@pytest.mark.parametrize("parted", [False, True])
def test_an_older_release_that_is_put_back_is_refused(job, reviews, save, parted):
    sink = str(job.folder / ("published/{partition}" if parted else "published"))
    names = {"partition": "west"} if parted else {}
    raw = job.folder / ("raw-west.parquet" if parted else "raw.parquet")
    places = {"sink": sink, "source": str(job.folder / "raw-{partition}.parquet") if parted else str(raw)}
    first, second = ({**places, "release": name} for name in ("2026-11", "2026-12"))
    save(reviews(), raw)
    where = job.folder / ("published/west" if parted else "published")
    manifest, old = where.with_name(f"{where.name}.manifest.json"), where.with_name(f"{where.name}.versions") / "v1"
    run(job.policy(**first), **names)
    kept = manifest.read_bytes(), shutil.copytree(old, job.folder / "kept")
    run(job.policy(**second), **names)
    save(reviews(300).filter(pl.col("user_id") != "u007"), raw)
    assert forget(job.policy(**second), subjects=["u007"], **names).removed == 6
    manifest.write_bytes(kept[0])
    shutil.copytree(kept[1], old)
    failed = {item.name: item.message for item in check_published(where, job.policy(**first)) if not item.passed}
    assert "retired manifest: 1" in failed["published_files"]
    with pytest.raises(LedgerError, match="none that the ledger recorded"):
        run(job.policy(incremental=True, deletions="keep", **first), **names)
    sound(job)


@pytest.mark.parametrize(
    ("release", "incremental"),
    quick([("2026-11", True), ("2026-12", False), ("2026-11", False), ("2026-12", True)], first=2),
)
def test_a_forgotten_record_that_comes_back_is_left_out(job, reviews, save, release, incremental):
    job.run()
    source(job, reviews, save, whole=False)
    assert forget(job.policy(), subjects=["u007"]).noted == 6
    source(job, reviews, save, whole=True)
    again = job.run(release=release, incremental=incremental)
    assert again.rows["forgotten"] == 6
    assert any("6 records that were forgotten are in the source again" in note for note in again.notes)
    assert not published(job) & {*THEIRS}
    place = ("--ledger", str(job.folder / "ledger.db"), "--reason", "came back")
    asked = ("ledger", "readmit", "reviews", *(part for name in THEIRS for part in ("--record", name)), *place)
    assert CliRunner().invoke(app, asked).exit_code == 5, "asked and not answered"
    said = CliRunner().invoke(app, [*asked, "--yes", "--json"])
    assert json.loads(said.output)["readmitted"] == 6
    back = job.run(release=release, incremental=incremental)
    assert ("forgotten" in back.rows, back.published_rows) == (False, 240)
    sound(job)


@pytest.mark.parametrize("step", quick(["reserved", "committed", "computed", "staged"], first=2))
def test_a_run_under_way_does_not_publish_whom_another_call_forgets(job, reviews, save, step):
    job.run()
    done = []

    def checkpoint(name):
        if name == step and not done:
            source(job, reviews, save, whole=False)
            done.append(forget(job.policy(), subjects=["u007"]).removed)

    with pytest.raises(LedgerError, match="were forgotten since"):
        run(job.policy(release="2026-12"), checkpoint=checkpoint)
    assert done == [6]
    assert not published(job) & {*THEIRS}
    source(job, reviews, save, whole=True)
    assert run(job.policy(release="2026-12")).rows["forgotten"] == 6
    assert len(published(job)) == 234
    sound(job)


def test_what_is_staged_is_compared_again_before_it_is_published(job):
    job.run()
    staged = stage(job.policy(release="2026-12"))
    verdicts = check(staged)
    with Ledger.open(str(job.folder / "ledger.db")) as ledger:
        ledger.forget("reviews", pa.array(THEIRS, pa.large_string()), pa.array([], pa.large_string()))
    with pytest.raises(LedgerError, match="6 of the staged records were forgotten since"):
        publish(staged, verdicts)
    assert job.run(release="2026-12").published_rows == 234
    sound(job)


def test_people_who_are_not_there_are_said_and_exit_with_8(job, reviews, save, monkeypatch):
    job.run()
    monkeypatch.setattr("dptext_etl.policy.Policy.load", lambda *_: job.policy())
    (job.folder / "privacy.toml").touch()
    asked = ("forget", str(job.folder / "privacy.toml"), "--yes")
    for whom in (("--subject", "u999"), ("--record", "r99999"), ("--missing",)):
        said = CliRunner().invoke(app, [*asked, *whom])
        assert said.exit_code == 8, said.output
        assert "no row of these people is published" in said.output
    assert len(published(job)) == 240


def test_staging_of_a_release_with_another_id_column(job, reviews, save):
    job.run()
    stage(job.policy(release="2026-12"))
    other = job.folder / "published.staging/2027-01/_/quarantine-00000.parquet"
    other.parent.mkdir(parents=True)
    pl.DataFrame({"user_id": ["u007", "u008"]}).write_parquet(other)
    source(job, reviews, save, whole=False)
    assert forget(job.policy(), subjects=["u007"]).removed == 6
    assert not other.exists(), "nothing shows whose rows it holds"


def test_clean_finds_versions_that_no_reader_saw(job):
    job.run()
    versions = job.folder / "published.versions"
    for name in ("v1-0123456789ab", "v2", "v7-0123456789ab"):
        (versions / name).mkdir()
    left = ["v1-0123456789ab", "v2", "v7-0123456789ab"]
    assert clean(job.policy(), dry_run=True).versions == left
    assert clean(job.policy()).versions == left
    assert len(published(job)) == 240
    assert clean(job.policy()).versions == []


def test_an_unpublished_table_is_cleaned(job):
    with Ledger.open(str(job.folder / "ledger.db")):
        pass
    assert clean(job.policy()).removed == []
