"""What may change between runs and what may not: texts, new rows, kept values, settings, revoked names, bytes."""

from pathlib import Path

import polars as pl
import pytest

from dptext_etl.engines import stage
from dptext_etl.errors import GateError, InputError, LedgerError, PolicyError
from dptext_etl.families.stored_distributions import TableMechanism
from dptext_etl.ledger import Scope
from dptext_etl.mechanism import Released
from dptext_etl.runner import check, publish, scan_published


def used(job):
    with job.ledger() as ledger:
        assert ledger.verify().ok
        return ledger.remaining(Scope.of(job.policy())).used


def test_changed_data_under_a_new_release_name(released, reviews, save):
    first = released.published()
    save(reviews().with_columns(review=pl.col("review") + " good"), released.folder / "raw.parquet")
    summary = released.run(release="2026-12")
    assert summary.version == 2
    assert summary.rows["new"] == 240
    assert released.published()["review"].to_list() != first["review"].to_list()
    assert len(list((released.folder / "published.versions/v1").iterdir())) == 3, "slow readers of the version before"


def test_incremental_takes_new_ids_only(job, reviews, save):
    first = job.run(incremental=True)
    assert first.version == 1
    save(reviews(300), job.folder / "raw.parquet")
    second = job.run(incremental=True)
    assert (second.version, second.rows["already_published"], second.rows["new"]) == (2, 240, 60)
    assert second.published_rows == 300
    assert job.published()["id"].to_list() == reviews(300)["id"].to_list()
    assert sorted(path.name for path in (job.folder / "published.versions").iterdir()) == ["v1", "v2"]
    before = sorted((job.folder / "published.versions/v1").iterdir())
    now = sorted((job.folder / "published").iterdir())
    assert [path.name for path in before] == [path.name for path in now[:3]]
    assert all(map(Path.samefile, before, now)), "parts that stay are further names of the same files"
    assert len(now) == 4
    third = job.run(incremental=True)
    assert not third.changed
    assert third.rows["already_published"] == 300
    assert "no new rows" in third.notes[0]
    with job.ledger() as ledger:
        assert ledger.verify().ok


def test_incremental_looks_at_texts_that_it_has_published(job, reviews, save):
    job.run(incremental=True)
    save(reviews(260).with_columns(review=pl.col("review") + " good"), job.folder / "raw.parquet")
    with pytest.raises(InputError, match="texts of 240 records changed"):
        job.run(incremental=True)
    summary = job.run(incremental=True, on_changed="keep")
    assert (summary.rows["new"], summary.rows["changed_kept"]) == (20, 240)
    assert "240 records changed" in " ".join(summary.notes)


def test_the_same_rows_in_one_go_and_incrementally(make_job, reviews, save):
    one, two = make_job("one", frame=reviews(300)), make_job("two")
    one.run()
    two.run(incremental=True)
    save(reviews(300), two.folder / "raw.parquet")
    two.run(incremental=True)
    assert one.published().equals(two.published())
    whole = two.run()
    assert (whole.version, whole.rows["new"]) == (3, 0)
    assert one.published().equals(two.published())


def test_a_publication_in_between_is_noticed(job, reviews, save):
    job.run(incremental=True)
    save(reviews(300), job.folder / "raw.parquet")
    staged = stage(job.policy(incremental=True))
    verdicts = check(staged)
    (job.folder / "published.manifest.json").unlink()
    with pytest.raises(PolicyError, match="another run has published here"):
        publish(staged, verdicts)


def test_partitions(make_job, reviews, save):
    job = make_job()
    for at, name in enumerate(("2026-01", "2026-02")):
        save(reviews(120, 120 * at), job.folder / "raw" / f"{name}.parquet")
    paths = {"source": str(job.folder / "raw/{partition}.parquet"), "sink": str(job.folder / "published/{partition}")}
    from dptext_etl import run

    policy = job.policy(**paths)
    for name in ("2026-01", "2026-02"):
        summary = run(policy, partition=name)
        assert (summary.partition, summary.version, summary.rows["released"]) == (name, 1, 120)
    whole = make_job("whole")
    whole.run()
    parts = [scan_published(str(job.folder / "published" / name)).collect() for name in ("2026-01", "2026-02")]
    assert pl.concat(parts).equals(whole.published())
    with job.ledger() as ledger:
        assert ledger.verify().ok
        assert ledger.reports.show()[0]["published"][0]["version"].startswith("2026-01/v1")
    with pytest.raises(PolicyError, match="no partition was named"):
        run(policy)
    with pytest.raises(PolicyError, match="no place for it"):
        run(job.policy(), partition="2026-01")
    with pytest.raises(PolicyError, match="partition's name"):
        run(policy, partition="../other")


def passing_through(self, texts, keys):
    """A defect: raw texts come back."""
    return Released(texts.cast("large_string"), self.positions(texts))


def test_what_was_published_before_a_gate_fired_stays(job, monkeypatch, reviews, save):
    job.run(incremental=True)
    before = job.files()
    save(reviews(300), job.folder / "raw.parquet")
    with monkeypatch.context() as patch:
        patch.setattr(TableMechanism, "release", passing_through)
        with pytest.raises(GateError):
            job.run(incremental=True)
    assert job.files() == before


def test_other_bytes_on_a_second_computation_are_not_published(released, monkeypatch):
    before = released.files()
    real = TableMechanism.release

    def drifting(self, texts, keys):
        released = real(self, texts, keys)
        return Released(released.text.take([*range(1, len(released.text)), 0]), released.positions)

    monkeypatch.setattr(TableMechanism, "release", drifting)
    (released.folder / "published.staging/reviews/2026-11/_/unchanged.json").unlink()  # else nothing would be computed
    with pytest.raises(LedgerError, match="gave other bytes"):
        released.run()
    assert released.files() == before
    assert not list((released.folder / "published.staging").rglob("shard-*"))
    monkeypatch.undo()
    assert released.run().notes[0].startswith("already published")
