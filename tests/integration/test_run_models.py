"""Runs of mechanisms that may give other bytes next time: the first commit is the release, staging replays it."""

import polars as pl
import pytest

from dptext_etl.errors import LedgerError
from tests.quick import quick

from ..toy_mechanisms import toys  # noqa: F401  (a fixture)


@pytest.fixture
def fickle(make_job, toys):  # noqa: F811
    column = [{"name": name, "mechanism": {"name": "fickle", "epsilon": 2.0}} for name in ("review", "note")]
    job = make_job("fickle", column=column)
    job.scored = toys["fickle"].scored
    return job


def charged(job):
    with job.ledger() as ledger:
        assert ledger.verify().ok
        return [(row["committed"], row["diverged"], row["expired"]) for row in ledger.reports.show()]


def test_a_second_run_scores_nothing_and_gives_the_same_bytes(fickle):
    first = fickle.run()
    assert sum(fickle.scored) == 2 * (240 + 2 * 6), "canary rows are computed twice"
    files, before = fickle.files(), charged(fickle)
    fickle.scored.clear()
    second = fickle.run()
    assert fickle.scored == []
    assert (first.changed, second.changed) == (True, False)
    assert second.rows["replayed"] == 240
    assert fickle.files() == files
    assert charged(fickle) == before


def test_it_is_free_wherever_the_rows_stand(fickle, save):
    fickle.run()
    texts = dict(fickle.published().select("id", "review").iter_rows())
    fickle.scored.clear()
    raw = pl.read_parquet(fickle.folder / "raw.parquet").sample(fraction=1, shuffle=True, seed=1)
    save(raw.with_columns(stars=pl.col("stars") * 10), fickle.folder / "raw.parquet")
    summary = fickle.run(shard_rows=70)
    assert summary.version == 2
    assert dict(fickle.published().select("id", "review").iter_rows()) == texts
    assert sum(fickle.scored) == 2 * 2 * 2, "the canary rows of a fourth shard are new"


def test_new_rows_alone_are_scored(fickle, reviews, save):
    fickle.run()
    texts = dict(fickle.published().select("id", "note").iter_rows())
    fickle.scored.clear()
    save(pl.concat([reviews(30, 240), reviews(240)]), fickle.folder / "raw.parquet")
    summary = fickle.run()
    assert summary.rows["new"] == 30
    assert sum(fickle.scored) == 2 * 30
    now = dict(fickle.published().select("id", "note").iter_rows())
    assert {name: now[name] for name in texts} == texts


@pytest.mark.parametrize(
    "step", quick(["staged", "committed", "recorded", "computed", "gated", "parts written", "cleared"], first=3)
)
@pytest.mark.parametrize("times", quick([1, 3]))
def test_a_run_that_stops_goes_on_with_what_was_committed(fickle, step, times):
    fickle.stop(step, times)
    assert fickle.run().rows["released"] == 240
    assert all(found == (240 + 6, 0, 0) for found in charged(fickle))


def test_without_what_staging_kept_nothing_else_is_published(fickle):
    fickle.run()
    fickle.forget_that_nothing_changed()
    files = fickle.files()
    for kept in (fickle.folder / "published.staging").rglob("kept-*"):
        kept.unlink()
    with pytest.raises(LedgerError, match="gave other bytes") as caught:
        fickle.run()
    assert "kept" in caught.value.hint
    assert fickle.files() == files


def test_a_kept_file_that_was_changed_is_not_believed(fickle):
    fickle.run()
    fickle.forget_that_nothing_changed()
    files = fickle.files()
    for kept in (fickle.folder / "published.staging").rglob("kept-*.parquet"):
        table = pl.read_parquet(kept)
        table.with_columns(review=pl.lit("changed")).write_parquet(kept)
    with pytest.raises(LedgerError, match="gave other bytes"):
        fickle.run()
    assert fickle.files() == files


def test_tables_keep_nothing(job):
    job.run()
    assert not list((job.folder / "published.staging").rglob("kept-*"))
