"""Columns come back as they went in, whatever rule was found for them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl.column import INFINITE
from dptext_etl.errors import LedgerError
from dptext_etl.ledger.storage.segments import decode, encode

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


@pytest.mark.parametrize("blob", [None, b"", b"x" * 31])
def test_a_blob_of_another_length_is_refused(blob):
    with pytest.raises(LedgerError, match="has other rows than its event states"):
        decode({"bytes": 32}, blob, 1, {})
