"""Released texts as gates look at them: words outside a list, patterns without a blank."""

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


FORMS = [([b"fifteen", b"WORD"], True), ([b"The"], False), ([b"a\0", "été".encode()], False)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_texts_that_hold_patterns_are_counted_by_form(kind):
    patterns = _kernel.Patterns(FORMS)
    assert patterns.holding(pa.array(TEXTS, kind)) == [2, 1, 2]
    assert patterns.holding(pa.array(TEXTS * 900, kind), threads=3) == [1800, 900, 1800]
    assert patterns.occurrences(b"The the a\0a\0 FIFTEENword", 0) == [2, 1, 2]
    assert patterns.occurrences(b"The the a\0a\0 FIFTEENword", 12) == [2, 0, 0]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_patterns_are_found_across_two_columns(kind):
    patterns = _kernel.Patterns(FORMS)
    left, right = ["a fif", "fif ", "Th", None, "fifteen", "wOr", ""], ["teen b", "teen", "e", "word", "x", "D", "word"]
    assert patterns.across(pa.array(left, kind), pa.array(right, kind)) == [2, 1, 0]
    many = patterns.across(pa.array(left * 900, kind), pa.array(right * 900, kind), threads=3)
    assert many == [1800, 900, 0]
    with pytest.raises(InputError, match="as many rows"):
        patterns.across(pa.array(left, kind), pa.array(right[1:], kind))


@pytest.mark.parametrize("pattern", [b"", b"a b"])
def test_a_pattern_that_cannot_stand_between_blanks_is_refused(pattern):
    with pytest.raises(InputError, match="no blank"):
        _kernel.Patterns([([pattern], True)])
