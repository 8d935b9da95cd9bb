"""What readers of a folder see: one version, by any glob, and nothing before the ledger knows of it."""

import contextlib
import hashlib
import json
import os
import shutil
import stat
import subprocess
from pathlib import Path

import polars as pl
import pyarrow.dataset as ds
import pytest

from dptext_etl import Ledger, _kernel, run
from dptext_etl.checks.published import check_published
from dptext_etl.engines import stage
from dptext_etl.errors import InputError, LedgerError
from dptext_etl.runner import check, publish, scan_published
from tests.command_line import dptext, facts
from tests.quick import quick

from ..refusals import same_refusal
from ..review_jobs import StopError


def by_glob(job, name="published"):
    """The ids that folder readers see, by every way that users have."""
    folder = job.folder / name
    ways = [
        pl.scan_parquet(folder).collect(),
        pl.read_parquet(f"{folder}/*.parquet"),
        pl.read_parquet(f"{folder}/**/*.parquet"),
        pl.from_arrow(ds.dataset(folder).to_table()),
    ]
    (ids,) = {tuple(way["id"].to_list()) for way in ways}
    return list(ids)


@pytest.mark.parametrize("incremental", quick([True, False]))
def test_a_glob_meets_every_row_once(job, reviews, save, incremental):
    job.run(incremental=incremental)
    assert by_glob(job) == reviews()["id"].to_list()
    save(reviews(300), job.folder / "raw.parquet")
    summary = job.run(incremental=incremental)
    assert summary.version == 2
    assert by_glob(job) == reviews(300)["id"].to_list() == scan_published(summary.published).collect()["id"].to_list()
    assert all(verdict.passed for verdict in check_published(job.folder / "published", job.policy()))


def readable_by_others(folder):
    """Files below a folder that anybody may read, staging excluded."""
    found = []
    for here, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if stat.S_IMODE(Path(here, name).stat().st_mode) & 0o005]
        found += [name for name in names if stat.S_IMODE(Path(here, name).stat().st_mode) & 0o004]
    return [name for name in found if name.startswith(("part", "shard", "published"))]


def test_nothing_can_be_read_before_the_ledger_knows_of_it(job, reviews):
    """And a folder with files of another program is refused before anything is charged."""
    (job.folder / "published").mkdir()
    (job.folder / "published" / "ours.parquet").touch()
    with pytest.raises(InputError, match="1 file or folder that no run") as caught:
        job.run()
    assert "new or empty" in caught.value.hint
    assert not (job.folder / "ledger.db").exists()
    shutil.rmtree(job.folder / "published")
    seen = []

    def checkpoint(name):
        if name == "parts written":
            seen.append((readable_by_others(job.folder), (job.folder / "published").exists()))

    run(job.policy(), checkpoint=checkpoint)
    assert seen == [([], False)]
    assert len(readable_by_others(job.folder)) == 1 + 2, "manifest, and two files"
    assert by_glob(job) == reviews()["id"].to_list()


def test_a_name_that_is_revoked_in_between_shows_nothing(job):
    staged = stage(job.policy())
    verdicts = check(staged)

    def revoking(name):
        if name == "parts written":
            with Ledger.open(str(job.folder / "ledger.db")) as ledger:
                ledger.releases.revoke(next(iter(staged.refs.values())), "operator")

    with pytest.raises(LedgerError, match="revoked"):
        publish(staged, verdicts, checkpoint=revoking)
    assert not (job.folder / "published").exists()
    assert not (job.folder / "published.manifest.json").exists()
    assert not list((job.folder / "published.versions").iterdir())


def test_a_link_of_the_users_own_is_followed(job):
    (job.folder / "large").mkdir()
    (job.folder / "published").symlink_to("large/table")
    job.run()
    assert (job.folder / "published").readlink().name == "table"
    assert (job.folder / "large" / "table.versions").is_dir()
    assert len(by_glob(job)) == scan_published(str(job.folder / "published")).collect().height == 240
    assert all(verdict.passed for verdict in check_published(job.folder / "published", job.policy()))


def edited(job, rows):
    """Rewrite the first file, and the manifest to fit it, as anyone who can write there could."""
    manifest = job.folder / "published.manifest.json"
    facts = json.loads(manifest.read_text())
    part = job.part(0)
    frame = pl.read_parquet(part).head(rows)
    frame.write_parquet(part)
    facts["parts"][0] |= {"rows": frame.height, "sha256": hashlib.sha256(part.read_bytes()).hexdigest()}
    facts["rows"] = sum(part["rows"] for part in facts["parts"])
    manifest.write_text(json.dumps(facts, indent=1) + "\n")


def test_nothing_is_added_to_a_manifest_that_the_ledger_does_not_know(job, reviews, save):
    job.run(incremental=True)
    edited(job, 90)
    assert not all(verdict.passed for verdict in check_published(job.folder / "published", job.policy()))
    assert scan_published(str(job.folder / "published")).collect().height == 210, "readers alone cannot know"
    save(reviews(300), job.folder / "raw.parquet")
    with pytest.raises(LedgerError, match="none that the ledger recorded"):
        job.run(incremental=True)
    assert job.run().version == 2
    assert by_glob(job) == reviews(300)["id"].to_list()
    assert all(verdict.passed for verdict in check_published(job.folder / "published", job.policy()))


def test_readers_refuse_files_that_are_not_those_of_the_manifest(released):
    sink = str(released.folder / "published")
    part = released.part(1)
    pl.read_parquet(part).head(3).write_parquet(part)
    with pytest.raises(InputError, match="1 of 2 published files do not match their manifest"):
        scan_published(sink)
    assert scan_published(sink, verify=False).collect().height == 240 - 117
    assert "1 damaged" in released.run().notes[0]
    assert scan_published(sink).collect().height == 240
    released.part(1).unlink()
    with pytest.raises(InputError, match=r"v1/part-00001-[0-9a-f]{16}.parquet"):
        scan_published(sink)


def test_an_older_version_put_back_shows_in_the_verdict(released, reviews, save):
    copy = released.folder / "copy"
    shutil.copytree(released.folder / "published", copy / "published")
    shutil.copy(released.folder / "published.manifest.json", copy)
    found = scan_published(str(released.folder / "published"))
    save(reviews().with_columns(stars=0), released.folder / "raw.parquet")
    released.run()
    assert found.collect()["stars"].max() == 5, "a version that was found stays while another is published"
    assert pl.read_parquet(released.folder / "published")["stars"].max() == 0
    now, then = (check_published(folder / "published", released.policy())[0] for folder in (released.folder, copy))
    assert (now.counts["newer_recorded"], then.counts["newer_recorded"]) == (0, 1)
    assert then.passed
    assert "newer versions" in then.message


COPIES = {
    "cp": "cp -r published published.manifest.json elsewhere",
    "tar": "tar -cf copy.tar published published.manifest.json && tar -xf copy.tar -C elsewhere",
}


@pytest.mark.parametrize("way", quick(COPIES))
def test_a_copy_is_read_checked_and_published_to(released, reviews, save, way):
    elsewhere = released.folder / "elsewhere"
    elsewhere.mkdir()
    subprocess.run(COPIES[way], shell=True, cwd=released.folder, check=True)
    assert by_glob(released, "elsewhere/published") == reviews()["id"].to_list()
    assert scan_published(str(elsewhere / "published")).collect().height == 240
    assert all(verdict.passed for verdict in check_published(elsewhere / "published", released.policy()))
    shutil.rmtree(released.folder / "published")
    (elsewhere / "published").rename(released.folder / "published")
    save(reviews(300), released.folder / "raw.parquet")
    assert released.run().version == 2
    assert by_glob(released) == reviews(300)["id"].to_list()


@pytest.mark.parametrize("dies", quick(["between", "at once", None, "before", "after", "unnamed"], first=2))
def test_folders_change_places_and_the_next_run_completes_it(released, reviews, save, monkeypatch, dies):
    """In one step or by renames; a run that dies in between leaves all rows to readers of the manifest."""
    found = scan_published(str(released.folder / "published"))
    save(reviews(300), released.folder / "raw.parquet")
    with monkeypatch.context() as patch:
        if dies != "at once":
            patch.setattr(_kernel, "exchange", lambda *_: False)
        moves, rename = [], Path.rename
        wanted = {"before": 1, "between": 2, "after": 3, "unnamed": 4, "at once": 1}.get(dies)

        def dying(path, target):
            moves.append(path.name)
            if len(moves) == wanted:
                raise StopError
            return rename(path, target)

        def checkpoint(name):
            if name == "manifest written":
                patch.setattr(Path, "rename", dying)

        with contextlib.suppress(InputError):
            run(released.policy(), checkpoint=checkpoint)
    assert len(moves) == (wanted or 4)
    assert scan_published(str(released.folder / "published")).collect().height == 300
    released.run()
    assert by_glob(released) == reviews(300)["id"].to_list()
    assert all(verdict.passed for verdict in check_published(released.folder / "published", released.policy()))
    if dies in {None, "at once", "unnamed"}:
        assert found.collect().height == 240, "who read the version before goes on"
    names = {path.name for path in (released.folder / "published.versions").iterdir()}
    assert names <= {"v1", "v2"}
    save(reviews().with_columns(stars=0), released.folder / "raw.parquet")
    assert released.run().version == 3
    assert {path.name for path in (released.folder / "published.versions").iterdir()} == {"v2", "v3"}
    assert scan_published(str(released.folder / "published")).collect()["stars"].max() == 0


def test_a_mount_point_is_refused_before_anything_is_charged(job, monkeypatch):
    monkeypatch.setattr(Path, "is_mount", lambda path: path == job.folder / "published")
    (job.folder / "published").mkdir()
    assert "is a mount point" in same_refusal(job, {}, InputError).message
    assert not (job.folder / "ledger.db").exists()


@pytest.mark.parametrize("link", quick([True, False]))
def test_a_manifest_that_names_another_file_brings_it_nowhere(released, link):
    manifest, secret = released.folder / "published.manifest.json", released.folder / "raw.parquet"
    facts = json.loads(manifest.read_text())
    facts["parts"][0] |= {"path": "../raw.parquet", "sha256": hashlib.sha256(secret.read_bytes()).hexdigest()}
    if link:
        facts["parts"][0]["path"] = "v9/part-00000.parquet"
        (released.folder / "published.versions" / "v9").mkdir()
        (released.folder / "published.versions" / "v9" / "part-00000.parquet").symlink_to(secret)
    manifest.write_text(json.dumps(facts, indent=1) + "\n")
    released.run()
    assert secret.read_bytes() not in [path.read_bytes() for path in (released.folder / "published").iterdir()]
    assert all(verdict.passed for verdict in check_published(released.folder / "published", released.policy()))


EDITS = {
    "spaces": lambda text: text.replace('\n "rows"', '\n  "rows"', 1),
    "a number that is not read": lambda text: text.replace('"rows": 240', '"rows": 999', 1),
    "ends of lines": lambda text: text.replace("\n", "\r\n"),
}


@pytest.mark.parametrize("incremental", quick([True, False]))
@pytest.mark.parametrize("edit", quick(EDITS, first=2))
def test_a_manifest_that_says_the_same_in_other_bytes_is_written_again(job, edit, incremental):
    policy, path = job.write_policy(incremental=incremental), job.folder / "published.manifest.json"
    assert dptext("run", policy).exit_code == 0
    before = path.read_bytes()
    for forget in (lambda: None, job.forget_that_nothing_changed):
        edited = EDITS[edit](before.decode()).encode()
        path.write_bytes(edited)
        assert edited != before
        done = dptext("check", policy)
        assert (done.exit_code, "Hint: run the same policy again" in done.output) == (4, True), done.output
        forget()
        done = dptext("run", policy)
        assert (done.exit_code, "already published" in done.output) == (0, True), done.output
        assert path.read_bytes() == before
        assert dptext("check", policy).exit_code == 0
    assert [row["published"] for row in facts("ledger", "show", "--ledger", job.folder / "ledger.db")["releases"]] == [
        [{"version": f"v1-{hashlib.sha256(before).hexdigest()[:12]}", "rows": 240}]
    ] * 2, "no version was added"
