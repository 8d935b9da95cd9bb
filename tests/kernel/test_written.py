"""Released texts as gates look at them: words outside a list, stretches without a blank."""

import polars as pl
import pyarrow as pa
import pytest

from dptext_etl import _kernel
from dptext_etl.errors import InputError

LISTED = ["a", "The", "été", "fifteen-letters", "sixteen-letters!", "a-word-that-is-longer-than-sixteen-bytes"]
TEXTS = [
    "a The été",
    "the",
    "",
    None,
    " a",
    "a ",
    "a  a",
    "fifteen-letters sixteen-letters! a-word-that-is-longer-than-sixteen-bytes a",
    "fifteen-letters! sixteen-letters a-word-that-is-longer-than-sixteen-byte\0",
    "a\0 a",
]
KINDS = [pa.string(), pa.large_string(), pa.string_view()]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_words_outside_a_list_are_those_of_a_split(kind):
    words = [word for text in TEXTS if text for word in text.split(" ")]
    expected = len(words), sum(word not in LISTED for word in words)
    allowed = _kernel.WordSet(LISTED)
    for threads in (1, 3):
        assert allowed.outside(pa.array(TEXTS * 900, kind), threads=threads) == (expected[0] * 900, expected[1] * 900)
    assert _kernel.WordSet([]).outside(pl.Series(TEXTS)) == (expected[0], expected[0])


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_stretches_are_counted_in_bytes_between_blanks(kind):
    for least in (1, 3, 5, 15, 16, 17, 40):
        stretches = [max(map(len, (text or "").encode().split(b" "))) >= least for text in TEXTS]
        found = pa.array(_kernel.stretches(pa.array(TEXTS, kind), least)).to_pylist()
        assert found == [row for row, there in enumerate(stretches) if there], least
    many = pa.array(_kernel.stretches(pa.array(TEXTS * 900, kind), 16, threads=3)).to_pylist()
    assert many == sorted(many)
    assert len(many) == 2 * 900
    with pytest.raises(InputError):
        _kernel.stretches(pa.array(TEXTS, kind), 0)
