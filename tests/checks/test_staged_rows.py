"""Rows of a staged part, whether its canary rows stand among them or beside them."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from dptext_etl.checks import CANARY, staged_rows
from dptext_etl.checks.staged_rows import apart, batches, canaries_beside, count, schema, together, whole


def frame(marks):
    kept = pl.Series("kept", [None if mark else at for at, mark in enumerate(marks)], dtype=pl.Int32)
    ids = pl.Series("id", [f"r{at}" for at in range(len(marks))], dtype=pl.String)
    return pl.DataFrame([ids, kept, pl.Series(CANARY, marks, dtype=pl.Boolean)])


@given(st.lists(st.booleans(), max_size=30))
def test_what_is_put_apart_comes_together_in_the_same_order(marks):
    rows, canaries = apart(frame(marks))
    assert CANARY not in rows.columns
    assert (rows.height, canaries.height) == (marks.count(False), marks.count(True))
    assert_frame_equal(together(rows, canaries), frame(marks))


@pytest.fixture(params=["among", "beside"])
def part(request, tmp_path):
    """A part with eight rows, three of them canary rows."""
    path, rows = tmp_path / "shard.parquet", frame([True, False, False, True, False, False, False, True])
    if request.param == "beside":
        rows, canaries = apart(rows)
        canaries.write_parquet(canaries_beside(path))
    rows.write_parquet(path)
    return path


def test_both_ways_of_staging_read_alike(part, monkeypatch):
    monkeypatch.setattr(staged_rows, "BATCH_ROWS", 2)
    every = frame([True, False, False, True, False, False, False, True])
    assert_frame_equal(whole(part), every)
    assert schema(part) == every.schema
    assert count(part) == every.height
    seen = list(batches(part))
    assert max(batch.height for batch in seen) <= 3, "two rows, or the canary rows"
    assert_frame_equal(pl.concat(seen).sort("id"), every.sort("id"))


def test_a_part_that_lost_its_canary_rows_has_no_mark(part):
    canaries_beside(part).unlink(missing_ok=True)
    assert (CANARY in schema(part)) == (CANARY in pl.read_parquet_schema(part))
