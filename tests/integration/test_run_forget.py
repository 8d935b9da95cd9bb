"""Who is to be forgotten goes: out of the published table, of older versions, of staging; the books stay whole."""

import contextlib
import json
import os
import subprocess
import sys
import time
from dataclasses import replace

import polars as pl
import pytest

from dptext_etl import Ledger, run
from dptext_etl.engines import stage
from dptext_etl.errors import GateError, InputError, LedgerError, PolicyError
from dptext_etl.families.stored_distributions import TableMechanism
from dptext_etl.files import temporary_folder
from dptext_etl.ledger import Scope
from dptext_etl.mechanism import Released
from dptext_etl.policy import Cap
from dptext_etl.runner.publish.forgetting import forget
from dptext_etl.runner.publish.versions import clean
from dptext_etl.storage import Storage
from tests.command_line import dptext
from tests.quick import quick

from ..review_jobs import STAGED, StopError, stopping_at
from .table_kinds import THEIRS, failing


def contents(job):
    """Every file of a job, staging and ledger included."""
    files = (path for path in sorted(job.folder.rglob("*")) if path.is_file())
    return {path: path.read_bytes() for path in files if not path.name.startswith("ledger.db-")}  # of any reader


@pytest.mark.parametrize("make", ["make_shuffled", "make_synthetic"])
def test_a_dry_run_of_a_whole_table_says_what_becomes_of_it(request, make):
    job = request.getfixturevalue(make)()
    job.run()
    path = job.folder / "raw.parquet"
    pl.read_parquet(path).filter(pl.col("user_id") != "u007").write_parquet(path)
    before = contents(job)
    shown = dptext("forget", job.write_policy(), "--subject", "u007", "--dry-run")
    before[job.folder / "privacy.toml"] = (job.folder / "privacy.toml").read_bytes()
    assert contents(job) == before
    assert "this would happen; nothing was changed:" in shown.output
    assert ("was withdrawn" in shown.output) == (make == "make_shuffled")
    foretold = forget(job.policy(), subjects=["u007"], dry_run=True)
    assert replace(forget(job.policy(), subjects=["u007"]), staged=0) == foretold


@pytest.mark.parametrize("suffix", quick([".parquet", ".csv", ".ndjson"]))
def test_a_subject_is_forgotten(make_job, reviews, save, suffix):
    job = make_job(suffix=suffix)
    job.run()
    left_stars = reviews().with_columns(stars=0)
    save(left_stars, job.folder / f"raw{suffix}")
    job.run()
    with pytest.raises(InputError, match="source still holds 6 of these records"):
        forget(job.policy(), subjects=["u007"])
    save(left_stars.filter(pl.col("user_id") != "u007"), job.folder / f"raw{suffix}")
    before, used = job.published(), job.charged()
    old = (job.folder / "published.manifest.json").read_bytes()
    files = {path: path.read_bytes() for path in (job.folder / "published").iterdir()}
    untouched, foretold = contents(job), forget(job.policy(), subjects=["u007"], dry_run=True)
    assert contents(job) == untouched, "a dry run changes nothing"
    done = forget(job.policy(), subjects=["u007"])
    assert (done.version, done.removed, done.rows, done.versions) == (3, 6, 234, ["v1", "v2"])
    assert replace(done, staged=0) == foretold
    assert job.published().equals(before.filter(~pl.col("id").is_in(THEIRS)))
    assert [path.name for path in sorted((job.folder / "published.versions").iterdir())] == ["v3"]
    assert job.charged() == used, "a release stays charged"
    with job.ledger() as ledger:
        report = ledger.verify()
        assert report.ok, report.problems
        assert ledger.remaining(Scope.of(job.policy())).used
    assert not failing(job)
    again = job.run()
    assert (again.rows["new"], again.published_rows) == (0, 234)
    (job.folder / "published.manifest.json").write_bytes(old)  # someone puts the older version back
    for path, content in files.items():
        path.write_bytes(content)
    assert "retired manifest: 1" in failing(job)["published_files"]


def test_records_and_what_the_source_no_longer_holds(job, reviews, save):
    job.run(incremental=True)
    save(reviews(300).filter(~pl.col("id").is_in(THEIRS)), job.folder / "raw.parquet")
    with pytest.raises(InputError, match="6 of 240 published records are no longer in the source") as caught:
        job.run(incremental=True)
    assert "--missing" in caught.value.hint
    done = forget(job.policy(incremental=True), missing=True)
    assert (done.removed, done.rows) == (6, 234)
    assert job.run(incremental=True).published_rows == 294
    save(reviews(300).filter(~pl.col("id").is_in([*THEIRS, "r00299"])), job.folder / "raw.parquet")
    assert forget(job.policy(), records=["r00299"]).rows == 293
    assert not failing(job)


def test_a_source_of_new_rows_only_says_so(job, reviews, save):
    job.run(incremental=True)
    save(reviews(100, 240), job.folder / "raw.parquet")
    assert job.run(incremental=True).published_rows == 340, "no published row: nothing can have gone from them"
    save(reviews(100, 300), job.folder / "raw.parquet")
    with pytest.raises(InputError, match="no longer in the source"):
        job.run(incremental=True)
    assert job.run(incremental=True, deletions="keep").published_rows == 400


@pytest.mark.parametrize("step", quick(["manifest written", "parts written", "recorded", "shown"]))
def test_a_killed_call_is_finished_by_the_same_call(job, reviews, save, step):
    job.run()
    save(reviews().filter(pl.col("user_id") != "u007"), job.folder / "raw.parquet")
    with pytest.raises(StopError):
        forget(job.policy(), subjects=["u007"], checkpoint=stopping_at(step))
    assert job.published().height in {240, 234}
    done = forget(job.policy(), subjects=["u007"])
    assert (done.version, done.rows) == (2, 234)
    assert [path.name for path in sorted((job.folder / "published.versions").iterdir())] == ["v2"]
    assert not failing(job)
    with job.ledger() as ledger:
        assert ledger.verify().ok


def test_a_revoked_release_can_be_forgotten_from(released, reviews, save):
    save(reviews().filter(pl.col("user_id") != "u007"), released.folder / "raw.parquet")
    with Ledger.open(str(released.folder / "ledger.db")) as ledger:
        ledger.releases.revoke(ledger.releases.find(released.policy().column_policies()[0]), "key leaked")
    assert forget(released.policy(), subjects=["u007"]).rows == 234
    with released.ledger() as ledger:
        assert ledger.verify().ok


def test_lists_and_shards_in_staging_lose_the_records(make_job, reviews, save):
    job = make_job(cap={"measure": "pure", "epsilon": 150.0, "period": "2026"}, min_released=0.0)
    job.run()
    stage(job.policy(release="2026-12"), accept_fewer_rows=True)
    listed = pl.read_parquet(job.folder / f"{STAGED}/*/*/quarantine-*.parquet")["id"].to_list()
    gone = [*THEIRS, listed[0]]
    save(reviews().filter(~pl.col("id").is_in(gone)), job.folder / "raw.parquet")
    assert forget(job.policy(), records=gone).staged > 0
    left = pl.concat(
        pl.read_parquet(path).select("id") for path in (job.folder / "published.staging").rglob("*.parquet")
    )
    assert not set(left["id"]) & set(gone)


@pytest.mark.parametrize("written", quick([1, 0, 2, 3]))
def test_what_was_set_aside_loses_the_records_however_often_it_is_killed(released, reviews, save, monkeypatch, written):
    """Files of one shard are written one after the other; a run that is killed between two of them continues."""
    aside = released.folder / f"{STAGED}/2026-11/_/kept-00000-0123456789abcdef.parquet"
    files = [aside.with_suffix(".draws"), aside.with_name(f"{aside.stem}-0123456789abcdef.post"), aside]
    rows = reviews()
    for path, write in zip(
        files, (rows.select("stars").write_ipc, rows.write_parquet, rows.write_parquet), strict=True
    ):
        write(path)
    save(rows.filter(~pl.col("id").is_in(THEIRS)), released.folder / "raw.parquet")
    done, write = [], Storage.write

    def dying(self, name, *given, **options):
        if self.folder / name in files and len(done) == written:
            raise StopError
        done.append(name)
        write(self, name, *given, **options)

    with monkeypatch.context() as patch, contextlib.suppress(InputError, StopError):
        patch.setattr(Storage, "write", dying)
        forget(released.policy(), records=THEIRS)
    forget(released.policy(), records=THEIRS)
    left = [pl.read_ipc(files[0]), *map(pl.read_parquet, files[1:])]
    assert {frame.height for frame in left} == {240 - len(THEIRS)}
    assert not set(left[1]["id"]) & set(THEIRS) | set(left[2]["id"]) & set(THEIRS)
    assert left[0]["stars"].to_list() == left[2]["stars"].to_list()


def test_what_cannot_be_forgotten_is_said(job, reviews, save):
    with pytest.raises(InputError, match="nothing is published") as caught:
        forget(job.policy(), subjects=["u007"])
    assert "--everywhere" in caught.value.hint
    job.run()
    with pytest.raises(PolicyError, match="no one is named"):
        forget(job.policy())
    with pytest.raises(LedgerError, match="not a release of this policy"):
        forget(job.policy(release="2026-12"), subjects=["u007"])
    (job.folder / "raw.parquet").unlink()
    with pytest.raises(InputError, match="source cannot be found"):
        forget(job.policy(), missing=True)
    assert forget(job.policy(), subjects=["u007"]).rows == 234


def passing_through(self, texts, keys):
    """A defect: raw texts come back."""
    return Released(texts.cast("large_string"), self.positions(texts))


def staged_bytes(job):
    return b"".join(path.read_bytes() for path in (job.folder / "published.staging").rglob("*") if path.is_file())


def test_a_fired_gate_takes_raw_text_out_of_staging_at_once(job, monkeypatch, sentinel):
    with monkeypatch.context() as patch:
        patch.setattr(TableMechanism, "release", passing_through)
        with pytest.raises(GateError):
            job.run()
    assert not [*(job.folder / "published.staging").rglob("shard-*")]
    assert sentinel.encode() not in staged_bytes(job)
    before = job.charged()
    (folder,) = (path.parent for path in (job.folder / "published.staging").rglob("fired.txt"))
    assert clean(job.policy(), dry_run=True).stopped == [folder]
    assert folder.exists()
    assert clean(job.policy()).stopped == [folder]
    assert not folder.exists()
    assert job.charged() == before
    assert job.run(release="2026-12").version == 1


def test_retention_of_versions_and_staging(make_job, reviews, save):
    cap = {"measure": "pure", "epsilon": 150.0, "period": "2026"}
    job = make_job(cap=cap)
    for stars in range(4):
        save(reviews().with_columns(stars=stars), job.folder / "raw.parquet")
        job.run()
        assert len(list((job.folder / "published.versions").iterdir())) == min(stars + 1, 2), "current and last"
    assert not clean(job.policy()).removed
    retention = {"versions": 1, "quarantine_days": 30, "staging_days": 30}
    assert clean(job.policy(retention=retention)).versions == ["v3"]
    assert not failing(job)
    lists = sorted((job.folder / "published.staging").rglob("quarantine-*"))
    assert lists
    long_ago = time.time() - 31 * 86_400
    os.utime(lists[0], (long_ago, long_ago))
    assert clean(job.policy(retention=retention)).quarantined == lists[:1]
    larger = {**cap, "period": "2027"}
    with Ledger.open(str(job.folder / "ledger.db")) as ledger:
        ledger.set_cap(Scope("reviews", "2027"), Cap(**larger), raising=True)
    stage(job.policy(release="2027-01", cap=larger))
    staged = clean(job.policy(retention={"staging_days": 0})).staged
    assert {path.name.partition("-")[0] for path in staged} == {"shard", "texts.txt"}
    job.run(release="2027-01", cap=larger)
    assert job.published()["stars"].unique().to_list() == [3]


KILLED = """
import os, sys
from pathlib import Path
from dptext_etl.files import temporary_folder
with temporary_folder(Path(sys.argv[1])) as draft:
    (draft / "half").write_bytes(b"half")
    os.kill(os.getpid(), 9)
"""


def test_drafts_of_killed_exports_and_backups_are_named_and_removed(job, tmp_path):
    """At once, whatever their age; drafts of processes that run stay."""
    job.run()
    (elsewhere := tmp_path / "backups").mkdir()
    with temporary_folder(job.folder) as held:
        for place in (elsewhere, job.folder):
            subprocess.run([sys.executable, "-c", KILLED, str(place)], check=False)
        drafts = [draft for place in (job.folder, elsewhere) for draft in place.glob(".dptext-staged-*")]
        here, there = (draft for draft in drafts if draft != held.parent)
        named = dptext("clean", job.write_policy(), "--dry-run", "--drafts", elsewhere, "--json")
        assert json.loads(named.stdout)["drafts"] == sorted(map(str, (here, there)))
        assert clean(job.policy()).drafts == [here]
        assert clean(job.policy(), drafts=[elsewhere]).drafts == [there]
        assert [draft for draft in drafts if draft.exists()] == [held.parent]


def test_a_run_does_not_clean_what_another_is_using(job):
    seen = []

    def checkpoint(name):
        if name == "registered":
            seen.append(clean(job.policy(retention={"staging_days": 0})).busy)

    run(job.policy(), checkpoint=checkpoint)
    assert len(seen[0]) == 1
