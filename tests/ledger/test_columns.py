"""Columns come back as they went in; ids are found and summed as a dictionary says, also with equal first halves."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl.column import INFINITE
from dptext_etl.ledger.storage.hashed_ids import SATURATED, HashedIds, WantedIds, fold
from dptext_etl.ledger.storage.journal import decode, encode

from ..examples import examples

numbers = st.lists(st.sampled_from([0, 1, 2, 3, 255, 256, 1 << 33, INFINITE - 1, INFINITE]), min_size=1, max_size=9)


@given(first=numbers, factor=st.sampled_from([0, 1, 7, 2_000_000]))
def test_numbers(first, factor):
    known = {"n": np.array(first, np.int64)}
    small = np.minimum(known["n"], 1 << 33)
    for column in (known["n"], small * factor, small + factor, np.arange(factor, factor + len(first))):
        for others in ({}, known, {"n": small}):
            rule, blob = encode(column, others)
            assert decode(rule, blob, len(column), others).tolist() == column.tolist()


@given(rows=st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=5))
def test_bytes(rows):
    column = np.frombuffer(b"".join(rows), np.uint8).reshape(-1, 32)
    for others in ({}, {"same": column.copy()}, {"other": 255 - column}):
        rule, blob = encode(column, others)
        assert decode(rule, blob, len(rows), others).tobytes() == column.tobytes()


def test_rules_cost_no_bytes():
    words = np.array([3, 1, 4, 1, 5])
    known = {"n_worst": words}
    assert encode(words * 2_000_000, known) == ({"times": 2_000_000, "of": "n_worst"}, None)
    assert encode(np.full(5, INFINITE), known) == ({"all": "inf"}, None)
    assert encode(np.arange(7, 12), known) == ({"from": 7}, None)
    assert encode(np.zeros((5, 32), np.uint8), known) == ({"zero": 32}, None)
    assert encode(words, {}) == ({"raw": "<u1"}, bytes([3, 1, 4, 1, 5]))


# few distinct first halves: collisions in the first 64 bits are the rule here
ids = st.tuples(st.sampled_from([0, 1, 5, 1 << 63, (1 << 64) - 1]) | st.integers(0, (1 << 64) - 1), st.integers(0, 3))


def hashed(pairs):
    return HashedIds(*(np.array([pair[half] for pair in pairs], np.uint64) for half in (0, 1)))


def pairs_of(ids):
    return list(zip(ids.hi.tolist(), ids.lo.tolist(), strict=True))


@examples(200)
@given(wanted=st.lists(ids, max_size=40), others=st.lists(ids, max_size=80))
def test_ids_are_found_where_they_are(wanted, others):
    found = WantedIds(hashed(wanted))
    distinct = list(dict.fromkeys(wanted))
    assert (len(found), found.repeated) == (len(distinct), len(wanted) - len(distinct))
    assert [distinct[at] for at in found.places_as_passed] == wanted
    rows, places = found.find(hashed(others))
    assert [(row, distinct[at]) for row, at in zip(rows.tolist(), places.tolist(), strict=True)] == [
        (row, pair) for row, pair in enumerate(others) if pair in set(wanted)
    ]
    at = found.places(hashed(others))
    assert (at is None) == (not set(others) <= set(wanted))
    assert at is None or [distinct[place] for place in at] == others


@examples(100)
@given(entries=st.lists(st.tuples(ids, st.integers(-(1 << 62), (1 << 62) - 1)), max_size=40))
def test_sums_by_id_are_exact_up_to_the_largest(entries):
    expected = {}
    for pair, value in entries:
        expected[pair] = expected.get(pair, 0) + value
    part = fold(hashed([pair for pair, _ in entries]), np.array([[value for _, value in entries]], np.int64))
    assert pairs_of(part.ids) == list(expected)
    assert part.values[0].tolist() == [max(-SATURATED, min(SATURATED, expected[pair])) for pair in expected]
