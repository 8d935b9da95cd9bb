"""Shards are bounded by rows and by bytes."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl.runner.source.cutting import Cutter


def plainly(sizes, rows, size):
    """Where shards begin, row by row."""
    found, count, total = [], 0, 0
    for at, one in enumerate(sizes):
        if count and (count == rows or total + one > size):
            found.append(at)
            count = total = 0
        count, total = count + 1, total + one
    return found


@given(
    st.lists(st.integers(0, 40), max_size=60),
    st.integers(1, 9),
    st.integers(1, 90),
    st.lists(st.integers(0, 60), max_size=4),
)
def test_shards_end_where_a_plain_loop_ends_them(sizes, rows, size, pauses):
    cutter, found, ends = Cutter(rows, size), [], [0, *sorted(min(at, len(sizes)) for at in pauses), len(sizes)]
    for first, last in pairwise(ends):
        found += [first + at for at in cutter.begins(np.array(sizes[first:last], dtype=np.int64))]
    assert found == plainly(sizes, rows, size)
