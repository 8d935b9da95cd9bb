"""Shards of a run are bounded by rows and bytes; every attempt cuts the same ones, in parallel with the same bytes."""

import json
import sqlite3
import threading

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from dptext_etl import run
from dptext_etl.checks import canaries as canary_sets
from dptext_etl.data_types import size_of
from dptext_etl.engines.local import ParallelShards, shards_at_once, turns
from dptext_etl.errors import InputError, LedgerError
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
    size = size_of(frame.collect_schema())
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


@pytest.fixture
def one_after_the_other(make_job, monkeypatch):
    monkeypatch.setenv("DPTEXT_THREADS", "1")
    job = make_job("alone")
    job.run(shard_rows=30)
    return job


def events(job):
    """Kinds, releases and rows of all events, in the order of the ledger; nothing that two ledgers do not share."""
    with sqlite3.connect(job.folder / "ledger.db") as ledger:
        found = [(kind, json.loads(body)) for kind, body in ledger.execute("select kind, body from event order by seq")]
    return [(kind, body.get("rows"), json.dumps(body.get("release"))) for kind, body in found]


@pytest.mark.parametrize("threads", quick(["4", "2"]))
def test_bytes_charges_and_ledger_are_those_of_one_after_the_other(one_after_the_other, make_job, monkeypatch, threads):
    monkeypatch.setenv("DPTEXT_THREADS", threads)
    jobs = [make_job("one"), make_job("two")]
    seen = []
    for job in jobs:
        run(job.policy(shard_rows=30), checkpoint=lambda name: seen.append(threading.get_ident()))
        assert (job.files(), job.charged()) == (one_after_the_other.files(), one_after_the_other.charged())
        with job.ledger() as ledger:
            assert ledger.verify().ok
    assert events(jobs[0]) == events(jobs[1]), "the order follows from the number of shards at a time"
    assert sorted(events(jobs[0])) == sorted(events(one_after_the_other))
    reserved = [body for kind, *body in events(jobs[0]) if kind == "RESERVE"]
    assert reserved == [body for kind, *body in events(one_after_the_other) if kind == "RESERVE"]
    assert set(seen) == {threading.get_ident()}, "one thread has the ledger"


def test_a_text_that_changed_stops_a_run_and_charges_nothing_twice(make_job, monkeypatch, reviews, save):
    monkeypatch.setenv("DPTEXT_THREADS", "3")
    job = make_job("changed")
    save(reviews(rows=90), job.folder / "raw.parquet")
    job.run(shard_rows=30)
    changed = reviews(rows=240).with_columns(review=reviews(rows=240)["review"].shift(1))
    save(reviews(rows=45).vstack(changed[45:]), job.folder / "raw.parquet")
    with pytest.raises(InputError, match="45 records changed"):
        job.run(shard_rows=30)
    save(reviews(), job.folder / "raw.parquet")
    assert job.run(shard_rows=30).rows["released"] == 240
    with job.ledger() as ledger:
        assert ledger.verify().ok


def test_mechanisms_whose_draws_are_given_back_go_one_after_the_other(job, monkeypatch):
    monkeypatch.setenv("DPTEXT_THREADS", "8")
    policy = job.policy()
    assert shards_at_once(policy) == 4
    kind = type(policy.columns[0].mechanism)
    monkeypatch.setattr(kind, "refundable", True)
    assert shards_at_once(policy) == 1
    assert shards_at_once(job.policy(cap=None)) == 4
    monkeypatch.setattr(kind, "reproducible", False)
    assert shards_at_once(job.policy(cap=None)) == 1


class Steps:
    """Work that waits for its turns like a shard, and notes its steps."""

    def __init__(self, numbers, width, failing=()):
        self.shards, self.done, self.ended, self.failing = ParallelShards(numbers, width), [], [], set(failing)
        self.begun = []

    def note(self, step, index):
        self.done.append((step, index))
        if (step, index) in self.failing:
            raise LedgerError(f"{step} {index}")

    def work(self, index, _):
        self.begun.append(index)
        self.shards.run("reserve", index, lambda: self.note("reserve", index))
        self.shards.run(None, index, lambda: None)
        if ("compute", index) in self.failing:
            raise LedgerError(f"compute {index}")
        if ("skip", index) not in self.failing:
            self.shards.run("commit", index, lambda: self.note("commit", index))
        return index

    def go(self, frames):
        self.shards.each(iter(frames), self.work, self.ended.append)


@pytest.mark.parametrize("width", [1, 2, 3, 5, 8])
def test_turns_come_in_one_order_whoever_is_faster(width):
    numbers = range(3, 11)
    steps = Steps(numbers, width)
    steps.go((index, None) for index in numbers)
    assert steps.done == list(turns(numbers, width))
    assert sorted(steps.ended) == list(numbers)


@pytest.mark.parametrize("width", [2, 3])
def test_shards_without_a_turn_and_shards_that_never_come_stop_nobody(width):
    steps = Steps(range(6), width, failing=[("skip", 1), ("skip", 2)])
    steps.go((index, None) for index in range(4))
    assert sorted(steps.ended) == [0, 1, 2, 3]
    assert [index for step, index in steps.done if step == "commit"] == [0, 3]


@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize("step", ["reserve", "compute", "commit"])
def test_shards_before_one_that_fails_end_and_those_after_it_stop(width, step):
    steps = Steps(range(12), width, failing=[(step, 4), (step, 5)])
    with pytest.raises(LedgerError, match=f"{step} 4"):
        steps.go((index, None) for index in range(12))
    assert sorted(steps.ended) == [0, 1, 2, 3]
    assert not {("commit", index) for index in range(5, 12)} & set(steps.done)
    if step == "reserve":
        assert not {("reserve", index) for index in range(5, 12)} & set(steps.done), "none is charged after a refusal"
    assert max(steps.begun) <= 4 + width


def test_a_source_that_cannot_be_read_on_lets_shards_end():
    def frames():
        yield 0, None
        yield 1, None
        raise InputError("gone")

    steps = Steps(range(5), 3)
    with pytest.raises(InputError, match="gone"):
        steps.go(frames())
    assert sorted(steps.ended) == [0, 1]


def test_who_interrupts_a_run_waits_for_no_turn():
    steps = Steps(range(9), 3)

    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        steps.shards.each(((index, None) for index in range(9)), steps.work, interrupt)
