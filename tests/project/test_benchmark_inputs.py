"""Benchmarks release distinct texts: a kernel that computes a text once however often it occurs would look too fast."""

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
    """What a part reads, or a skip where the shared data are missing."""
    if not (BENCHMARKS.parents[2] / "shared" / "data").is_dir():
        pytest.skip("shared/data is missing next to this checkout")
    return read()


def test_rotated_texts_differ_in_order_alone():
    from tasks import rotated

    texts = pl.DataFrame({"text": ["a b c", "one two", "x"]})
    assert [texts.select(rotated("text", turn))["text"].to_list() for turn in range(3)] == [
        ["a b c", "one two", "x"],
        ["b c a", "two one", "x"],
        ["c a b", "one two", "x"],
    ]


def test_surrogate_texts_are_distinct_and_stand_in_no_corpus():
    from surrogate_tasks import LENGTH, made

    from dptext_etl.corpora import Corpus

    folder, texts, _ = made(300, 200)
    with folder:
        public = Corpus.open(folder.name).texts
    assert len({*texts, *public}) == 500
    assert all(len(text.split()) == LENGTH for text in texts)


def test_reviews_are_distinct():
    from tasks import imdb

    assert with_data(lambda: imdb(WORDS)[0]["text"].is_unique().all())


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
def test_tables_that_parts_write_are_distinct(tmp_path):
    import bench_start
    import spark_tasks

    bench_start.table(tmp_path)
    assert pl.read_parquet(tmp_path / "raw.parquet")["text"].is_unique().all()
    texts = pl.read_parquet(with_data(lambda: spark_tasks.tweets(tmp_path, 20_000)))["text"]
    assert texts.is_unique().all()


@pytest.mark.thorough
def test_short_texts_are_distinct():
    from run_tasks import short_texts

    texts = with_data(lambda: short_texts(ROWS))["text"]
    assert (len(texts), texts.n_unique()) == (ROWS, ROWS)


@pytest.mark.thorough
def test_rows_of_scale_are_distinct(tmp_path):
    from scale_tasks import table

    with_data(lambda: table(str(tmp_path), ROWS))
    for name, rows in [("raw.parquet", ROWS), ("more.parquet", ROWS + 1_000)]:
        texts = pl.read_parquet(tmp_path / name)["text"]
        assert (len(texts), texts.n_unique()) == (rows, rows)
