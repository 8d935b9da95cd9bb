"""Rows whose ids are known are excluded, in bounded memory, whatever the type of the ids and wherever digests lie."""

import datetime as dt
from decimal import Decimal

import numpy as np
import polars as pl
import pytest

from dptext_etl.checks import comparison
from dptext_etl.runner.source import examine as module
from dptext_etl.runner.source.examine import anti_join
from tests.quick import quick

NUMBERS = np.random.default_rng(7).permutation(5_000)
IDS = {
    "string": [f"r{n}" for n in NUMBERS],
    "integer": NUMBERS.tolist(),
    "decimal": [Decimal(int(n)) / 4 for n in NUMBERS],
    "date": [dt.date(2000, 1, 1) + dt.timedelta(days=int(n)) for n in NUMBERS],
    "composite": [{"a": int(n) % 70, "b": str(n // 70)} for n in NUMBERS],
}


@pytest.mark.parametrize("kind", quick(["composite", "string", "integer", "decimal", "date"], first=2))
@pytest.mark.parametrize(("held", "alike"), [(1 << 8, 0), (1 << 8, 1_800), (1 << 25, 700), (1 << 25, 5_000)])
def test_the_others_are_those_of_an_anti_join_in_their_order(monkeypatch, tmp_path, kind, held, alike):
    monkeypatch.setattr(comparison, "HELD_BYTES", held)
    monkeypatch.setattr(module, "BATCH_ROWS", 700)
    rows = pl.DataFrame({"id": IDS[kind], "text": [f"t{n}" for n in NUMBERS]})
    known = rows.sample(3_300, seed=1, shuffle=True).select("id")
    known = pl.concat([rows.head(alike).select("id"), known.join(rows.head(alike), on="id", how="anti")])
    found, count = anti_join(rows.lazy(), known.lazy(), "id", tmp_path)
    expected = rows.filter(~rows["text"].is_in(rows.join(known, on="id", how="semi")["text"].implode()))
    assert count == expected.height == rows.height - known.height
    assert found.collect(engine="streaming").equals(expected)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9])
def test_rows_that_came_later_are_seen(tmp_path, size):
    """Anyone who reads the rows counts them, and refuses a source that has grown."""
    path = tmp_path / "rows.parquet"
    pl.DataFrame({"id": range(size)}, schema={"id": pl.Int64}).write_parquet(path)
    known = pl.LazyFrame({"id": range(size)}, schema={"id": pl.Int64})
    found, count = anti_join(pl.scan_parquet(path), known, "id", tmp_path)
    assert count == 0
    pl.DataFrame({"id": range(size + 20)}).write_parquet(path)
    assert found.collect()["id"].to_list() == list(range(size, size + 20))


def test_digests_with_equal_first_halves_are_told_apart(monkeypatch, tmp_path):
    def digests(ids):
        numbers, rows = ids.cast(pl.Int64).to_numpy(), np.zeros((len(ids), 16), np.uint8)
        rows[:, 0], rows[:, 15] = numbers % 24, numbers // 24
        return rows

    monkeypatch.setattr(module, "short_digests", digests)
    ids = np.random.default_rng(3).permutation(24 * 24)
    found, count = anti_join(pl.LazyFrame({"id": ids[:400]}), pl.LazyFrame({"id": ids[200:]}), "id", tmp_path)
    assert (found.collect()["id"].to_list(), count) == (ids[:200].tolist(), 200)
