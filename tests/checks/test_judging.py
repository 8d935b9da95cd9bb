"""Gates look at batches of staged rows side by side; those that ask the ledger stay in its thread."""

import threading

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from dptext_etl.checks import CANARY, comparison, gate
from dptext_etl.checks import gate as judging
from dptext_etl.checks.comparison import LedgerComparison, TextDigests
from dptext_etl.checks.gate import Gate, batches, canary_rows, count, other_rows, with_id

BATCHES = [pl.DataFrame({"id": [number]}) for number in range(5)]


class Watching(Gate):
    """Notes which batches it saw, and in which threads."""

    def __init__(self, barrier=None):
        self.seen_batches, self.places, self.barrier, self.state = [], set(), barrier, {}

    def rows(self, batch):
        if self.barrier is not None:
            self.barrier.wait(timeout=600)
        self.seen_batches.append(batch["id"][0])
        self.places.add(threading.get_ident())

    def verdict(self):
        raise NotImplementedError


class Asking(Watching):
    def __init__(self):
        super().__init__()
        self.state = {"cells": LedgerComparison(None)}


@pytest.mark.parametrize("threads", [1, 2])
def test_every_gate_sees_every_batch_in_order_in_the_right_thread(monkeypatch, threads):
    monkeypatch.setattr(judging, "threads", lambda: threads)
    together = threading.Barrier(2) if threads == 2 else None  # two gates look at a batch at once, or no one passes
    others, asking, rows = [Watching(together), Watching(together)], Asking(), []
    judging.feed([others[0], asking, others[1]], iter(BATCHES), rows.append)
    assert ([gate.seen_batches for gate in (*others, asking)], rows) == ([[0, 1, 2, 3, 4]] * 3, [1] * 5)
    here = {threading.get_ident()}
    assert asking.places == here
    assert all((gate.places == here) is (threads == 1) for gate in others)


def test_what_a_gate_raises_ends_the_judgement(monkeypatch):
    monkeypatch.setattr(judging, "threads", lambda: 2)

    class Failing(Watching):
        def rows(self, batch):
            super().rows(batch)
            if batch["id"][0] == 1:
                raise KeyError

    seen, other = [], Watching()
    with pytest.raises(KeyError):
        judging.feed([Failing(), other], iter(BATCHES), seen.append)
    assert seen == [1]
    assert other.seen_batches in ([0], [0, 1], [0, 1, 2]), "the next batch may be under way"


def test_gates_share_the_digests_of_the_last_two_batches(monkeypatch):
    hashed, digests = [], comparison._kernel.digests
    monkeypatch.setattr(comparison._kernel, "digests", lambda texts: hashed.append(texts.name) or digests(texts))
    one, two, three = (pl.DataFrame({"a": [text], "b": ["same"]}) for text in "xyz")
    shared = TextDigests()
    first = shared.of(one, "a")
    assert first.equals(pa.array(digests(one["a"])))
    assert shared.of(two, "a") != first
    assert shared.of(one, "a") is first
    assert hashed == ["a", "a"]
    assert shared.of(one, "b").equals(shared.of(three, "b"))
    assert shared.of(one, "a").equals(first)
    assert hashed == ["a", "a", "b", "b", "a"], "no more than two batches are kept"


def frame(marks):
    kept = pl.Series("kept", [None if mark else at for at, mark in enumerate(marks)], dtype=pl.Int32)
    ids = pl.Series("id", [f"r{at}" for at in range(len(marks))], dtype=pl.String)
    return pl.DataFrame([ids, kept, pl.Series(CANARY, marks, dtype=pl.Boolean)])


def test_shards_are_read_in_order_a_few_rows_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(gate, "BATCH_ROWS", 2)
    rows = frame([True, False, False, True, False, False, False, True])
    shards = [tmp_path / "shard-0.parquet", tmp_path / "shard-1.parquet"]
    for shard, half in zip(shards, (rows.head(5), rows.tail(3)), strict=True):
        half.write_parquet(shard)
    seen = list(batches(*shards))
    assert ([count(shard) for shard in shards], max(batch.height for batch in seen)) == ([5, 3], 2)
    assert_frame_equal(pl.concat(seen), rows)


@given(st.lists(st.sampled_from([True, False, None]), max_size=12))
def test_rows_are_chosen_by_mark_and_id_whatever_is_missing(marks):
    rows = frame(marks).with_columns(pl.when(pl.int_range(pl.len()) % 3 > 0).then("id").alias("id"))
    assert_frame_equal(canary_rows(rows), rows.filter(pl.col(CANARY)))
    assert_frame_equal(other_rows(rows), rows.filter(~pl.col(CANARY).fill_null(value=False)))
    assert_frame_equal(with_id(rows, "id"), rows.filter(pl.col("id").is_not_null()))
