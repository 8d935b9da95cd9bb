"""Words of a text: Unicode segments, nothing lost, and both ways of finding them agree."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl import _kernel

from ..examples import examples

CASES = {
    "Hello, world!": ["Hello", "world"],
    "can't won\u2019t 'tis o'clock rock'n'roll": ["can't", "won\u2019t", "tis", "o'clock", "rock'n'roll"],
    "3.14 1,000,000 10th 2nd 555-0199 1.000,5": ["3.14", "1,000,000", "10th", "2nd", "555", "0199", "1.000,5"],
    "a.b.c U.S.A. e.g. i.e.x": ["a.b.c", "U.S.A", "e.g", "i.e.x"],
    "jane.doe@example.org": ["jane.doe", "example.org"],
    "https://a.b/c?d=1&e=f#g": ["https", "a.b", "c", "d", "1", "e", "f", "g"],
    "snake_case _private __ _1 #tag @you": ["snake_case", "_private", "_1", "tag", "you"],
    "well-known self\u2010made": ["well", "known", "self", "made"],
    "e\u0301cole nai\u0308ve caf\u00e9": ["e\u0301cole", "nai\u0308ve", "caf\u00e9"],
    "😀👩\u200d👩\u200d👧\u200d👦 🇩🇪🇫🇷 ok👍🏽": ["ok"],
    "我们喜欢电影": list("我们喜欢电影"),
    "カタカナ ひらがな": ["カタカナ", "ひ", "ら", "が", "な"],
    "مرحبا بالعالم": ["مرحبا", "بالعالم"],
    "שלום ד\u05f4ר צ'ק": ["שלום", "ד\u05f4ר", "צ'ק"],
    "한국어 단어": ["한국어", "단어"],
    "a\x00b\x1b[31mc\td\r\ne\u2028f\u0085g": ["a", "b", "31mc", "d", "e", "f", "g"],
    "½ Ⅷ ① x²": ["½", "Ⅷ", "①", "x", "²"],
    "soft\u00adhyphen zero\u200bwidth": ["soft\u00adhyphen", "zero", "width"],
    "<mask> </s> [CLS]": ["mask", "s", "CLS"],
    "": [],
    " \t\n\u3000": [],
    "...!?—…": [],
}


def words(text):
    return [segment for segment, is_word in _kernel.split(text) if is_word]


@pytest.mark.parametrize("text", CASES)
def test_known_texts(text):
    assert words(text) == CASES[text]


PIECES = st.one_of(
    st.text(max_size=12),
    st.text(alphabet="abzAZ019__::;;,,..''\"\"  --\r\n\t@", max_size=12),
    st.text(alphabet="ab .'\u2019\u0301\u200d\u00ad\u05d0\u30ab\U0001f1e9\U0001f469é", max_size=8),
    st.sampled_from(sorted(CASES)),
)
TEXTS = st.lists(PIECES, max_size=6).map("".join)


@given(TEXTS)
@examples(400)
def test_the_segments_joined_are_the_text(text):
    parts = _kernel.split(text)
    assert "".join(segment for segment, _ in parts) == text
    assert all(segment for segment, _ in parts)
    assert all(is_word == any(c.isalnum() for c in segment) for segment, is_word in parts if segment.isascii())


POLICY = {"case": "keep", "punctuation": "keep", "numbers": "keep", "oov": "keep", "null": "pass", "n_max": 10_000}


@pytest.fixture(scope="module")
def empty_handed(tmp_path_factory):
    """A table that knows no word of any test: faithful releases are the texts themselves."""
    import hashlib

    import numpy as np

    from dptext_etl.families.stored_distributions import TableParts, save_table

    path = tmp_path_factory.mktemp("table") / "t.safetensors"
    parts = TableParts(["\u2603x", "\u2603y"], [np.array([0, 1])], np.zeros(2, np.uint32), [np.ones((2, 2), np.uint64)])
    save_table(path, parts.tensors(), {})
    return _kernel.Table.open(str(path), hashlib.sha256(path.read_bytes()).hexdigest())


@given(text=TEXTS)
@examples(400)
def test_the_scan_of_the_hot_loop_finds_the_same_words(empty_handed, text):
    key = _kernel.ReleaseKey(_kernel.Secret.from_bytes(bytes(32)), "d", "c", "r", "ab")
    column, ids = pa.array([text]), pa.array(["1"])
    kept = pa.array(empty_handed.release(key, column, ids, json.dumps(POLICY)))
    assert kept.to_pylist() == [{"text": text, "positions": 0}]
    strict = {**POLICY, "punctuation": "drop", "case": "keep"}
    joined = pa.array(empty_handed.release(key, column, ids, json.dumps(strict)))
    assert joined[0]["text"].as_py() == " ".join(words(text))
    drawn = {**POLICY, "numbers": "uniform", "oov": "uniform"}
    assert pa.array(empty_handed.positions(column, json.dumps(drawn))).to_pylist() == [len(words(text))]


@pytest.mark.parametrize(
    "unit", ["a", "a ", "é", "\u0301", "我", "\U0001f469\u200d", "a.", "1,", "_", "'", "\U0001f1e9"]
)
def test_long_texts(empty_handed, unit):
    text = unit * 10_000
    assert "".join(segment for segment, _ in _kernel.split(text)) == text
    drawn = {**POLICY, "numbers": "uniform", "oov": "uniform", "n_max": 1_000_000}
    assert pa.array(empty_handed.positions(pa.array([text]), json.dumps(drawn))).to_pylist() == [len(words(text))]


def test_unpaired_surrogates_are_refused_without_the_text():
    with pytest.raises(ValueError, match="unpaired surrogates") as caught:
        _kernel.split("zxqvyuu \ud800")
    assert "zxqvyuu" not in repr(caught.value.__dict__) + str(caught.value)
    assert not isinstance(caught.value, UnicodeError)
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_the_unicode_version_is_named():
    assert _kernel.UNICODE_VERSION.startswith("unicode-")
    assert int(_kernel.UNICODE_VERSION.split("-")[1]) >= 16
