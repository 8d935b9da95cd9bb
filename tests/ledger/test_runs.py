"""Sorted runs against a dictionary, with tiny parts, also where ids share their first half."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl.errors import LedgerError
from dptext_etl.ledger.storage import hashed_ids
from dptext_etl.ledger.storage import sorted_runs as module
from dptext_etl.ledger.storage.hashed_ids import BISECTED, Fold, HashedIds, Part, Sieve, matches
from dptext_etl.ledger.storage.part_cache import PartCache
from dptext_etl.ledger.storage.sorted_runs import SortedRuns
from dptext_etl.ledger.storage.store import open_store

from ..examples import examples

# few distinct first halves: collisions in the first 64 bits are the rule here
ids = st.tuples(st.sampled_from([0, 1, 5, 1 << 63, (1 << 64) - 1]) | st.integers(0, (1 << 64) - 1), st.integers(0, 3))
batches = st.lists(st.dictionaries(ids, st.integers(-5, 1 << 40), max_size=40), max_size=12)


def part_of(entries):
    ordered = sorted(entries.items())
    hi, lo = (np.array([key[half] for key, _ in ordered], np.uint64) for half in (0, 1))
    ids = HashedIds(hi, lo)
    return Part(ids, np.array([[value for _, value in ordered]], np.int64).reshape(1, -1))


def drop(runs):
    for run in runs.runs():
        runs._store.execute("delete from run where id=?", (run.id,))
        runs.discard(run)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def store(request, tmp_path_factory):
    if request.param == "sqlite":
        store = open_store(str(tmp_path_factory.mktemp("runs") / "x.db"))
    else:
        store = open_store(request.getfixturevalue("postgres").url())
    yield store
    store.close()


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(module, "PART_KEYS", 4)
    monkeypatch.setattr(module, "FANOUT", 3)


@examples(60)
@given(batches=batches, how=st.sampled_from(list(Fold)), limit=st.sampled_from([0, 200, 1 << 20]))
def test_runs_are_a_dictionary(store, batches, how, limit):
    cache = PartCache(limit)
    runs = SortedRuns(store, cache, "test", 1, how)
    expected = {}
    with store.transaction():
        for batch in batches:
            runs.insert(part_of(batch))
            for key, value in batch.items():
                old = expected.get(key)
                expected[key] = value if old is None else old + value if how is Fold.SUM else max(old, value)
        assert runs.sound()
        asked = dict.fromkeys([*expected, (7, 7), (0, 9)], 0)
        wanted = part_of(asked).ids
        found, values = runs.find(wanted)
        pairs = list(zip(wanted.hi.tolist(), wanted.lo.tolist(), strict=True))
        assert found.tolist() == [pair in expected for pair in pairs]
        assert values[0].tolist() == [expected.get(pair, 0) for pair in pairs]
        listed = [
            ((hi, lo), value)
            for piece in runs.folded()
            for hi, lo, value in zip(*(column.tolist() for column in (*piece.ids, piece.values[0])), strict=True)
        ]
        assert listed == sorted(expected.items())
        halves = [runs.part(1, at) for at in (0, 1)]
        assert sum(half.ids.size for half in halves) == len(expected)
        assert (halves[1].ids.hi >> np.uint64(63) == 1).all()
        assert cache.bytes <= limit
        drop(runs)
        assert runs.runs() == []


@examples(200)
@given(
    seed=st.integers(0, 1 << 32),
    sizes=st.tuples(st.integers(1, 300), st.integers(0, 300)),
    bits=st.sampled_from([3, 8, 64]),
    repeated=st.tuples(st.booleans(), st.booleans()),
    cut=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_a_sieve_finds_what_bisection_finds(seed, sizes, bits, repeated, cut):
    random = np.random.default_rng(seed)
    pool = random.integers(0, 1 << 64, 200, np.uint64) >> np.uint64(64 - bits) << np.uint64(64 - bits)
    wanted, keys = (np.sort(random.choice(pool, size)) for size in sizes)
    wanted, keys = (ids if again else np.unique(ids) for ids, again in zip((wanted, keys), repeated, strict=True))
    begin, end = sorted(round(place * len(wanted)) for place in cut)
    if begin < end:
        found, expected = Sieve(wanted).matches(keys, begin, end), matches(keys, wanted[begin:end])
        assert (found is None) == (expected is None)
        assert found is None or all(map(np.array_equal, found, expected))


def test_a_sieve_takes_the_place_of_bisection_where_runs_are_no_larger_than_batches(monkeypatch):
    keys = np.unique(np.random.default_rng(0).integers(0, 1 << 64, 1000, np.uint64))
    bisected = []
    monkeypatch.setattr(hashed_ids, "matches", lambda keys, wanted: bisected.append(len(wanted)))
    sieve = Sieve(keys[::2])
    places, rows = sieve.matches(keys, 100, 400)
    assert rows.tolist() == list(range(200, 800, 2))
    assert places.tolist() == list(range(300))
    assert not bisected
    few = len(keys) // BISECTED - 1
    assert sieve.matches(keys, 0, few) is None
    assert bisected == [few]


def test_runs_are_few(store):
    runs = SortedRuns(store, PartCache(), "few", 1, Fold.SUM)
    random = np.random.default_rng(0)
    with store.transaction():
        for _ in range(60):
            keys = np.unique(random.integers(0, 1 << 64, 10, dtype=np.uint64))
            runs.insert(Part(HashedIds(keys, keys), np.ones((1, len(keys)), np.int64)))
            assert len(runs.runs()) <= 2 * 7
        assert runs.sound()
        drop(runs)


def test_damage_is_noticed(store):
    runs = SortedRuns(store, PartCache(), "damaged", 1, Fold.SUM)
    keys = np.array([1, 2, 3], np.uint64)
    with store.transaction():
        runs.insert(Part(HashedIds(keys, keys), np.ones((1, 3), np.int64)))
        runs = SortedRuns(store, PartCache(), "damaged", 1, Fold.SUM)  # anyone who wrote them knows what he wrote
        store.execute("update run_part set data=? where piece=0", (keys[::-1].tobytes(),))
        assert not runs.sound()
        store.execute("update run_part set data=? where piece=0", (keys.tobytes(),))
        assert runs.sound()
        store.execute("delete from run_part where piece=1")
        with pytest.raises(LedgerError, match="an index of the ledger is damaged"):
            runs.find(HashedIds(keys, keys))
        store.execute("delete from run_part")
        with pytest.raises(LedgerError, match="an index of the ledger is damaged"):
            runs.find(HashedIds(keys, keys))
        drop(runs)


def test_a_rolled_back_merge_leaves_nothing_behind(store):
    cache = PartCache()
    runs = SortedRuns(store, cache, "rolled back", 1, Fold.SUM)
    keys = np.array([1, 2, 3], np.uint64)
    entry = Part(HashedIds(keys, keys), np.ones((1, 3), np.int64))
    with store.transaction():
        runs.insert(entry)

    def interrupted():
        with store.transaction():
            for _ in range(5):
                runs.insert(entry)
                runs.find(entry.ids)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with store.transaction():
        assert runs.find(entry.ids)[1].tolist() == [[1, 1, 1]]
        cache.keep_only({run.id for run in runs.runs()})
        assert set(cache._runs) <= {run.id for run in runs.runs()}
        drop(runs)
