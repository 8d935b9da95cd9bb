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
from dptext_etl.engines import local
from dptext_etl.engines.local import shards_at_once
from dptext_etl.errors import InputError, LedgerError
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.shard import charging as cutting
from dptext_etl.runner.shard.shard import Shards
from dptext_etl.runner.source.examine import examine
from dptext_etl.runner.source.roles import open_table
from tests.quick import quick


def test_shards_are_bounded_whatever_is_read_at_a_time(job, monkeypatch):
    policy = job.policy(shard_rows=50, shard_bytes=2_000)
    frame = pl.scan_parquet(job.folder / "raw.parquet").select("id", "stars", "review", "note", "user_id")
    cut = [shard["id"].to_list() for shard in cutting.pieces(frame, *cutting.bounds(policy))]
    assert cutting.count_shards(frame, policy) == len(cut) > 240 / 50
    assert [one for ids in cut for one in ids] == frame.collect()["id"].to_list()
    monkeypatch.setattr(cutting, "READ_ROWS", 7)
    monkeypatch.setattr(cutting, "COUNT_ROWS", 11)
    assert [shard["id"].to_list() for shard in cutting.pieces(frame, *cutting.bounds(policy))] == cut
    assert cutting.count_shards(frame, policy) == len(cut)
    size = size_of(frame.collect_schema())
    assert all(shard.select(size)["size"].sum() <= 2_000 for shard in cutting.pieces(frame, *cutting.bounds(policy)))


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
    rows = cutting.kept_rows(frame)
    assert_frame_equal(rows.lazy(), frame)
    assert cutting.kept_rows(frame.head(0)).schema == frame.collect_schema()


@pytest.mark.parametrize(("name", "least"), [("KEPT_BYTES", 0), ("KEPT_ROWS", 0)])
def test_rows_of_a_large_source_are_read_again(job, monkeypatch, name, least):
    monkeypatch.setattr(cutting, name, least)
    policy = job.policy(shard_rows=50, per_subject=None, incremental=False)
    layout = Layout.of(policy)
    table = open_table(policy, layout)
    assert examine(table, policy, layout).rows is table.frame


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
    monkeypatch.setattr(local, "count_shards", lambda *_: 2)
    with pytest.raises(InputError, match="other lengths"):
        job.run(shard_rows=100)


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


class Steps(Shards):
    """Shards that note when they are charged and committed, and fail on request."""

    def __init__(self, failing=()):
        self.done, self.failing, self.ended = [], set(failing), []

    def note(self, step, index):
        self.done.append((step, index))
        if (step, index) in self.failing:
            raise LedgerError(f"{step} {index}")

    def prepare(self, index, raw, *, sealed):
        return sealed

    def begin(self, index, raw, prepared, phase):
        self.note("reserve", index)
        return index

    def draw(self, begun):
        if ("compute", begun) in self.failing:
            raise LedgerError(f"compute {begun}")

    def end(self, begun, _drawn):
        self.note("commit", begun)
        self.ended.append(begun)
        return begun

    def go(self, frames, width):
        return list(self.results(frames, "release", width))


def turns(numbers, width):
    for at in range(len(numbers) + width - 1):
        if at < len(numbers):
            yield "reserve", numbers[at]
        if at >= width - 1:
            yield "commit", numbers[at - width + 1]


@pytest.mark.parametrize("width", [1, 2, 3, 5, 8])
def test_shards_are_charged_and_committed_in_one_order_whichever_is_faster(width):
    numbers, steps = range(3, 11), Steps()
    assert steps.go(((index, None) for index in numbers), width) == list(numbers)
    assert steps.done == list(turns(numbers, width))


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("step", ["reserve", "compute", "commit"])
def test_shards_before_one_that_fails_end_and_those_after_it_stop(width, step):
    steps = Steps(failing=[(step, 4), (step, 5)])
    with pytest.raises(LedgerError, match=f"{step} 4"):
        steps.go(((index, None) for index in range(12)), width)
    assert steps.ended == [0, 1, 2, 3]
    assert not {("commit", index) for index in range(5, 12)} & set(steps.done)
    begun = [index for name, index in steps.done if name == "reserve"]
    assert max(begun) == (4 if step == "reserve" else 4 + width - 1), "none is charged after a refusal"


def test_a_source_that_cannot_be_read_on_lets_charged_shards_end():
    def frames():
        yield 0, None
        yield 1, None
        raise InputError("gone")

    steps = Steps()
    with pytest.raises(InputError, match="gone"):
        steps.go(frames(), 3)
    assert steps.ended == [index for step, index in steps.done if step == "reserve"] == [0]
