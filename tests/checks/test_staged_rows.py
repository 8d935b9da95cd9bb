"""Rows of a staged part, whether its canary rows stand among them or beside them."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from dptext_etl.checks import CANARY, staged_rows
from dptext_etl.checks.staged_rows import (
    apart,
    batches,
    canaries_beside,
    canary_rows,
    count,
    other_rows,
    schema,
    together,
    whole,
    with_id,
)


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


@given(st.lists(st.sampled_from([True, False, None]), max_size=12))
def test_rows_are_chosen_by_mark_and_id_whatever_is_missing(marks):
    rows = frame(marks).with_columns(pl.when(pl.int_range(pl.len()) % 3 > 0).then("id").alias("id"))
    assert_frame_equal(canary_rows(rows), rows.filter(pl.col(CANARY)))
    assert_frame_equal(other_rows(rows), rows.filter(~pl.col(CANARY).fill_null(value=False)))
    assert_frame_equal(with_id(rows, "id"), rows.filter(pl.col("id").is_not_null()))


def test_canary_rows_of_many_parts_come_together_and_last(tmp_path, monkeypatch):
    monkeypatch.setattr(staged_rows, "BATCH_ROWS", 5)
    parts, every = [], []
    for number, width in enumerate([2, 2, 2, 1]):
        path, rows = tmp_path / f"shard-{number}.parquet", frame([True] * width + [False] * 4)
        every.append(rows)
        rows, canaries = apart(rows)
        if number == 2:  # another type: it cannot stand in one table with the others
            canaries = canaries.with_columns(pl.col("kept").cast(pl.Int64))
        canaries.write_parquet(canaries_beside(path))
        rows.write_parquet(path)
        parts.append(path)
    seen = list(batches(*parts))
    assert [batch.height for batch in seen] == [4, 4, 4, 4, 4, 2, 1]
    assert [batch[CANARY].any() for batch in seen] == [False] * 4 + [True] * 3
    assert sorted(pl.concat(batch["id"] for batch in seen)) == sorted(pl.concat(rows["id"] for rows in every))
