"""Benchmarks release distinct texts: a kernel that computes a text once however often it occurs would look too fast."""

import json
from pathlib import Path

import polars as pl
import pytest

BENCHMARKS = Path(__file__).parents[2] / "studies" / "benchmarks"
ROWS = 300_000
"""More than there are utterances."""
WORDS = 6_000_000
"""More than all reviews have."""


@pytest.fixture(autouse=True)
def _scripts(monkeypatch):
    """Benchmarks import each other as scripts do."""
    monkeypatch.syspath_prepend(BENCHMARKS)


def with_data(read):
    """The input of a part, or a skip where the shared data are missing."""
    if not (BENCHMARKS.parents[2] / "shared" / "data").is_dir():
        pytest.skip("shared/data is missing next to this checkout")
    return read()


@pytest.mark.parametrize("name", ["results.json", "gpu.json"])
def test_every_figure_names_where_it_comes_from(name):
    for part, found in json.loads((BENCHMARKS / name).read_text("utf-8"))["parts"].items():
        assert found.keys() == {"date", "machine", "load", "commit", "command", "rows"}, part
        assert all(found.values()), part
        assert found["command"].startswith("python studies/benchmarks/"), part


def test_a_result_keeps_what_is_known_of_its_run(tmp_path):
    from measuring import Row
    from results import Origin, Results

    results = Results(tmp_path / "results.json", ("first", "second"))
    for part in ("second", "first"):
        results.put(part, [Row("work", "fast")], Origin.here("bench.py"))
    results.put("second", [], Origin.here("bench.py"))
    results.write()
    parts = Results.read(tmp_path / "results.json", ("first", "second")).parts
    assert list(parts) == ["first", "second"]
    for part, found in parts.items():
        assert found["command"] == f"python studies/benchmarks/bench.py {part}"
        assert all(found[field] for field in ("date", "machine", "load", "commit"))
        assert [row["measured"] for row in found["rows"]] == ["fast"]


def test_texts_of_models_are_distinct_and_as_long_as_they_say():
    from dpmlm_tasks import LONG, alike, long_texts, texts
    from gpu_models import WHOLE
    from gpu_models import texts as of_gpu

    found = with_data(lambda: [texts(3_000), texts(500, LONG), long_texts(40, 400), alike(24, 10), alike(4, 50)])
    for some in (*found, of_gpu(500, WHOLE)):
        assert len(set(some)) == len(some)
    lengths = [[len(text.split()) for text in some] for some in found]
    assert (min(lengths[1]), set(lengths[2]), set(lengths[3]), set(lengths[4])) == (LONG, {400}, {10}, {50})


@pytest.mark.thorough
def test_short_texts_and_rows_of_scale_are_distinct(tmp_path):
    from run_tasks import short_texts

    texts = with_data(lambda: short_texts(ROWS))["text"]
    assert (len(texts), texts.n_unique()) == (ROWS, ROWS)
    from scale_tasks import table

    with_data(lambda: table(str(tmp_path), ROWS))
    for name, rows in [("raw.parquet", ROWS), ("more.parquet", ROWS + 1_000)]:
        texts = pl.read_parquet(tmp_path / name)["text"]
        assert (len(texts), texts.n_unique()) == (rows, rows)
    from tasks import imdb

    assert with_data(lambda: imdb(WORDS)[0]["text"].is_unique().all())
    import bench_start
    import spark_tasks

    bench_start.table(tmp_path)
    assert pl.read_parquet(tmp_path / "raw.parquet")["text"].is_unique().all()
    texts = pl.read_parquet(with_data(lambda: spark_tasks.tweets(tmp_path, 20_000)))["text"]
    assert texts.is_unique().all()
