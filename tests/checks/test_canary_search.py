"""Canary words are found however they are written, and copies are counted by their definition."""

import base64
import gzip
import unicodedata
import urllib.parse

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl.checks import find
from dptext_etl.checks.canaries import FORMS, Searcher
from dptext_etl.checks.text_counts import CopyCount, count_copies
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


PIECES = (
    *"aB7\u00e9\u0130\u03a3\u00df\u24b6\u0301\u093e\u2019'_-.", "it's", "\u2026", "\U0001f600", " ", " ", " ", "\n",
    "\xa0",
)  # fmt: skip
texts = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=24).map("".join),
    st.text(st.characters(exclude_categories=("Cs", "Cn")), max_size=24),
)


def words_of(text):
    """The words of an original, as they are defined."""
    lowered = pl.Series([text]).str.to_lowercase().str.replace_all("\u2019", "'", literal=True)
    return lowered.str.extract_all(r"[\p{L}\p{M}\p{N}']+")[0].to_list()


def plain(raw, released, draws, ngram):
    """Count the copies of a row word by word."""
    if draws == 0:
        return CopyCount()
    before, after = words_of(raw), released.split(" ")
    kept = sum(one == other for one, other in zip(before, after, strict=True)) if len(before) == len(after) else 0
    compared = len(before) if len(before) == len(after) else 0
    known, shared = before[:draws], False
    if ngram is not None:
        stretches = [known[at : at + ngram] for at in range(len(known) - ngram + 1)]
        shared = any(after[at : at + ngram] in stretches for at in range(len(after) - ngram + 1))
    return CopyCount(int(before == after), {draws: 1}, kept, compared, int(shared))


@st.composite
def releases(draw):
    """A text, and another one, its own words with some replaced, or all of them after others."""
    raw, other = draw(texts), draw(texts)
    words = words_of(raw)
    some = [draw(st.sampled_from([word, word, "a", "", "\u00e9"])) for word in words]
    return raw, draw(st.sampled_from([other, " ".join(some), " ".join(["x", *words]), " ".join(words)]))


@given(st.lists(st.tuples(releases(), st.integers(0, 30)), max_size=6), st.sampled_from([None, 1, 2, 3, 4, 5]))
def test_counts_are_those_of_a_plain_search(rows, ngram):
    raw, released, draws = ([row[0][0] for row in rows], [row[0][1] for row in rows], [row[1] for row in rows])
    columns = (pl.Series(raw, dtype=pl.String), pl.Series(released, dtype=pl.String), pl.Series(draws, dtype=pl.UInt32))
    each = [plain(*row, ngram) for row in zip(raw, released, draws, strict=True)]
    assert count_copies(*columns, ngram) == sum(each, CopyCount())


def test_every_character_is_in_words_where_its_category_says_so():
    known = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) not in {"Cs", "Cn"}]
    letters = pl.Series(known).str.contains(r"[\p{L}\p{M}\p{N}'\u2019]")
    words = pl.Series(known).filter(letters)
    lowered = words.str.to_lowercase().str.replace_all("\u2019", "'", literal=True)
    found = count_copies(words, lowered, pl.repeat(1, len(words), dtype=pl.UInt32, eager=True))
    assert found.copies == found.words_kept == len(words)
    between = "a" + pl.Series(known).filter(~letters) + "b"
    found = count_copies(between, pl.repeat("a b", len(between), eager=True), pl.repeat(2, len(between), eager=True))
    assert found.copies == len(between)
    assert min(len(words), len(between)) > 5_000


def test_shared_stretches_are_counted_at_every_place_and_length():
    raw = pl.Series([" ".join(row) for row in ("abcdefg", "abcdefg", "abc", "", "xyzabc", "aaaa")])
    released = pl.Series([" ".join(row) for row in ("zzcdeyy", "abxcdxef", "abc", "abc", "abcxyz", "baaab")])
    draws = pl.Series([7] * 6)
    assert count_copies(raw, released, draws, 3).shared_ngrams == 4  # rows 0, 2, 4, 5
    assert count_copies(raw, released, draws, 4).shared_ngrams == 0
    assert count_copies(raw.head(0), released.head(0), draws.head(0), 3) == CopyCount()
    # Every place of a stretch, in texts whose other words are all different
    before = [f"b{at}" for at in range(40)]
    for ngram in range(1, 14):
        raw, released = [], []
        for at in range(len(before) - ngram + 1):
            for common in (ngram, ngram - 1):
                raw.append(" ".join(before))
                released.append(" ".join([*"xyz"[: at % 4], *before[at : at + common], "x"]))
        draws = pl.repeat(40, len(raw), eager=True)
        assert count_copies(pl.Series(raw), pl.Series(released), draws, ngram).shared_ngrams == len(raw) // 2
