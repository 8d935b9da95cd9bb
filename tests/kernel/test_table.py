"""Table mechanisms over columns: every layout and chunking gives the same bytes; no malformed file is read."""

import hashlib
import json
import multiprocessing

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl import _kernel
from dptext_etl.errors import ArtifactError, InputError, PolicyError

from ..examples import examples
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


BROKEN = {
    "no inputs": {"inputs": blob([])},
    "inputs missing": {"inputs": None},
    "weights missing": {"cumulative": None},
    "members missing": {"members": None},
    "wrong numbers": {"members": np.arange(8, dtype=np.uint64)},
    "two dimensions": {"members": np.zeros((4, 2), np.uint32)},
    "an output that is not there": {"members": np.array([0, 1, 2, 3, 4, 5, 6, 8], np.uint32)},
    "fewer outputs": {"outputs": blob(WORDS[:7])},
    "a set that is not there": {"input_set": np.array([0, 0, 0, 0, 1, 1, 1, 2], np.uint32)},
    "too few words": {"input_set": np.zeros(7, np.uint32)},
    "sets beyond members": {"set_offsets": np.array([0, 4, 9], np.uint64)},
    "sets fall": {"set_offsets": np.array([0, 9, 8], np.uint64)},
    "sets start late": {"set_offsets": np.array([1, 4, 8], np.uint64)},
    "an empty set": {"set_offsets": np.array([0, 8, 8], np.uint64)},
    "rows beyond weights": {"row_offsets": np.arange(4, 40, 4, dtype=np.uint64)},
    "rows fall": {"row_offsets": np.array([0, 8, 4, 12, 16, 20, 24, 28, 32], np.uint64)},
    "rows shorter than sets": {"row_offsets": np.array([0, 3, 8, 12, 16, 20, 24, 28, 32], np.uint64)},
    "huge offsets": {"row_offsets": np.array([0] + [2**64 - 1] * 8, np.uint64)},
    "sums fall": {"cumulative": np.array([4, 3, 2, 1] * 8, np.uint64)},
    "a row of nothing": {"cumulative": np.array([0, 0, 0, 0] + [1, 2, 3, 4] * 7, np.uint64)},
    "a word twice": {"inputs": blob([*WORDS[:7], "alpha"])},
    "an empty word": {"inputs": blob([*WORDS[:7], ""])},
    "an empty output": {"outputs": blob(["", *WORDS])},
    "no UTF-8": {"inputs": np.frombuffer(b"a\nb\nc\nd\ne\nf\ng\n\xff", np.uint8)},
}


@pytest.mark.parametrize("case", BROKEN)
def test_malformed_tables_are_refused(tmp_path, case):
    path = tmp_path / "t"
    with pytest.raises(ArtifactError, match=r"malformed|twice"):
        _kernel.Table.open(str(path), write(path, **BROKEN[case]))


def test_another_format_is_refused(tmp_path):
    path = tmp_path / "t"
    with pytest.raises(ArtifactError, match="another format"):
        _kernel.Table.open(str(path), write(path, {"format": "dptext-table/2"}))


def test_truncated_changed_and_foreign_files_are_refused(tmp_path):
    path = tmp_path / "t"
    sha256 = write(path, members=np.arange(8, dtype=np.uint32)[::-1].copy())
    whole = path.read_bytes()
    for i in range(0, len(whole), 61):
        path.write_bytes(whole[:i])
        with pytest.raises(ArtifactError, match="SHA-256"):
            _kernel.Table.open(str(path), sha256)
        with pytest.raises(ArtifactError):
            _kernel.Table.open(str(path), hashlib.sha256(whole[:i]).hexdigest())
        changed = bytearray(whole)
        changed[i] ^= 1
        path.write_bytes(bytes(changed))
        with pytest.raises(ArtifactError, match="SHA-256"):
            _kernel.Table.open(str(path), sha256)
    path.unlink()
    with pytest.raises(ArtifactError, match="cannot be read"):
        _kernel.Table.open(str(path), sha256)
    with pytest.raises(ArtifactError, match="cannot be read"):
        _kernel.Table.open(str(tmp_path), sha256)
    path.write_bytes(whole)
    _kernel.Table.open(str(path), sha256)


@given(st.data())
@examples(200)
def test_a_table_of_any_bytes_is_refused_or_safe(table, tmp_path_factory, data):
    """Whatever a file holds, opening it under its own hash ends in an error or in a table that can be used."""
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    write(path)
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(whole))
    try:
        changed = _kernel.Table.open(str(path), hashlib.sha256(bytes(whole)).hexdigest())
    except ArtifactError:
        return
    out = release(changed, pa.array(["alpha beta gamma delta don't 42 straße unknown"] * 3))
    assert out.field("positions").to_pylist() == [8] * 3


BAD_POLICIES = {
    "unknown field": {**STRICT, "extra": 1},
    "missing field": {name: value for name, value in STRICT.items() if name != "oov"},
    "unknown value": {**STRICT, "case": "upper"},
    "negative": {**STRICT, "n_max": -1},
}


@pytest.mark.parametrize("case", BAD_POLICIES)
def test_unknown_input_policies_are_refused(table, case):
    with pytest.raises(PolicyError, match="input policy"):
        release(table, pa.array(["alpha"]), policy=BAD_POLICIES[case])


def test_wrong_columns_are_refused_without_quoting_them(table):
    secret = "zxqvyuu"
    refused = [
        (pa.array([1, 2]), pa.array(["a", "b"]), "int64"),
        (pa.array([secret.encode()]), pa.array(["a"]), "binary"),
        (pa.array([[secret]]), pa.array(["a"]), "list"),
        (pa.array([secret]), pa.array(["a", secret]), "2"),
        (pa.array([secret]), pa.array([None], pa.string()), "nulls"),
        (pa.array([secret]), pa.array([1.5]), "float"),
    ]
    for texts, ids, said in refused:
        with pytest.raises(InputError, match=said) as caught:
            release(table, texts, ids)
        assert secret not in str(caught.value)
    for nothing in (secret, None, [secret], 3, np.array([secret])):
        with pytest.raises(TypeError, match="Arrow") as failure:
            release(table, nothing, pa.array(["a"]))
        assert secret not in str(failure.value)


def test_invalid_utf8_is_refused(table):
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe")]
    )
    with pytest.raises(InputError, match="UTF-8"):
        release(table, broken)
