"""Keys, streams and draws to the byte: golden vectors (docs/spec/stream.md#golden-vectors), laws of draws, tables.

Specification: docs/spec/privacy.md#s1, docs/spec/privacy.md#s3.

`oracle_*` is a second implementation of docs/spec/stream.md#stream, only from the standard library and `cryptography`.
"""

import hashlib
import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl import _kernel
from dptext_etl.families.stored_distributions import TableParts, save_table
from dptext_etl.families.words import STRICT_INPUT
from tests.later import later

from ..examples import examples
from .stream_oracle import (
    CFG,
    CONFIG,
    HEAVY,
    OVERFLOW,
    RECORD,
    WIDE,
    K,
    oracle_canon,
    oracle_draw,
    oracle_fingerprint,
    oracle_record,
    oracle_uniform,
    oracle_words,
    record_key,
)

stats = later("scipy.stats")


def test_golden_configuration():
    assert hashlib.sha256(b"dptext/cfg/v1\0" + oracle_canon(CONFIG)).hexdigest() == CFG


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hello world", "774be836d12083dc945348d57c4d3ad318e88102c7d7cfecfe386e88c3009040"),
        ("", "e1b25f843348e4c7be7e55b37001264a5446c8d9283aac744067859a58c99d2a"),
        (None, "8f5fd4ce5863a64fcb4d4464429b160b36b9f8fec2bf53eaf7b215aa46c99f1b"),
    ],
)
def test_golden_fingerprints(text, expected):
    assert (
        _kernel.fingerprint(_kernel.Secret.from_bytes(K), text).hex() == expected == oracle_fingerprint(K, text).hex()
    )


@pytest.mark.parametrize(
    ("rid", "text", "nonce", "expected"),
    [
        ("r1", "hello world", 0, RECORD.hex()),
        ("r1", "hello world", 1, "8d15bbbcd471a7fbdccc977e0e14a36bd3636aa919e837721be6a17fcad167ff"),
        ("é", "naïve 😀", 0, "a83c05f3c18de1b3f2447b2f5b8c606cdc32ff5a2dd450ecbd461596d73b9852"),
    ],
)
def test_golden_record_keys(rid, text, nonce, expected):
    assert (
        record_key(rid, text, nonce).hex()
        == expected
        == oracle_record(K, "demo", "text", "2025-01", CFG, rid, text, nonce).hex()
    )


@given(
    st.lists(st.text(max_size=20), min_size=6, max_size=6), st.none() | st.text(max_size=50), st.integers(0, 2**64 - 1)
)
@examples(100)
def test_record_keys_agree_with_the_oracle_for_any_names(names, text, nonce):
    dataset, column, release, cfg, rid, secret = names
    secret = hashlib.sha256(secret.encode()).digest()
    key = _kernel.ReleaseKey(_kernel.Secret.from_bytes(secret), dataset, column, release, cfg)
    got = pa.array(_kernel.record_keys(key, pa.array([rid]), pa.array([text], pa.string()), nonce))[0].as_py()
    assert got == oracle_record(secret, dataset, column, release, cfg, rid, text, nonce)
    idem = pa.array(_kernel.idem_keys(key, pa.array([rid]), pa.array([text], pa.string()), nonce))[0].as_py()
    line = [dataset, release, column, rid, cfg, oracle_fingerprint(secret, text).hex(), nonce]
    assert idem == hashlib.sha256(oracle_canon(line)).digest()


@pytest.mark.parametrize(
    ("purpose", "position", "first", "expected"),
    [
        (1, 0, 0, "63290b2eae1b6bdf 9f3d7647e616b13e caee7d709ef0cb75 0457a761c1b521a9"),
        (1, 0, 9, "7109568f8f281272 85ba37d42941d5cd"),
        (4, 0, 14, "476c99379e215d40 1dbc576963fb618f"),
        (1 | OVERFLOW, 3, 0, "2b53c5fb98838ecb 6d622b4411d105e4 d67b7f7beed98191"),
    ],
)
def test_golden_words(purpose, position, first, expected):
    n = len(expected.split())
    words = _kernel.stream_words(RECORD, purpose, position, first, n)
    assert " ".join(f"{word:016x}" for word in words) == expected
    assert words == oracle_words(RECORD, purpose, position, first, n)


@pytest.mark.parametrize(
    ("weights", "width", "first", "expected"),
    [
        ([5, 1, 3], 1, 0, [0, 0, 2, 0, 2, 0, 2, 0, 2, 0, 0, 0, 2, 2, 2, 2]),
        ([5, 1, 3], 1, 4, [2, 0, 2, 0]),
        ([3 * 2**61, 1, 2**60], 1, 0, [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]),
        (WIDE, 2, 0, [2683, 2683, 2473, 9827, 984, 2279, 2552, 2681]),
        ([5, 1, 3], 2, 0, [0]),
        (WIDE, 2, 1, [2683]),
        ([5, 1, 3], 2, 2, [2]),
        (HEAVY, 2, 0, [4303, 3349, 5161, 660, 834, 255, 2469, 255]),
        (HEAVY, 2, 10, [4501]),
        (HEAVY, 2, 18, [255]),
        (HEAVY, 2, 8, [255]),
        (HEAVY, 2, 50, [26]),
    ],
)
def test_golden_draws(weights, width, first, expected):
    positions = range(first, first + len(expected))
    assert [_kernel.draw(RECORD, 1, p, weights, width) for p in positions] == expected
    assert _kernel.draw_positions(RECORD, 1, first, len(expected), weights, width) == expected
    assert [oracle_draw(RECORD, 1, p, weights, width) for p in positions] == expected


def test_golden_uniform():
    assert _kernel.below(RECORD, 1, 3, 20000, 1) == 18441 == oracle_uniform(RECORD, 1, 3, 20000, 1)


@given(
    st.binary(min_size=32, max_size=32),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**30),
    st.lists(st.integers(0, 2**57), min_size=1, max_size=60).filter(any),
    st.sampled_from([1, 2, 5]),
)
@examples(200)
def test_draws_agree_with_the_oracle(key, purpose, position, weights, width):
    assert _kernel.draw(key, purpose, position, weights, width) == oracle_draw(key, purpose, position, weights, width)
    bound = sum(weights)
    assert _kernel.below(key, purpose, position, bound, width) == oracle_uniform(key, purpose, position, bound, width)


@pytest.mark.parametrize("m", [4096, 4097, 4352, 4353, 5120, 9999])
def test_two_levels_agree_with_the_oracle(m):
    weights = [(i * 2654435761) % 1009 * (2**40 if i % 3 else 0) for i in range(m)]
    drawn = _kernel.draw_positions(RECORD, 1, 0, 200, weights, 2)
    assert drawn == [oracle_draw(RECORD, 1, p, weights, 2) for p in range(200)]


def test_a_wide_set_needs_a_wide_slot():
    with pytest.raises(Exception, match="slot of two words"):
        _kernel.draw(RECORD, 1, 0, WIDE, 1)


@pytest.mark.parametrize("weights", [[], [0, 0], [2**63, 2**63]])
def test_totals_out_of_range_are_refused(weights):
    with pytest.raises(Exception, match="weight"):
        _kernel.draw(RECORD, 1, 0, weights, 1)


S1_ROWS = {
    "three": [5, 1, 3],
    "one": [7],
    "some never": [0, 10, 0, 1, 0],
    "twenty": [1 + (i * 37) % 101 for i in range(20)],
    "near 2^62": [2**61, 2**59, 2**60 + 1],
    "two levels": [1 + (i % 256 == 7) * 4000 + (i < 256) * 30 for i in range(5000)],
}


@pytest.mark.parametrize("name", S1_ROWS)
def test_s1_draws_follow_the_weights(name):
    """Chi-square of 40,000 draws against w/W; rare outcomes are pooled so that every cell expects at least 5."""
    weights = S1_ROWS[name]
    drawn = np.array(_kernel.draw_positions(hashlib.sha256(name.encode()).digest(), 1, 0, 40_000, weights, 2))
    counts = np.bincount(drawn, minlength=len(weights))
    expected = np.array([float(w) for w in weights]) / float(sum(weights)) * len(drawn)
    assert not counts[expected == 0].any()
    counts, expected = counts[expected > 0], expected[expected > 0]
    rare = expected < 5
    if rare.any():
        counts = np.append(counts[~rare], counts[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    if len(counts) > 1:
        assert stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 1e-6


@pytest.mark.parametrize("bound", [1, 2, 3, 2**46 + 1, 2**61 + 1, 2**10, 2**32, 2**63, 2**63 + 1, 2**64 - 1])
def test_s3_uniform_integers_below(bound):
    """Every word is accepted or rejected as the formula says; the result is uniform over 16 cells."""
    key = hashlib.sha256(str(bound).encode()).digest()
    n = 4000
    drawn = [_kernel.below(key, 1, p, bound, 1) for p in range(n)]
    assert drawn == [oracle_uniform(key, 1, p, bound, 1) for p in range(n)]
    words = oracle_words(key, 1, 0, 0, n)
    rejected = sum(word > (2**64 // bound) * bound - 1 for word in words)
    if 2**64 % bound == 0:
        assert rejected == 0
    else:
        chance = (2**64 % bound) / 2**64
        assert abs(rejected - n * chance) <= 6 * (n * chance) ** 0.5 + 1
    cells = min(bound, 16)
    counts = np.bincount([value * cells // bound for value in drawn], minlength=cells)
    sizes = np.array([-(-(i + 1) * bound // cells) - -(-i * bound // cells) for i in range(cells)], float)
    if cells > 1:
        assert stats.chisquare(counts, n * sizes / sizes.sum()).pvalue > 1e-6


SMALL = ["alpha", "beta", "gamma", "delta", "don't", "42", "straße", "a-word-of-more-than-sixteen", "epsilon"]


def small_parts(kept=()):
    sets = [np.array([0, 1, 2, 3, 4]), np.array([5, 6, 7, 8])]
    weights = [
        1 + np.arange(25, dtype=np.uint64).reshape(5, 5) ** 3,
        2**40 + np.arange(16, dtype=np.uint64).reshape(4, 4),
    ]
    return TableParts.partition(SMALL, sets, weights, kept=kept), sets, weights


def wide_parts(inputs):
    words = [f"word{i}x" for i in range(4100)]
    row = np.array([1 + (i * 7919) % 1009 for i in range(4100)], dtype=np.uint64)
    weights = [np.stack([np.roll(row, i % 5) for i in inputs])]
    return TableParts([words[i] for i in inputs], [np.arange(4100)], np.zeros(len(inputs), np.uint32), weights, words)


def opened(parts, path):
    save_table(path, parts.tensors(), {})
    return _kernel.Table.open(str(path), hashlib.sha256(path.read_bytes()).hexdigest())


def test_a_release_is_the_oracle_word_by_word(tmp_path):
    parts, sets, weights = small_parts(kept=["the"])
    table = opened(parts, tmp_path / "small.safetensors")
    texts = [
        "Alpha, beta! The unknown GAMMA 42 17 don\u2019t A-word",
        "STRASSE straße Straße",
        "",
        None,
        "…",
        "the",
        "Delta " * 50,
    ]
    key = _kernel.ReleaseKey(_kernel.Secret.from_bytes(K), "demo", "text", "2025-01", CFG)
    policy = json.dumps({**STRICT_INPUT, "n_max": 40})
    out = pa.array(table.release(key, pa.array(texts), pa.array([f"r{i}" for i in range(len(texts))]), policy))
    for i, text in enumerate(texts):
        if text is None:
            assert out[i].as_py() == {"text": None, "positions": 0}
            continue
        record = oracle_record(K, "demo", "text", "2025-01", CFG, f"r{i}", text, 0)
        words = [word.lower().replace("\u2019", "'") for word, is_word in _kernel.split(text) if is_word][:40]
        expected, position = [], 0
        for word in words:
            if word == "the":
                expected.append(word)
                continue
            if word in SMALL:
                members, rows = next((m, w) for m, w in zip(sets, weights, strict=True) if SMALL.index(word) in m)
                row = [int(w) for w in rows[list(members).index(SMALL.index(word))]]
                expected.append(SMALL[members[oracle_draw(record, 1, position, row, 1)]])
            else:
                expected.append(SMALL[oracle_uniform(record, 1, position, len(SMALL), 1)])
            position += 1
        assert out[i].as_py() == {"text": " ".join(expected), "positions": position}


def test_a_release_from_a_wide_table_is_the_oracle(tmp_path):
    inputs = [0, 3, 7, 4099]
    parts = wide_parts(inputs)
    table = opened(parts, tmp_path / "wide.safetensors")
    assert (table.width, table.max_set, table.sets) == (2, 4100, 1)
    key = _kernel.ReleaseKey(_kernel.Secret.from_bytes(K), "d", "c", "r", CFG)
    text = "word0x unknown word7x WORD4099X 12 word3x"
    out = pa.array(table.release(key, pa.array([text]), pa.array(["a"]), json.dumps({**STRICT_INPUT, "n_max": 100})))
    record = oracle_record(K, "d", "c", "r", CFG, "a", text, 0)
    rows = {i: [int(w) for w in row] for i, row in zip(inputs, parts.weights[0], strict=True)}
    draws = [
        oracle_draw(record, 1, p, rows[i], 2) if i is not None else oracle_uniform(record, 1, p, 4100, 2)
        for p, i in enumerate([0, None, 7, 4099, None, 3])
    ]
    assert out[0].as_py() == {"text": " ".join(f"word{i}x" for i in draws), "positions": 6}
