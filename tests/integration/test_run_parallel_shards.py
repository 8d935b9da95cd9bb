"""Shards in parallel: the bytes and charges of one after the other, one thread at the ledger, errors of the first."""

import json
import sqlite3
import threading

import pytest

from dptext_etl import run
from dptext_etl.engines.local import ParallelShards, shards_at_once, turns
from dptext_etl.errors import InputError, LedgerError
from tests.quick import quick


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
        assert job.files() == one_after_the_other.files()
        assert job.charged() == one_after_the_other.charged()
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
    """Work that takes its turns like a shard, and notes what was done."""

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
