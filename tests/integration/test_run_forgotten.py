"""A forgotten person stays out: of older releases that are put back, of later runs, and of a run under way."""

import json
import shutil
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from dptext_etl import Ledger, run
from dptext_etl.checks.published import check_published
from dptext_etl.cli.app import app
from dptext_etl.engines import stage
from dptext_etl.errors import InputError, LedgerError
from dptext_etl.ledger import Scope
from dptext_etl.policy import Cap
from dptext_etl.runner import check, publish, scan_published
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.forgetting import forget
from dptext_etl.runner.publish.parts import id_finder
from dptext_etl.runner.publish.versions import clean
from tests.quick import quick

from ..review_jobs import STAGED, StopError, stopping_at
from .table_kinds import THEIRS


def published(job):
    return set(scan_published(str(job.folder / "published")).collect()["id"])


def source(job, reviews, save, *, whole):
    rows = reviews()
    save(rows if whole else rows.filter(pl.col("user_id") != "u007"), job.folder / "raw.parquet")


def sound(job):
    with job.ledger() as ledger:
        report = ledger.verify()
    assert report.ok, report.problems


@pytest.mark.parametrize("parted", quick([True, False]))
def test_an_older_release_that_is_put_back_is_refused(job, reviews, save, parted):
    sink = str(job.folder / ("published/{partition}" if parted else "published"))
    names = {"partition": "west"} if parted else {}
    raw = job.folder / ("raw-west.parquet" if parted else "raw.parquet")
    places = {"sink": sink, "source": str(job.folder / "raw-{partition}.parquet") if parted else str(raw)}
    first, second = ({**places, "release": name} for name in ("2026-11", "2026-12"))
    save(reviews(), raw)
    where = job.folder / ("published/west" if parted else "published")
    manifest = where.with_name(f"{where.name}.manifest.json")
    run(job.policy(**first), **names)
    kept = manifest.read_bytes(), shutil.copytree(where, job.folder / "kept")
    run(job.policy(**second), **names)
    save(reviews(300).filter(pl.col("user_id") != "u007"), raw)
    assert forget(job.policy(**second), subjects=["u007"], **names).removed == 6
    manifest.write_bytes(kept[0])
    shutil.rmtree(where)
    shutil.copytree(kept[1], where)
    failed = {item.name: item.message for item in check_published(where, job.policy(**first)) if not item.passed}
    assert "retired manifest: 1" in failed["published_files"]
    with pytest.raises(LedgerError, match="none that the ledger recorded"):
        run(job.policy(incremental=True, deletions="keep", **first), **names)
    sound(job)


@pytest.mark.parametrize(
    ("release", "incremental"), quick([("2026-11", True), ("2026-12", False), ("2026-11", False), ("2026-12", True)])
)
def test_a_forgotten_record_that_comes_back_is_excluded(released, reviews, save, release, incremental):
    source(released, reviews, save, whole=False)
    assert forget(released.policy(), subjects=["u007"]).noted == 6
    source(released, reviews, save, whole=True)
    again = released.run(release=release, incremental=incremental)
    assert again.rows["forgotten"] == 6
    assert any("6 records that were forgotten are in the source again" in note for note in again.notes)
    assert not published(released) & {*THEIRS}
    place = ("--ledger", str(released.folder / "ledger.db"), "--reason", "came back")
    asked = ("ledger", "readmit", "reviews", *(part for name in THEIRS for part in ("--record", name)), *place)
    assert CliRunner().invoke(app, asked).exit_code == 5, "asked and not answered"
    said = CliRunner().invoke(app, [*asked, "--yes", "--json"])
    assert json.loads(said.output)["readmitted"] == 6
    back = released.run(release=release, incremental=incremental)
    assert ("forgotten" in back.rows, back.published_rows) == (False, 240)
    sound(released)


@pytest.mark.parametrize("step", quick(["committed", "reserved", "computed", "staged"]))
def test_a_run_under_way_does_not_publish_whom_another_call_forgets(released, reviews, save, step):
    done = []

    def checkpoint(name):
        if name == step and not done:
            source(released, reviews, save, whole=False)
            done.append(forget(released.policy(), subjects=["u007"]).removed)

    with pytest.raises(LedgerError, match="were forgotten since"):
        run(released.policy(release="2026-12"), checkpoint=checkpoint)
    assert done == [6]
    assert not published(released) & {*THEIRS}
    source(released, reviews, save, whole=True)
    assert run(released.policy(release="2026-12")).rows["forgotten"] == 6
    assert len(published(released)) == 234
    sound(released)


def test_what_is_staged_is_compared_again_before_it_is_published(released):
    staged = stage(released.policy(release="2026-12"))
    verdicts = check(staged)
    with Ledger.open(str(released.folder / "ledger.db")) as ledger:
        ledger.people.forget("reviews", pa.array(THEIRS, pa.large_string()), pa.array([], pa.large_string()))
    with pytest.raises(LedgerError, match="6 of the staged records were forgotten since"):
        publish(staged, verdicts)
    assert released.run(release="2026-12").published_rows == 234
    sound(released)


def everything(job):
    """Return the bytes of all files except locks, and except those that a ledger in write-ahead mode adds."""
    files = (path for path in job.folder.rglob("*") if path.is_file() and path.stat().st_size)
    return {path: path.read_bytes() for path in files if path.suffix not in {".lock", ".db-wal", ".db-shm"}}


def test_people_who_are_not_there_are_said_and_exit_with_8(released, reviews, save):
    save(reviews().with_columns(stars=0), released.folder / "raw.parquet")
    released.run()
    asked, before = ("forget", str(released.write_policy()), "--yes"), everything(released)
    assert CliRunner().invoke(app, [*asked[:2], "--subject", "u007"]).exit_code == 5, "asked and not answered"
    for whom, who in (
        (("--subject", "U007"), "1 of 1 subject"),
        (("--record", "r99999"), "1 of 1 record"),
        (("--subject", "u007", "--subject", "U007", "--record", "r99999"), "1 of 2 subjects and 1 of 1 record"),
    ):
        said = CliRunner().invoke(app, [*asked, *whom])
        assert said.exit_code == 8, said.output
        assert f"{who}: unknown here; nothing was changed" in said.output
    assert everything(released) | {Path(asked[1]): b""} == before | {Path(asked[1]): b""}
    said = CliRunner().invoke(app, [*asked, "--missing"])
    assert said.exit_code == 8, said.output
    assert "no row of these people is published" in said.output
    assert len(published(released)) == 240
    place = ("ledger", "remaining", "--ledger", str(released.folder / "ledger.db"), "--subject", "u007")
    assert CliRunner().invoke(app, place).exit_code == 0
    said = CliRunner().invoke(app, [*place, "--subject", "NOBODY"])
    assert (said.exit_code, "1 of 2 ids: unknown here; nothing was changed" in said.output) == (8, True)


def with_long_texts_of_one(rows):
    """Let every record of u007 exceed a small cap, so that none is ever charged."""
    long = pl.lit("worda " * 100)
    return rows.with_columns(review=pl.when(pl.col("user_id") == "u007").then(long).otherwise("review"))


SMALL = {"measure": "pure", "epsilon": 150.0, "period": "2026"}


def in_lists(job):
    paths = (job.folder / "published.staging").rglob("quarantine-*.parquet")
    return {name for path in paths for name in pl.read_parquet(path)["id"]}


def test_a_person_who_was_never_charged_is_forgotten(make_job, reviews, save):
    job = make_job(cap=SMALL, min_released=0.0)
    save(with_long_texts_of_one(reviews()), job.folder / "raw.parquet")
    job.run()
    others = in_lists(job) - {*THEIRS}
    assert in_lists(job) > {*THEIRS}
    with pytest.raises(InputError, match="source still holds 6 of these records"):
        forget(job.policy(), subjects=["u007"])
    source(job, reviews, save, whole=False)

    with pytest.raises(StopError):
        forget(job.policy(), subjects=["u007"], checkpoint=stopping_at("forgotten"))
    assert forget(job.policy(), subjects=["u007"]).staged > 0, "the same call finishes the killed one"
    assert in_lists(job) == others, "nothing of the others goes"
    assert forget(job.policy(), subjects=["u007"]).staged == 0
    source(job, reviews, save, whole=True)
    larger = {"cap": {**SMALL, "epsilon": 1000.0, "period": "2027"}, "release": "2027-01"}
    with Ledger.open(str(job.folder / "ledger.db")) as ledger:
        ledger.set_cap(Scope("reviews", "2027"), Cap(**larger["cap"]), raising=True)
    assert job.run(**larger).rows["forgotten"] == 6
    assert not (published(job) | in_lists(job)) & {*THEIRS}
    place = ("--ledger", str(job.folder / "ledger.db"), "--reason", "came back", "--yes")
    said = CliRunner().invoke(app, ["ledger", "readmit", "reviews", "--subject", "u007", *place])
    assert said.exit_code == 0, said.output
    assert job.run(**larger).published_rows == 240
    sound(job)


def test_a_list_without_units_goes_when_a_person_is_forgotten(released, reviews, save):
    """A list of a policy whose unit is the record holds ids only, and nothing shows whose they are."""
    old = released.folder / f"{STAGED}/2026-11/_/quarantine-00000.parquet"
    pl.DataFrame({"id": ["r00300", "r00301"]}).write_parquet(old)
    source(released, reviews, save, whole=False)
    forget(released.policy(), records=["r00300"])
    assert pl.read_parquet(old)["id"].to_list() == ["r00301"]
    forget(released.policy(), subjects=["u007"])
    assert not old.exists()


def test_lists_of_changed_texts_name_the_units(released, reviews, save):
    save(reviews().with_columns(review=pl.lit("worda")), released.folder / "raw.parquet")
    with pytest.raises(InputError, match="texts of 240 records changed"):
        released.run()
    (path,) = (released.folder / "published.staging").rglob("changed-*.parquet")
    with released.ledger() as ledger:
        theirs = ledger.people.unit_hashes(pa.array(["u007"]))[0].as_py()
    assert {*pl.read_parquet(path).filter(pl.col("__dptext_unit") == theirs)["id"]} == {*THEIRS}


TWO_SINKS = [("2026-12", {}), ("2026-11", {}), ("2026-12", {"ids": "keyed"})]


@pytest.mark.parametrize(("release", "more"), quick(TWO_SINKS), ids=["two releases", "equal manifests", "keyed ids"])
def test_who_is_forgotten_in_another_sink_is_not_published_again(job, reviews, save, release, more):
    """A sibling sink keeps its version, `check` counts its forgotten rows, and nothing is added to it."""
    there = {"release": release, "sink": str(job.folder / "other"), **more}
    job.run(incremental=True)
    job.run(**there)
    first = job.folder / "published"
    manifest = first.with_name("published.manifest.json").read_bytes()
    kept = shutil.copytree(first, job.folder / "kept")
    save(reviews(300).filter(pl.col("user_id") != "u007"), job.folder / "raw.parquet")
    assert forget(job.policy(**there), subjects=["u007"]).removed == 6
    assert all(gate.passed for gate in checked(job, **there))
    failed = {gate.name: dict(gate.counts) for gate in checked(job) if not gate.passed}
    assert {name: counts["forgotten"] for name, counts in failed.items()} == {"rows_ledgered": 6}
    used = job.charged()
    with pytest.raises(LedgerError, match="6 rows of the published table are of people or records that were"):
        job.run(incremental=True, deletions="keep")
    assert job.charged() == used
    assert forget(job.policy(incremental=True), subjects=["u007"]).removed == 6
    assert job.run(incremental=True).published_rows == 292
    assert all(gate.passed for gate in [*checked(job), *checked(job, **there)])
    first.with_name("published.manifest.json").write_bytes(manifest)
    shutil.rmtree(first)
    shutil.copytree(kept, first)
    failed = {gate.name for gate in checked(job) if not gate.passed}
    assert failed >= {"published_files", "rows_ledgered"}, "an older version that is put back"
    sound(job)


def checked(job, **changes):
    policy = job.policy(**changes)
    return check_published(Path(policy.sink), policy, own_ids=id_finder(Layout.of(policy).staging, policy.ledger))


def test_what_is_forgotten_during_an_incremental_run_stops_it_before_readers_see_it(job, reviews, save):
    job.run(incremental=True)
    save(reviews(300), job.folder / "raw.parquet")
    none = pa.array([], pa.large_string())

    def checkpoint(name):
        if name == "parts written":
            with Ledger.open(str(job.folder / "ledger.db")) as ledger:
                ledger.people.forget("reviews", none, pa.array(["u007"], pa.large_string()))

    with pytest.raises(LedgerError, match="of the published table are of people"):
        run(job.policy(incremental=True), checkpoint=checkpoint)
    assert len(published(job)) == 240


def test_staging_of_a_release_with_another_id_column(released, reviews, save):
    stage(released.policy(release="2026-12"))
    other = released.folder / f"{STAGED}/2027-01/_/quarantine-00000.parquet"
    other.parent.mkdir(parents=True)
    pl.DataFrame({"user_id": ["u007", "u008"]}).write_parquet(other)
    source(released, reviews, save, whole=False)
    assert forget(released.policy(), subjects=["u007"]).removed == 6
    assert not other.exists(), "nothing shows whose rows it holds"


def test_clean_finds_versions_that_no_reader_saw(released):
    versions = released.folder / "published.versions"
    for name in ("v1-0123456789ab", "v2", "v7-0123456789ab"):
        (versions / name).mkdir()
    left = ["v1-0123456789ab", "v2", "v7-0123456789ab"]
    assert clean(released.policy(), dry_run=True).versions == left
    assert clean(released.policy()).versions == left
    assert len(published(released)) == 240
    assert clean(released.policy()).versions == []


def test_an_unpublished_table_is_cleaned(job):
    with Ledger.open(str(job.folder / "ledger.db")):
        pass
    assert clean(job.policy()).removed == []
