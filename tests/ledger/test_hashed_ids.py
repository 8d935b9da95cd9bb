"""Ids that are looked for among others, and sums by id: as a dictionary says, also where ids share their first half."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl.ledger.storage.hashed_ids import SATURATED, HashedIds, WantedIds, fold

from ..examples import examples

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
    assert [distinct[at] for at in found.places_as_passed()] == wanted
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
