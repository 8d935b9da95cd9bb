"""SanText's draws, one by one, against the layout of the streams read in Python.

Specification: docs/spec/stream.md#draws.

The path that releases texts groups words, weighs each once and draws by blocks and threads. Here every word is drawn
separately, from its explicit weights, at its own position of its own record's stream.
"""

import threading
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl import _kernel
from dptext_etl.families import distance
from dptext_etl.families.words import UNKNOWN
from dptext_etl.mechanisms.santext import SanText
from dptext_etl.sampling import integer_weights

from .fixed_keys import release_with_keys

KEYS = [bytes(range(at, at + 32)) for at in (50, 61, 72, 83)]
TEXTS = [
    "good the wordaa nonesuch good good wordbx",
    "The GOOD, wordaa!  42 wordcc wordcd",
    "",
    "good good good good good good good good good good good good good good good good good good good good",
]


def record_keys(keys=KEYS):
    return pa.array(keys, pa.binary(32))


def texts(given=TEXTS):
    return pa.array(given, pa.large_string())


def words_of(text):
    return [word.lower() for word, is_word in _kernel.split(text) if is_word]


def overflow(key, purpose, position):
    """The overflow words of a position, in sequence."""
    at = 0
    while True:
        yield from _kernel.stream_words(key, purpose | 2**31, position, at, 8)
        at += 8


def coin(key, position, p):
    """Bernoulli(p), docs/spec/stream.md#discrete-laplace: purpose 3, width 0, an integer below p's denominator."""
    share = Fraction(repr(p))
    bound = 2**64 // share.denominator * share.denominator
    word = next(word for word in overflow(key, 3, position) if word < bound)
    return word % share.denominator < share.numerator


def alone(mechanism, key, text):
    """The release of one text, drawn word by word; independent of the mechanism's `choose`."""
    words, outputs = mechanism.words, list(mechanism.pair_weights.outputs.words)
    columns = [words.index[word] for word in outputs]
    width = 2 if len(outputs) > 4_096 else 1
    released = []
    for position, word in enumerate(words_of(text)):
        if word not in words.index:
            released.append(outputs[_kernel.below(key, 1, position, len(outputs), width)])
        elif mechanism.shows_words and word not in outputs and not coin(key, position, mechanism.p):
            released.append(word)
        else:
            squared = words.squared_distances([words.index[word]], columns)[0].astype(float)
            scores = -(np.sqrt(squared) * words.scale)
            weights = integer_weights(scores, mechanism.pair_weights.exponent, low=-mechanism.diameter, high=0.0)
            released.append(outputs[_kernel.draw(key, 1, position, weights.tolist(), width)])
    return " ".join(released)


def matches(mechanism, given=TEXTS, keys=KEYS):
    """Whether a batch is released as its texts are separately, and again, when rows of its words are kept."""
    released = release_with_keys(mechanism, texts(given), record_keys(keys)).text.to_pylist()
    again = release_with_keys(mechanism, texts(given), record_keys(keys)).text.to_pylist()
    return released == again == [alone(mechanism, key, text) for key, text in zip(keys, given, strict=True)]


VARIANTS = [
    {},
    {"variant": "plus", "p": 1.0},
    {"variant": "plus", "p": 0.3},
    {"variant": "plus", "p": 0.3, "sensitive_share": 0.9},
]


@pytest.mark.parametrize("options", VARIANTS)
@pytest.mark.parametrize("epsilon", [0.5, 5.0])
def test_every_word_is_drawn_as_alone(small_vectors, epsilon, options):
    assert matches(SanText(epsilon=epsilon, vectors=small_vectors, **options))


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """5,000 words: draws of two levels."""
    random = np.random.default_rng(11)
    words = np.array([*(f"w{chr(97 + i // 676)}{chr(97 + i // 26 % 26)}{chr(97 + i % 26)}" for i in range(5_000))])
    path = tmp_path_factory.mktemp("many") / "many.npz"
    np.savez(path, words=words, vectors=random.normal(size=(5_000, 4)).astype(np.float32))
    return str(path)


@pytest.mark.parametrize("options", [{}, {"variant": "plus", "p": 0.5, "sensitive_share": 0.9}])
def test_two_levels_above_4096_words(many, options):
    mechanism = SanText(epsilon=1.0, vectors=many, **options)
    assert mechanism.pair_weights.width == 2
    assert matches(mechanism, ["waaa wbbc zzz waaa waab wfxh", "weee wdef unknown", "waaa", "wabc waaa"])


@pytest.mark.parametrize("options", [*VARIANTS, {"length": "fixed", "n_max": 9}])
@pytest.mark.parametrize(("cells", "threads"), [(1, "3"), (200, "1")])
def test_batch_order_blocks_and_threads_change_nothing(small_vectors, options, cells, threads, monkeypatch):
    mechanism = SanText(epsilon=4.0, vectors=small_vectors, **options)
    whole = release_with_keys(mechanism, texts(), record_keys()).text.to_pylist()
    monkeypatch.setattr(distance, "CELLS", cells)
    monkeypatch.setattr(distance, "AT_ONCE", min(cells, 8))
    monkeypatch.setenv("DPTEXT_THREADS", threads)
    mechanism = SanText(epsilon=4.0, vectors=small_vectors, **options)  # without kept rows
    assert release_with_keys(mechanism, texts(), record_keys()).text.to_pylist() == whole
    backwards = release_with_keys(mechanism, texts(TEXTS[::-1]), record_keys(KEYS[::-1])).text.to_pylist()
    assert backwards == whole[::-1]
    for key, text, expected in zip(KEYS, TEXTS, whole, strict=True):
        assert release_with_keys(mechanism, texts([text]), record_keys([key])).text.to_pylist() == [expected]


def test_blocks_of_words_are_drawn_side_by_side(small_vectors, monkeypatch):
    mechanism = SanText(epsilon=4.0, vectors=small_vectors)
    monkeypatch.setattr(distance, "CELLS", 1)
    monkeypatch.setenv("DPTEXT_THREADS", "1")
    expected = release_with_keys(mechanism, texts(), record_keys()).text
    block, meeting, begun = distance.PairWeights.block, threading.Barrier(2), iter(range(2))

    def met(self, rows):
        if next(begun, None) is not None:
            meeting.wait(timeout=600)
        return block(self, rows)

    monkeypatch.setattr(distance.PairWeights, "block", met)
    monkeypatch.setenv("DPTEXT_THREADS", "2")
    mechanism = SanText(epsilon=4.0, vectors=small_vectors)  # without kept rows
    assert release_with_keys(mechanism, texts(), record_keys()).text.equals(expected)
    assert not meeting.broken


@pytest.mark.parametrize("largest", [3, 65_534, 65_535, 65_536, 300_000])
def test_draws_are_sorted_by_word_unknown_ones_last(largest):
    words = np.random.default_rng(2).integers(0, largest + 1, 5_000).astype(np.uint32)
    words[::7] = UNKNOWN
    words[3] = largest
    draws = distance.Draws(record_keys(), np.arange(5_000, dtype=np.uint32), np.arange(5_000, dtype=np.uint64), words)
    assert (draws.by_word() == np.argsort(words, kind="stable")).all()


def test_the_width_of_the_product_changes_nothing(small_vectors):
    """float32 and float64 products of the same grid are the same integers, so the same weights and draws."""
    mechanism = SanText(epsilon=4.0, limit=300)
    assert mechanism.words.floats.dtype == np.float32
    narrow = release_with_keys(mechanism, texts(), record_keys())
    fresh = SanText(epsilon=4.0, limit=300)
    distance.shared_vocabulary.cache_clear()
    fresh.words.__dict__["floats"] = fresh.words.floats.astype(np.float64)
    try:
        assert release_with_keys(fresh, texts(), record_keys()).text.equals(narrow.text)
    finally:
        distance.shared_vocabulary.cache_clear()


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.data())
def test_draws_are_numbered_by_record_and_position(counts, data):
    first = data.draw(st.integers(0, len(counts)))
    last = data.draw(st.integers(first, len(counts)))
    offsets = np.cumsum([0, *counts]).astype(np.uint64)
    found = distance.number_draws(np.arange(offsets[-1], dtype=np.uint32), offsets, None, first, last)
    expected = [(record, place) for record in range(first, last) for place in range(counts[record])]
    assert list(zip(found.records.tolist(), found.positions.tolist(), strict=True)) == expected
    assert found.words.tolist() == list(range(offsets[first], offsets[last]))
