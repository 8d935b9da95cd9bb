"""Canary words are found however they are written, and nothing else is."""

import base64
import gzip
import urllib.parse

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl.checks import find
from dptext_etl.checks.canaries import FORMS, Searcher
from dptext_etl.errors import InputError

TOKEN = "qzkvwxjyptbnmdfghlrc"
NOTHING = dict.fromkeys(FORMS, 0)
letters = st.text(alphabet="abcdefghijklmnopqrstuvwxyz", min_size=16, max_size=24)
around = st.binary(max_size=9)


def hits(anything, token=TOKEN):
    return {form for form, count in find([token], anything).items() if count}


@given(letters, around, around)
def test_found_at_every_alignment_of_base64(token, before, after):
    assert hits(base64.b64encode(before + token.encode() + after), token) >= {"base64"}
    assert hits(base64.urlsafe_b64encode(before + token.upper().encode() + after), token) >= {"base64"}
    assert hits(base64.b64encode(before + token.capitalize().encode() + after), token) >= {"base64"}


@given(letters, st.text(max_size=9), st.text(max_size=9))
def test_found_in_any_case_and_order(token, before, after):
    assert "plain" in hits(before + token.title() + after, token)
    assert "reversed" in hits((before + token.upper() + after)[::-1], token)
    assert "plain" in hits(pl.DataFrame({"a": [before + token.swapcase() + after]}), token)


@pytest.mark.parametrize(
    ("form", "write"),
    [
        ("hex", lambda text: text.encode().hex()),
        ("hex", lambda text: text.upper().encode().hex().upper()),
        ("percent", lambda text: "".join(f"%{byte:02X}" for byte in text.encode())),
        ("plain", urllib.parse.quote_plus),
        ("utf16", lambda text: text.encode("utf-16").decode("latin-1")),
        ("utf16", lambda text: text.encode("utf-16-be").decode("latin-1")),
    ],
)
def test_found_in_every_form(form, write):
    written = write(f"a {TOKEN} b")
    assert (hits(written), hits(pl.DataFrame({"a": [None, written]}))) == ({form}, {form})


def test_found_in_every_type_of_column():
    text = f"a {TOKEN} b"
    frames = [
        {"a": [[None, [text]]]},
        {"a": [{"x": 1, "y": {"z": text}}]},
        {"a": pl.Series([text], dtype=pl.Categorical)},
        {"a": pl.Series([text], dtype=pl.Enum([text]))},
        {"a": pl.Series([[text, None]], dtype=pl.Array(pl.String, 2))},
        {"a": pl.Series([{1: {"x": text}}], dtype=pl.Map(pl.Int64, pl.Struct({"x": pl.String})))},
        {"a": pl.Series([text]).ext.to(pl.Extension("a", pl.String, None))},
        {"a": [text.encode()]},
        {"a": [b"\xff\xfe" + text.encode("utf-16-le")]},
        {"a": [[base64.b64encode(text.encode())]]},
        {"a": pl.Series([{text}], dtype=pl.Object)},
        {text: [1]},
    ]
    for columns in frames:
        assert hits(pl.DataFrame(columns)), columns


def test_nothing_else_is_found_and_odd_tokens_are_refused():
    split = {"a": [f"x {TOKEN[:7]}", "y"], "n": [1, 2], "b": ["z", f"{TOKEN[7:]} y"]}
    assert find([TOKEN], pl.DataFrame(split)) == NOTHING
    joined = {"a": [f"x {TOKEN[:7]}", "y"], "n": [1, 2], "b": [f"{TOKEN[7:]} y", "z"]}
    assert find([TOKEN], pl.DataFrame(joined)) == {**NOTHING, "plain": 1}
    whole = {"a": [f"x {TOKEN}"], "b": ["z"]}
    assert find([TOKEN], pl.DataFrame(whole)) == {**NOTHING, "plain": 1}
    both = {"a": [f"{TOKEN} {TOKEN[:7]}"], "b": [TOKEN[7:]]}
    assert find([TOKEN], pl.DataFrame(both)) == {**NOTHING, "plain": 2}
    missing = {"a": [None, f"x{TOKEN[:7]}"], "b": [TOKEN, None], "c": [None, TOKEN[7:]]}
    assert find([TOKEN], pl.DataFrame(missing)) == {**NOTHING, "plain": 1}
    frame = pl.DataFrame({"a": ["the quick brown fox", None, TOKEN[:-1]], "b": [1.5, None, 2.0]})
    assert find([TOKEN], frame) == NOTHING
    assert find([TOKEN], "") == find([], frame) == find([TOKEN], pl.DataFrame()) == NOTHING
    for token in ("short", "has space and more", "zahl1234567890123456", "ümlautümlautümlaut"):
        with pytest.raises(InputError, match="ASCII letters"):
            Searcher([token])


def test_found_in_files_folders_and_the_metadata_of_parquet(tmp_path):
    (tmp_path / "deep").mkdir()
    frame = pl.DataFrame({"a": ["x", f"{TOKEN} y", "z"], "b": [1, 2, 3]})
    frame.write_parquet(tmp_path / "deep" / "zstd.parquet", compression="zstd")
    frame.write_csv(tmp_path / "plain.csv")
    with gzip.open(tmp_path / "log.gz", "wt") as file:
        file.write(f"failed on {TOKEN}")
    (tmp_path / f"{TOKEN}.txt").write_text("empty")
    (tmp_path / "clean").write_bytes(bytes(range(256)) * 100)
    assert find([TOKEN], tmp_path / "plain.csv")["plain"] == 1
    assert find([TOKEN], tmp_path / "log.gz")["plain"] == 1
    assert find([TOKEN], tmp_path / "deep" / "zstd.parquet")["plain"] >= 1
    assert find([TOKEN], tmp_path / "clean") == NOTHING
    assert find([TOKEN], tmp_path)["plain"] >= 4
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"a": ["x"]}).replace_schema_metadata({"note": f"min={TOKEN}"})
    pq.write_table(table, tmp_path / "meta.parquet")
    assert find([TOKEN], tmp_path / "meta.parquet")["plain"] == 1
    (tmp_path / "broken.parquet").write_bytes(b"PAR1" + TOKEN.encode() + b"PAR1")
    with pytest.raises(InputError, match="searching for canaries failed") as caught:
        find([TOKEN], tmp_path / "broken.parquet")
    assert TOKEN not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_found_once_at_every_place_of_a_large_file(tmp_path):
    size = 1 << 22
    for shift in (-30, -20, -10, -1, 0, 1):
        (tmp_path / "big").write_bytes(b"\n" * (size + shift) + TOKEN.encode() + b"\n" * 50)
        assert find([TOKEN], tmp_path / "big") == {**NOTHING, "plain": 1}, shift
