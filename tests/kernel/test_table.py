"""Table mechanisms over columns: every layout, chunking and order gives the same bytes; no malformed file is opened."""

import json
import multiprocessing

import polars as pl
import pyarrow as pa
import pytest

from dptext_etl import _kernel
from dptext_etl.errors import InputError, PolicyError

from ..quick import quick
from .tables import FAITHFUL, KEY, STRICT, WORDS, blob, release, write

TEXTS = [
    "Alpha beta, of the unknown!",
    "",
    None,
    "  \t ",
    "GAMMA 42 17 Don\u2019t",
    "été straße",
    "a_word_of_more_than_sixteen " * 9,
    "😀",
    "x",
] * 40


def test_facts_of_a_table(table):
    assert table.input_words() == table.output_words() == WORDS
    assert table.kept_words() == ["of", "the"]
    assert (table.sets, table.max_set, table.width) == (2, 4, 1)
    assert table.metadata() == {"format": "dptext-table/1", "description": "{}"}


def test_null_empty_and_blank(table):
    out = release(table, pa.array([None, "", " \n", "…"]))
    assert out.field("text").to_pylist() == [None, "", "", ""]
    assert out.field("positions").to_pylist() == [0, 0, 0, 0]
    assert out.type == pa.struct(
        [pa.field("text", pa.large_string()), pa.field("positions", pa.uint32(), nullable=False)]
    )
    empty = release(table, pa.array([None]), policy={**STRICT, "null": "empty"})
    assert empty.to_pylist() == [{"text": "", "positions": 0}]
    assert release(table, pa.array([], pa.string())).to_pylist() == []
    assert release(table, pa.nulls(2)).field("text").to_pylist() == [None, None]


LAYOUTS = {
    "string": lambda a: a.cast(pa.string()),
    "large": lambda a: a.cast(pa.large_string()),
    "view": lambda a: a.cast(pa.string_view()),
    "sliced": lambda a: pa.concat_arrays([pa.array(["before", None]), a, pa.array(["after"])]).slice(2, len(a)),
    "sliced view": lambda a: pa.concat_arrays([pa.array(["before", None]), a]).cast(pa.string_view()).slice(2),
    "chunked": lambda a: pa.chunked_array([a[:7], a[7:7], a[7:100], a[100:]]),
    "chunked view": lambda a: pa.chunked_array([a[:1].cast(pa.string_view()), a[1:].cast(pa.string_view())]),
    "polars": lambda a: pl.Series(a.to_pylist(), dtype=pl.String),
    "polars chunks": lambda a: pl.concat([pl.Series(a.to_pylist()[:50]), pl.Series(a.to_pylist()[50:])], rechunk=False),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("threads", [1, 3])
def test_every_layout_and_number_of_threads_gives_the_same_bytes(table, layout, threads):
    texts = pa.array(TEXTS)
    expected = release(table, texts, threads=1)
    ids = LAYOUTS[layout](pa.array([f"r{i}" for i in range(len(texts))]))
    column = LAYOUTS[layout](texts)
    assert release(table, column, ids, threads=threads).equals(expected)
    assert pa.array(table.positions(column, json.dumps(STRICT), threads=threads)).equals(expected.field("positions"))
    assert pa.array(_kernel.record_keys(KEY, ids, column)).equals(
        pa.array(_kernel.record_keys(KEY, pa.array([f"r{i}" for i in range(len(texts))]), texts))
    )


def test_many_blocks_in_parallel(table):
    texts = pa.array([f"alpha beta unknown{i} gamma " * (i % 50) for i in range(3000)])
    assert release(table, texts, threads=3).equals(release(table, texts, threads=1))


@pytest.mark.parametrize("value", ["0", "-1", "many", "", "100000"])
def test_the_thread_knob(table, monkeypatch, value):
    texts = pa.array(["alpha"])
    monkeypatch.setenv("DPTEXT_THREADS", value)
    with pytest.raises(PolicyError, match="DPTEXT_THREADS"):
        release(table, texts)
    assert len(release(table, texts, threads=1)) == 1
    monkeypatch.setenv("DPTEXT_THREADS", "2")
    assert len(release(table, texts)) == 1


def test_strict_words(table):
    out = release(table, pa.array(["Of THE alpha — unknown 17 42 OF"])).to_pylist()[0]
    words = out["text"].split(" ")
    assert words[:2] == ["of", "the"]
    assert words[-1] == "of"
    assert set(words) <= {*WORDS, "of", "the"}
    assert out["positions"] == 4, "kept words take no position"
    assert len(words) == 7
    assert "  " not in out["text"]


def test_kept_words_do_not_show_how_they_were_written(tmp_path):
    path = tmp_path / "t"
    table = _kernel.Table.open(str(path), write(path, kept=blob(["don't", "été", "the"])))
    for text in ("Don't ÉTÉ the", "DON\u2019T été THE"):
        assert release(table, pa.array([text])).to_pylist() == [{"text": "don't été the", "positions": 0}]


def test_faithful_text_stays_in_place(table):
    text = "Well, Alpha... THE (unknown) 17\u00a0beta!\n"
    out = release(table, pa.array([text]), policy=FAITHFUL).to_pylist()[0]
    head, tail = "Well, ", "... THE (unknown) 17\u00a0"
    drawn = out["text"].removeprefix(head).removesuffix("!\n").split(tail)
    assert out["text"].startswith(head)
    assert len(drawn) == 2
    assert set(drawn) <= set(WORDS)
    assert out["positions"] == 2


def test_a_number_of_the_vocabulary_is_an_ordinary_word(table):
    drawn = {row["text"] for row in release(table, pa.array(["42"] * 500)).to_pylist()}
    assert drawn == set(WORDS[4:])
    numbers = {row["text"] for row in release(table, pa.array(["17"] * 500)).to_pylist()}
    assert numbers == set(WORDS), "other numbers are uniform over all outputs"
    assert release(table, pa.array(["17 x"]), policy={**STRICT, "numbers": "keep"}).field("positions").to_pylist() == [
        1
    ]


@pytest.mark.parametrize("n_max", [0, 1, 3])
def test_long_texts_are_cut_after_n_max_words(table, n_max):
    text = "alpha, the  beta unknown gamma!"
    strict = release(table, pa.array([text]), policy={**STRICT, "n_max": n_max}).to_pylist()[0]
    assert len(strict["text"].split()) == n_max
    assert strict["positions"] == {0: 0, 1: 1, 3: 2}[n_max]
    faithful = release(table, pa.array([text]), policy={**FAITHFUL, "n_max": n_max}).to_pylist()[0]["text"]
    assert len(_kernel.split(faithful)) == {0: 0, 1: 1, 3: 6}[n_max]


def test_the_law_of_one_word(table):
    policy = json.dumps(STRICT)
    assert table.row("BETA", policy) == (WORDS[:4], [2, 3, 4, 1])
    assert table.row("don\u2019t", policy) == (WORDS[4:], [1, 2, 3, 4])
    assert table.row("The", policy) == (["the"], [1])
    assert table.row("unknown", policy) == (WORDS, [1] * 8)
    assert table.row("Unknown", json.dumps(FAITHFUL)) == (["Unknown"], [1])
    for text in ("", "zxqvyuu zxqvyuu", "zxqvyuu!", " zxqvyuu", "?"):
        with pytest.raises(InputError, match="one word") as caught:
            table.row(text, policy)
        assert "zxqvyuu" not in str(caught.value)


def _released_elsewhere(table, texts, ids):
    return release(table, texts, ids).to_pylist()


@pytest.mark.parametrize("start", quick(["fork", "spawn"]))
def test_another_process_gives_the_same_bytes(table, start):
    texts, ids = pa.array(TEXTS), pa.array([f"r{i}" for i in range(len(TEXTS))])
    expected = release(table, texts, ids, threads=2).to_pylist()
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(start)) as pool:
        assert pool.submit(_released_elsewhere, table, texts, ids).result() == expected
