"""The same run again computes nothing; whatever differs is noticed, and goes through every step."""

import json
import os
import shutil

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from polars.testing import assert_frame_equal

from dptext_etl import Ledger, run
from dptext_etl.engines import local
from dptext_etl.errors import InputError, LedgerError
from dptext_etl.runner.shard.attempt import Attempt
from dptext_etl.runner.unchanged import Input
from tests.quick import quick
from tests.review_jobs import STAGED, make_reviews, save_table

NOTED = f"{STAGED}/2026-11/_/unchanged.json"


@pytest.fixture
def steps(monkeypatch):
    """How often a run looked at the rows of its source."""
    looked = []
    examine = local.examine
    monkeypatch.setattr(local, "examine", lambda *given, **more: looked.append(1) or examine(*given, **more))
    return looked


def test_the_same_input_is_recognised_and_summed_up_as_if_it_had_been_computed(job, steps, monkeypatch):
    first, files, charged = job.run(), job.files(), job.charged()
    again = job.run()
    assert len(steps) == 1
    assert "nothing was computed again" in again.notes[0]
    (job.folder / NOTED).unlink()
    computed = job.run()
    assert (len(steps), job.files(), job.charged()) == (2, files, charged)
    ours, theirs = again.as_dict(), computed.as_dict()
    for name in ("seconds", "draws_per_second", "notes", "profile"):
        del ours[name], theirs[name]
    assert ours == theirs
    assert not again.changed
    assert first.changed
    assert [stage["name"] for stage in again.profile] == ["open", "publish", "other"]
    assert job.run().notes == again.notes  # noted by a run that changed nothing, too
    assert len(steps) == 2


def test_another_compression_publishes_the_same_rows_in_new_files_at_no_cost(job, steps):
    first, rows, charged = job.run(), pl.read_parquet(job.part(0)), job.charged()
    again = job.run(compression="none")
    assert (len(steps), again.changed, again.version) == (2, True, first.version + 1)
    assert pq.ParquetFile(job.part(0)).metadata.row_group(0).column(0).compression == "UNCOMPRESSED"
    assert_frame_equal(pl.read_parquet(job.part(0)), rows)
    assert job.charged() == charged
    assert not job.run(compression="none").changed


def test_an_incremental_run_is_recognised(job, steps):
    job.run(incremental=True)
    again = job.run(incremental=True)
    assert len(steps) == 1
    (job.folder / NOTED).unlink()
    computed = job.run(incremental=True)
    assert (again.rows, again.spend, again.gates) == (computed.rows, computed.spend, computed.gates)
    assert again.rows["already_published"] == 240
    with Ledger.open(job.folder / "ledger.db") as ledger:
        ledger.people.forget("reviews", pa.array(["r00245"]), pa.array([], pa.string()))
    save_table(make_reviews(250), job.folder / "raw.parquet")
    first, again = job.run(incremental=True), job.run(incremental=True)
    assert (len(steps), first.rows["forgotten"]) == (3, 1)
    (job.folder / NOTED).unlink()
    assert again.rows == job.run(incremental=True).rows


def test_a_changed_text_is_noticed_though_size_and_times_are_the_same(job, steps):
    """Anyone who edits a file in place and sets back its times changes a text under a known id all the same."""
    job.values["source"] = str(save_table(make_reviews(), job.folder / "raw.csv"))
    path = job.folder / "raw.csv"
    job.run()
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b"wordab", b"wordac", 1))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    with pytest.raises(InputError, match="the texts of 1 record changed"):
        job.run()
    assert len(steps) == 2


def test_new_files_rows_and_kept_values_are_noticed(job, steps):
    folder = job.folder / "raw"
    save_table(make_reviews(100), folder / "a.parquet")
    job.values["source"] = str(folder)
    job.run()
    save_table(make_reviews(20, first=100), folder / "b.parquet")
    assert job.run().rows["new"] == 20
    save_table(make_reviews(20, first=100).with_columns(stars=pl.lit(9, pl.Int64)), folder / "b.parquet")
    assert job.run().changed
    assert len(steps) == 3


@pytest.mark.parametrize("change", quick([{"keep": None}, {"shard_rows": 50}, {"min_released": 0.1}]))
def test_another_policy_is_another_run(released, steps, change):
    released.run(**change)
    assert len(steps) == 1


def test_what_was_published_is_looked_at(released, steps):
    files = released.files()
    released.part(1).write_bytes(b"damaged")
    assert "1 damaged" in released.run().notes[0]
    assert released.files() == files
    (released.folder / "published.manifest.json").unlink()
    assert released.run().version == 1
    assert len(steps) == 2
    shutil.rmtree(released.folder / "published")  # the published folder is fixed, too
    released.run()
    assert (released.files(), len(steps)) == (files, 3)


def test_a_revoked_release_stays_revoked(released, steps):
    with Ledger.open(released.folder / "ledger.db") as ledger:
        ledger.releases.revoke_name("reviews", "2026-11", "a test")
    with pytest.raises(LedgerError, match="revoked"):
        released.run()


def test_a_forgotten_record_is_taken_out_of_an_unchanged_source(released, steps):
    with Ledger.open(released.folder / "ledger.db") as ledger:
        ledger.people.forget("reviews", pa.array(["r00050"]), pa.array([], pa.string()))
    again = released.run()
    assert (again.rows["forgotten"], again.published_rows, len(steps)) == (1, 239, 1)


def test_records_over_the_cap_are_asked_for_again_where_they_may_fit(job, steps):
    """A balance may have become smaller since: reservations of another run were given back."""
    entries = {"cap": {"measure": "pure", "epsilon": 40.0, "period": "2026"}, "min_released": 0.0}
    first = job.run(**entries)
    assert first.rows["quarantined"]
    assert first.rows["new"]
    again = job.run(**entries)
    assert len(steps) == 1, "nothing is computed again"
    assert (again.rows["quarantined"], again.rows["replayed"]) == (first.rows["quarantined"], first.rows["new"])
    assert not again.changed
    with Ledger.open(job.folder / "ledger.db") as ledger:
        ledger.people.forget("reviews", pa.array(["r00000"]), pa.array([], pa.string()))
    job.run(**entries)
    assert len(steps) == 2


def test_a_file_that_changed_while_it_was_read_is_not_noted(job, steps, monkeypatch):
    path, raw = job.folder / "raw.parquet", make_reviews()
    published = local.LocalEngine.compute

    def changed(*given):
        done = published(*given)
        raw.head(10).write_parquet(path)
        raw.write_parquet(path)  # the same bytes at the end
        return done

    monkeypatch.setattr(local.LocalEngine, "compute", changed)
    job.run()
    assert not (job.folder / NOTED).exists()


def test_a_file_that_is_gone_when_the_run_has_published_is_not_noted(released, steps):
    source = released.folder / "raw.parquet"
    save_table(make_reviews(250), source)
    kept = source.read_bytes()
    summary = run(released.policy(), checkpoint=lambda name: source.unlink() if name == "shown" else None)
    assert summary.changed
    assert not (released.folder / NOTED).exists()
    source.write_bytes(kept)
    assert not released.run().changed
    assert len(steps) == 2


def test_a_run_that_fails_reads_no_file_to_its_end_and_notes_nothing(job, monkeypatch):
    read = list[str]()
    monkeypatch.setattr(Input, "_digest", lambda self, path: self._stopped.wait(600) and read.append(path))
    assert job.stop("checked")
    assert read == [str(job.folder / "raw.parquet")]
    assert not (job.folder / NOTED).exists()


def test_a_file_that_nobody_asks_for_any_more_has_no_hash(job):
    attempt = Attempt.of(job.policy(), None)
    source = Input.of(attempt, local.LocalEngine().files(attempt.layout), str)
    source._stopped.set()
    with pytest.raises(InputError, match="is not needed"):
        _ = source.seal


def test_a_note_that_is_damaged_or_of_another_version_is_no_note(released, steps):
    path = released.folder / NOTED
    facts = json.loads(path.read_text())
    assert path.stat().st_mode & 0o777 == 0o600
    part = {name: fact for name, fact in facts.items() if name != "admitted"}
    others = part, {**facts, "version": 0}, {**facts, "seal": "0" * 64}
    for damaged in ("", "[]", *map(json.dumps, others)):
        path.write_text(damaged)
        released.run()
    assert (len(steps), pl.read_parquet(released.folder / "raw.parquet").height) == (5, 240)
