"""Words of a vocabulary: numbers, choices, and texts; released texts as gates read them."""

import itertools
import json

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl import _kernel
from dptext_etl.artifacts import sha256_file
from dptext_etl.errors import ArtifactError, InputError, PolicyError
from dptext_etl.families.stored_distributions import TableParts, save_table

from ..examples import examples

WORDS = ["alpha", "beta", "gamma", "don't", "42", "<PAD>"]
STRICT = {"case": "lower", "punctuation": "drop", "numbers": "uniform", "oov": "uniform", "null": "pass", "n_max": 6}
FAITHFUL = {"case": "keep", "punctuation": "keep", "numbers": "keep", "oov": "keep", "null": "pass", "n_max": 50}
UNKNOWN = 2**32 - 1
TEXTS = ["Alpha, the unknown BETA 17!", None, "", "42 don\u2019t", "gamma " * 9]


@pytest.fixture(scope="module")
def vocabulary():
    return _kernel.Vocabulary(WORDS)


def keys(count):
    return pa.array([bytes([i]) * 32 for i in range(count)], pa.binary(32))


def encode(vocabulary, texts, policy, record_keys=None, **options):
    words, offsets = vocabulary.encode(texts, json.dumps(policy), record_keys, **options)
    return pa.array(words).to_pylist(), pa.array(offsets).to_pylist()


def assemble(vocabulary, texts, offsets, choices, policy, **options):
    columns = pa.array(offsets, pa.uint64()), pa.array(choices, pa.uint32())
    return pa.array(vocabulary.assemble(texts, *columns, json.dumps(policy), **options)).to_pylist()


def test_words_become_numbers_and_offsets(vocabulary):
    words, offsets = encode(vocabulary, pa.array(TEXTS), STRICT)
    assert offsets == [0, 5, 5, 5, 7, 13], "the last text is cut after six words"
    assert words == [0, UNKNOWN, UNKNOWN, 1, UNKNOWN, 4, 3, *[2] * 6]
    assert encode(vocabulary, pa.array(TEXTS), {**STRICT, "oov": "drop"})[0][:3] == [0, 1, UNKNOWN]
    assert encode(vocabulary, pa.array([], pa.string()), STRICT) == ([], [0])
    assert pa.array(vocabulary.positions(pa.array(TEXTS), json.dumps(STRICT))).to_pylist() == [5, 0, 0, 2, 6]


def test_kept_words_take_no_number():
    vocabulary = _kernel.Vocabulary(WORDS, kept=["the", "beta"])
    assert encode(vocabulary, pa.array(TEXTS[:1]), STRICT)[0] == [0, UNKNOWN, UNKNOWN], "kept words win over inputs"
    out = assemble(vocabulary, pa.array(TEXTS[:1]), [0, 3], [2, 3, 4], STRICT)
    assert out == [{"text": "gamma the don't beta 42", "positions": 3}]


def test_texts_in_place():
    vocabulary = _kernel.Vocabulary(WORDS, kept=["the"])
    words, offsets = encode(vocabulary, pa.array(TEXTS), FAITHFUL)
    assert words[:2] == [0, 1]
    out = assemble(vocabulary, pa.array(TEXTS), offsets, [3] * len(words), FAITHFUL)
    assert out[0]["text"] == "don't, the unknown don't 17!"
    assert out[1] == {"text": None, "positions": 0}


def test_outputs_of_their_own():
    vocabulary = _kernel.Vocabulary(["alpha"], outputs=["one", "two", "<PAD>"])
    texts = pa.array(["alpha alpha alpha"])
    assert assemble(vocabulary, texts, [0, 3], [1, 2, 0], STRICT) == [{"text": "two one", "positions": 3}]


@pytest.mark.parametrize("policy", [STRICT, {**STRICT, "length": "fixed"}, {**STRICT, "length": {"noisy": [1, 2]}}])
@pytest.mark.parametrize("threads", [1, 3])
def test_with_the_kernels_draws_it_is_a_table(vocabulary, tmp_path, policy, threads):
    """One row for all words: encode, draw and assemble give the bytes of a table's release."""
    path = tmp_path / "t"
    row = np.array([[3, 1, 4, 1, 5, 9]] * len(WORDS), np.uint64)
    save_table(path, TableParts.partition(WORDS, [np.arange(len(WORDS))], [row]).tensors(), {})
    table = _kernel.Table.open(str(path), sha256_file(path))
    column, record_keys = pa.array(TEXTS * 30), keys(len(TEXTS) * 30)
    words, offsets = encode(vocabulary, column, policy, record_keys, threads=threads)
    choices = []
    for row, key in enumerate(record_keys.to_pylist()):
        for position, word in enumerate(words[offsets[row] : offsets[row + 1]]):
            if word == UNKNOWN:
                choices.append(_kernel.below(key, 1, position, len(WORDS), 1))
            else:
                choices.append(_kernel.draw(key, 1, position, [3, 1, 4, 1, 5, 9], 1))
    expected = pa.array(table.release_with_keys(record_keys, column, json.dumps(policy))).to_pylist()
    assert assemble(vocabulary, column, offsets, choices, policy, threads=threads) == expected


def test_hidden_lengths(vocabulary):
    words, offsets = encode(vocabulary, pa.array(TEXTS), {**STRICT, "length": "fixed"})
    assert offsets == [0, 6, 6, 12, 18, 24]
    assert words[:6] == [0, UNKNOWN, UNKNOWN, 1, UNKNOWN, 5]
    assert words[6:12] == [5] * 6
    noisy = {**STRICT, "length": {"noisy": [1, 2]}}
    assert pa.array(vocabulary.positions(pa.array(TEXTS), json.dumps(noisy))).to_pylist() == [6, 0, 6, 6, 6]
    words, offsets = encode(vocabulary, pa.array(TEXTS), noisy, keys(len(TEXTS)))
    assert np.diff(offsets).tolist()[1] == 0
    assert all(1 <= n <= 6 for i, n in enumerate(np.diff(offsets)) if i != 1)
    assert encode(vocabulary, pa.array(TEXTS), noisy, keys(len(TEXTS)), threads=3) == (words, offsets)
    with pytest.raises(PolicyError, match="record keys"):
        encode(vocabulary, pa.array(TEXTS), noisy)
    with pytest.raises(InputError, match="one key each"):
        encode(vocabulary, pa.array(TEXTS), noisy, keys(2))


@given(st.lists(st.none() | st.text(max_size=40), max_size=8))
@examples(200)
def test_any_texts_take_as_many_choices_as_draws(vocabulary, texts):
    column = pa.array(texts, pa.string())
    for policy in (STRICT, {**STRICT, "oov": "drop"}, {**STRICT, "length": "fixed"}):
        words, offsets = encode(vocabulary, column, policy)
        out = assemble(vocabulary, column, offsets, [0] * len(words), policy)
        assert [row["positions"] for row in out] == np.diff(offsets).tolist()
        for row in out:
            if row["text"] is not None:
                assert row["text"] == " ".join(["alpha"] * row["positions"])


def test_layouts(vocabulary):
    expected = encode(vocabulary, pa.array(TEXTS), STRICT)
    series = pl.Series(TEXTS)
    assert encode(vocabulary, series, STRICT) == expected
    chunks = pa.chunked_array([pa.array(TEXTS[:2]), pa.array(TEXTS[2:])])
    assert encode(vocabulary, chunks, STRICT) == expected
    words, offsets = expected
    choices = pa.chunked_array([pa.array([0] * 4, pa.uint32()), pa.array([0] * (len(words) - 4), pa.uint32())])
    out = pa.array(vocabulary.assemble(chunks, pa.array(offsets, pa.uint64()), choices, json.dumps(STRICT))).to_pylist()
    assert out == assemble(vocabulary, series, offsets, [0] * len(words), STRICT)


WRONG = {
    "too few offsets": ([0, 2], [0, 0]),
    "too few choices": ([0, 2, 3], [0, 0]),
    "too many choices of a text": ([0, 3, 3], [0, 0, 0]),
    "offsets fall": ([0, 2, 1], [0, 0]),
    "offsets far away": ([0, 2, 2**63], [0, 0, 0]),
    "no such output": ([0, 2, 3], [0, 0, 6]),
    "an unknown word": ([0, 2, 3], [0, 0, UNKNOWN]),
}


@pytest.mark.parametrize("case", WRONG)
def test_choices_of_another_column_are_refused(vocabulary, case):
    with pytest.raises(InputError):
        assemble(vocabulary, pa.array(["alpha beta", "gamma"]), *WRONG[case], STRICT)


@pytest.mark.parametrize(("length", "count"), [("fixed", 5), *itertools.product(("fixed", {"noisy": [1, 2]}), (0, 7))])
def test_choices_of_a_hidden_length_are_from_one_to_n(vocabulary, length, count):
    with pytest.raises(InputError):
        assemble(vocabulary, pa.array(["alpha"]), [0, count], [0] * count, {**STRICT, "length": length})


@pytest.mark.parametrize("threads", [1, 3])
def test_words_come_once_and_by_number(threads):
    texts = [*TEXTS, "the THE alpha"] * 40
    kept = _kernel.Vocabulary(WORDS, kept=["the"])
    found = kept.words(pa.array(texts), json.dumps(STRICT), threads=threads)
    words, drawn, numbers, offsets = (pa.array(part).to_pylist() for part in found)
    assert words == ["Alpha", "the", "unknown", "BETA", "17", "42", "don\u2019t", "gamma", "THE", "alpha"]
    assert [word for word, is_drawn in zip(words, drawn, strict=True) if not is_drawn] == ["the", "THE"]
    rows = [[words[number] for number in numbers[first:last]] for first, last in itertools.pairwise(offsets)]
    every = [[word for word, is_word in _kernel.split(text or "") if is_word][: STRICT["n_max"]] for text in texts]
    assert rows == every
    empty = [pa.array(part).to_pylist() for part in kept.words(pa.array([], pa.string()), json.dumps(STRICT))]
    assert empty == [[], [], [], [0]]


@examples(60)
@given(texts=st.lists(st.one_of(st.none(), st.text())))
def test_every_word_is_read_that_is_encoded(texts):
    found = _kernel.Vocabulary(WORDS, kept=["the"]).words(pa.array(texts, pa.string()), json.dumps(STRICT))
    _, drawn, numbers, offsets = (pa.array(part).to_numpy(zero_copy_only=False) for part in found)
    counts = [int(drawn[numbers[first:last]].sum()) for first, last in itertools.pairwise(offsets.tolist())]
    _, encoded = encode(_kernel.Vocabulary(WORDS, kept=["the"]), pa.array(texts, pa.string()), STRICT)
    assert counts == np.diff(encoded).tolist()


def test_columns_of_another_kind_are_refused(vocabulary):
    for offsets, choices in [
        (pa.array([0, 1], pa.int64()), pa.array([0], pa.uint32())),
        (pa.array([0, 1], pa.uint64()), pa.array([0], pa.int32())),
        (pa.array([0, None], pa.uint64()), pa.array([0], pa.uint32())),
        (pa.array([0, 1], pa.uint64()), pa.array([None], pa.uint32())),
    ]:
        with pytest.raises(InputError, match="expected"):
            vocabulary.assemble(pa.array(["alpha"]), offsets, choices, json.dumps(STRICT))


def test_malformed_vocabularies_are_refused():
    for words in ([], ["alpha", "alpha"], ["alpha", ""]):
        with pytest.raises(ArtifactError):
            _kernel.Vocabulary(words)
    with pytest.raises(ArtifactError):
        _kernel.Vocabulary(["alpha"], outputs=[])
    with pytest.raises(ArtifactError, match="PAD"):
        encode(_kernel.Vocabulary(["alpha"]), pa.array(["alpha"]), {**STRICT, "length": "fixed"})
    with pytest.raises(ArtifactError, match="kept"):
        encode(_kernel.Vocabulary(WORDS, kept=["the"]), pa.array(["alpha"]), {**STRICT, "length": "fixed"})


LISTED = ["a", "The", "été", "fifteen-letters", "sixteen-letters!", "a-word-that-is-longer-than-sixteen-bytes"]
SHOWN = [
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
    words = [word for text in SHOWN if text for word in text.split(" ")]
    expected = len(words), sum(word not in LISTED for word in words)
    allowed = _kernel.WordSet(LISTED)
    for threads in (1, 3):
        assert allowed.outside(pa.array(SHOWN * 900, kind), threads=threads) == (expected[0] * 900, expected[1] * 900)
    assert _kernel.WordSet([]).outside(pl.Series(SHOWN)) == (expected[0], expected[0])


FORMS = [([b"fifteen", b"WORD"], True), ([b"The"], False), ([b"a\0", "été".encode()], False)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_texts_that_hold_patterns_are_counted_by_form(kind):
    patterns = _kernel.Patterns(FORMS)
    assert patterns.holding(pa.array(SHOWN, kind)) == [2, 1, 2]
    assert patterns.holding(pa.array(SHOWN * 900, kind), threads=3) == [1800, 900, 1800]
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
