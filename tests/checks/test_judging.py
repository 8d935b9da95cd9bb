"""Gates look at batches side by side; those that ask the ledger stay in its thread."""

import threading

import polars as pl
import pyarrow as pa
import pytest

from dptext_etl.checks import comparison
from dptext_etl.checks import gate as judging
from dptext_etl.checks.comparison import LedgerComparison, TextDigests
from dptext_etl.checks.gate import Gate

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
