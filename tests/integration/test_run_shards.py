"""Shards of a run are bounded by rows and by bytes, and every attempt cuts the same ones."""

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from dptext_etl import run
from dptext_etl.checks import canaries as canary_sets
from dptext_etl.errors import InputError
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.source import cutting
from dptext_etl.runner.source.examine import examine
from dptext_etl.runner.source.roles import open_table
from tests.quick import quick


def test_shards_are_bounded_whatever_is_read_at_a_time(job, monkeypatch):
    policy = job.policy(shard_rows=50, shard_bytes=2_000)
    frame = pl.scan_parquet(job.folder / "raw.parquet").select("id", "stars", "review", "note", "user_id")
    cut = [shard["id"].to_list() for shard in cutting.shards(frame, policy)]
    assert cutting.count(frame, policy) == len(cut) > 240 / 50
    assert [one for ids in cut for one in ids] == frame.collect()["id"].to_list()
    monkeypatch.setattr(cutting, "READ_ROWS", 7)
    monkeypatch.setattr(cutting, "COUNT_ROWS", 11)
    assert [shard["id"].to_list() for shard in cutting.shards(frame, policy)] == cut
    assert cutting.count(frame, policy) == len(cut)
    size = cutting.size_of(frame.collect_schema())
    assert all(shard.select(size)["size"].sum() <= 2_000 for shard in cutting.shards(frame, policy))


def test_a_row_that_is_too_large_is_a_shard_of_its_own_and_runs_go_on(job, reviews, save):
    save(reviews(rows=6), job.folder / "raw.parquet")
    first = job.run(shard_bytes=1)
    assert len(list((job.folder / "published").glob("part-*"))) == first.rows["released"] == 6
    again = job.run(shard_bytes=1)
    assert (again.changed, again.rows["new"]) == (False, 0)
    whole = job.run()
    assert (whole.rows["new"], whole.version) == (0, 2)


@pytest.mark.parametrize(("rows", "size", "sets"), quick([(100, 2_000, 5), (240, 1 << 20, 5), (240, 1 << 20, 1)]))
def test_sets_of_canary_rows_are_spread_over_shards(job, monkeypatch, rows, size, sets):
    """Several in one shard, or one in several: their number follows from the number of rows."""
    monkeypatch.setattr(canary_sets, "SET_ROWS", 240 // sets)
    summary = job.run(shard_rows=rows, shard_bytes=size)
    present = next(gate for gate in summary.gates if gate["name"] == "canary_rows_complete")
    with job.ledger() as ledger:
        canaries = {row["canaries"] for row in ledger.reports.show()}
    assert present["passed"]
    assert canaries == {8 * sets}


def test_rows_of_a_small_source_are_kept_until_they_are_computed(job):
    frame = pl.scan_parquet(job.folder / "raw.parquet").select("id", "review")
    rows = cutting.kept(frame)
    assert_frame_equal(rows.lazy(), frame)
    assert cutting.kept(frame.head(0)).schema == frame.collect_schema()


@pytest.mark.parametrize(("name", "least"), [("KEPT_BYTES", 0), ("KEPT_ROWS", 0)])
def test_rows_of_a_large_source_are_read_again_and_their_shards_counted_with_the_ids(job, monkeypatch, name, least):
    monkeypatch.setattr(cutting, name, least)
    policy = job.policy(shard_rows=50, per_subject=None, incremental=False)
    layout = Layout.of(policy)
    table = open_table(policy, layout)
    source = examine(table, policy, layout, sharded=True)
    assert source.rows is table.frame
    assert source.shards == cutting.count(table.frame, policy) == 5
    assert examine(table, policy, layout).shards is None


def test_shorter_texts_than_were_counted_stop_a_run_before_its_gates(job, reviews, monkeypatch):
    monkeypatch.setattr(cutting, "KEPT_BYTES", 0)
    source = job.folder / "raw.csv"
    reviews(rows=40).select("id", "user_id", "stars", "review", "note").write_csv(source)

    def checkpoint(name):
        if name == "registered":
            source.write_bytes(source.read_bytes().replace(b"word", b"w"))

    with pytest.raises(InputError, match="other lengths"):
        run(job.policy(source=str(source), shard_bytes=500), checkpoint=checkpoint)


def test_longer_texts_than_were_counted_stop_a_run_before_its_gates(job, monkeypatch):
    monkeypatch.setattr(cutting.ShardCount, "shards", 2)
    with pytest.raises(InputError, match="other lengths"):
        job.run()
