"""Rows of staged shards: read in batches, and chosen by their mark and id."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from dptext_etl.checks import CANARY, gate
from dptext_etl.checks.gate import batches, canary_rows, count, other_rows, with_id


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
