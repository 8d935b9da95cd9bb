"""Words that are dropped and lengths that are hidden, to the byte.

Specification: docs/spec/privacy.md#length-options, docs/spec/privacy.md#unknown-words.
"""

import hashlib
import json
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from dptext_etl import _kernel
from dptext_etl.errors import ArtifactError, InputError, PolicyError

from ..examples import examples
from .tables import blob

PAD = "<PAD>"
WORDS = ["alpha", "beta", "gamma", "delta", "don't", "42", "a_word_of_more_than_sixteen", PAD]
STRICT = {"case": "lower", "punctuation": "drop", "numbers": "uniform", "oov": "uniform", "null": "pass", "n_max": 5}
FAITHFUL = {"case": "keep", "punctuation": "keep", "numbers": "keep", "oov": "keep", "null": "pass", "n_max": 50}
DROP = {"oov": "drop", "numbers": "drop"}
LENGTH = 6


def make(folder, words=WORDS, outputs=(), kept=(), weights=None):
    """Every word draws from all outputs with the given weights: one row that does not look at the word."""
    m = len(outputs) or len(words)
    row = np.asarray([1] * m if weights is None else weights, np.uint64)
    tensors = {
        "inputs": blob(words),
        "outputs": blob(outputs),
        "kept": blob(kept),
        "input_set": np.zeros(len(words), np.uint32),
        "set_offsets": np.array([0, m], np.uint64),
        "members": np.arange(m, dtype=np.uint32),
        "row_offsets": np.arange(0, m * len(words) + 1, m, dtype=np.uint64),
        "cumulative": np.tile(row.cumsum(), len(words)).astype(np.uint64),
    }
    path = folder / "t"
    path.write_bytes(save(tensors, {"format": "dptext-table/1"}))
    return _kernel.Table.open(str(path), hashlib.sha256(path.read_bytes()).hexdigest())


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return make(tmp_path_factory.mktemp("pad"))


def release(table, texts, policy, keys=None):
    keys = keys or [bytes([7]) * 32] * len(texts)
    column = pa.array(texts, pa.string())
    out = pa.array(table.release_with_keys(pa.array(keys, pa.binary(32)), column, json.dumps(policy)))
    assert pa.array(table.positions(column, json.dumps(policy))).equals(out.field("positions"))
    return out.to_pylist()


def test_dropped_words_leave_neither_word_nor_position(table):
    policy = {**STRICT, **DROP}
    [with_unknown, without] = release(table, ["x Alpha, 17 beta y; zz", "alpha beta"], policy)
    assert with_unknown == without
    assert with_unknown["positions"] == 2
    [nothing] = release(table, ["x 17 y"], policy)
    assert nothing == {"text": "", "positions": 0}
    assert [row["positions"] for row in release(table, ["x 17 42"], {**STRICT, "oov": "drop"})] == [2]
    assert [row["positions"] for row in release(table, ["x 17 42"], {**STRICT, "numbers": "drop"})] == [2]


def test_long_texts_are_cut_before_words_are_dropped(table):
    assert [row["positions"] for row in release(table, ["x x x x alpha alpha"], {**STRICT, **DROP})] == [1]


def test_dropped_words_in_a_text_that_stays_in_place(tmp_path):
    table = make(tmp_path, words=["alpha"], kept=["the"])
    policy = {**FAITHFUL, "oov": "drop"}
    assert release(table, ["Well, Alpha (unknown) THE 17!"], policy) == [{"text": ", alpha () THE 17!", "positions": 1}]
    assert release(table, ["Well"], policy) == [{"text": "", "positions": 0}]


def test_the_law_of_a_dropped_word_is_refused_without_the_word(table):
    with pytest.raises(InputError, match="drops") as caught:
        table.row("zxqvyuu", json.dumps({**STRICT, **DROP}))
    assert "zxqvyuu" not in str(caught.value)


TEXTS = ["", " \n ", "?!", "alpha", "Beta x 17", "alpha beta gamma delta don't", "gamma " * 40, "<PAD>", "x y z"]


def oracle_text(key, length, weights=None):
    """The released text of `length` draws from one row."""
    weights = weights or [1] * len(WORDS)
    drawn = [WORDS[_kernel.draw(key, 1, position, weights, 1)] for position in range(length)]
    return " ".join(word for word in drawn if word != PAD)


@pytest.mark.parametrize("unknown", [{}, DROP])
def test_fixed_length_every_text_takes_n_draws(table, unknown):
    key = b"\x21" * 32
    rows = release(table, [*TEXTS, None], {**STRICT, **unknown, "length": "fixed"}, [key] * (len(TEXTS) + 1))
    assert rows[-1] == {"text": None, "positions": 0}
    assert rows[:-1] == [{"text": oracle_text(key, 5), "positions": 5}] * len(TEXTS)
    empty = {**STRICT, **unknown, "length": "fixed", "null": "empty"}
    assert release(table, [None], empty, [key]) == rows[:1]


def clamped(n, key, rate, longest):
    start = min(max(n, 1), longest)
    step = _kernel.discrete_laplace(key, LENGTH, 0, rate.numerator, rate.denominator)
    return min(max(start + step, 1), longest)


@given(st.sampled_from([0, 1, 2, 3, 5, 9]), st.binary(min_size=32, max_size=32), st.fractions(Fraction(1, 50), 5))
@examples(150)
def test_noisy_length_is_the_clamped_text_plus_a_discrete_laplace(table, n, key, rate):
    """n0 = clamp(n, 1, N), then clamp(n0 + G, 1, N), G at purpose 6, position 0; the draws are as for any text."""
    rate = rate.limit_denominator(10**6)
    policy = {**STRICT, "length": {"noisy": [rate.numerator, rate.denominator]}}
    [row] = release(table, ["alpha " * n], policy, [key])
    assert row == {"text": oracle_text(key, clamped(n, key, rate, 5)), "positions": 5}, "the worst case is charged"


@given(
    st.text(max_size=60), st.text(max_size=60), st.binary(min_size=32, max_size=32), st.sampled_from(["oov", "drop"])
)
@examples(300)
def test_ni_with_a_fixed_length_nothing_of_a_text_reaches_the_output(table, one, other, key, unknown):
    """One constant row (docs/spec/privacy.md#ni): no disclosure is left, so any two texts give equal bytes."""
    policy = {**STRICT, **(DROP if unknown == "drop" else {}), "length": "fixed"}
    first, second = release(table, [one, other], policy, [key, key])
    assert first == second


def test_ni_can_fail(table):
    first, second = release(table, ["alpha", "alpha beta"], STRICT)
    assert first != second, "where the length is disclosed it shows"


def test_the_pad_has_a_row_of_its_own(table, tmp_path):
    policy = json.dumps({**STRICT, "length": "fixed"})
    assert table.row(PAD, policy) == (WORDS, [1] * len(WORDS))
    assert table.row("Alpha", policy) == (WORDS, [1] * len(WORDS))
    with pytest.raises(InputError, match="one word"):
        make(tmp_path, words=WORDS[:-1]).row(PAD, json.dumps(STRICT))
    only_pads = make(tmp_path, weights=[0] * (len(WORDS) - 1) + [3])
    assert release(only_pads, ["alpha beta"], STRICT) == [{"text": "", "positions": 2}]
    mostly = make(tmp_path, words=["alpha", "beta", PAD], weights=[1, 0, 1])
    drawn = release(mostly, ["alpha " * 5], STRICT)[0]["text"]
    assert drawn == " ".join(["alpha"] * drawn.count("alpha")), "no blanks where a pad was"


def test_no_text_can_name_the_pad(table):
    unknown, pad = release(table, ["pad", "<PAD> <pad>"], {**STRICT, **DROP})
    assert unknown == pad == {"text": "", "positions": 0}


NO_PAD = {
    "no pad": {"words": WORDS[:-1]},
    "not the last": {"words": [PAD, *WORDS[:-1]]},
    "outputs without it": {"outputs": WORDS[:-1]},
    "inputs without it": {"words": WORDS[:-1], "outputs": WORDS},
    "another spelling": {"words": [*WORDS[:-1], "<pad>"]},
}


@pytest.mark.parametrize("case", NO_PAD)
@pytest.mark.parametrize("length", ["fixed", {"noisy": [1, 4]}])
def test_a_hidden_length_needs_the_pad(tmp_path, case, length):
    table = make(tmp_path, **NO_PAD[case])
    policy = {**STRICT, "length": length}
    for texts in (["alpha"], [], [None]):
        with pytest.raises(ArtifactError, match="PAD"):
            release(table, texts, policy)
    with pytest.raises(ArtifactError, match="PAD"):
        table.positions(pa.array(["alpha"]), json.dumps(policy))
    assert len(release(table, ["alpha"], {**STRICT, "length": "disclose"})) == 1


def test_kept_words_would_tell_the_length(tmp_path):
    table = make(tmp_path, kept=["the"])
    with pytest.raises(ArtifactError, match="kept"):
        release(table, ["alpha"], {**STRICT, "length": "fixed"})


BAD = {
    "keeps unknown words": {"length": "fixed", "oov": "keep"},
    "keeps numbers": {"length": "fixed", "numbers": "keep"},
    "keeps punctuation": {"length": "fixed", "punctuation": "keep"},
    "no room": {"length": "fixed", "n_max": 0},
    "too much room": {"length": "fixed", "n_max": 2**24 + 1},
    "one length only": {"length": {"noisy": [1, 2]}, "n_max": 1},
    "rate of nothing": {"length": {"noisy": [0, 1]}},
    "no fraction": {"length": {"noisy": [1, 0]}},
    "not in lowest terms": {"length": {"noisy": [2, 4]}},
    "too fine": {"length": {"noisy": [1, 2**48 + 1]}},
    "negative": {"length": {"noisy": [-1, 2]}},
    "one number": {"length": {"noisy": [1]}},
    "a word": {"length": "hidden"},
    "a number": {"length": 5},
    "null": {"length": None},
}


@pytest.mark.parametrize("case", BAD)
def test_policies_that_hide_nothing_are_refused(table, case):
    with pytest.raises(PolicyError):
        release(table, ["alpha"], {**STRICT, **BAD[case]})
