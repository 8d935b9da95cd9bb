"""A release from a table is the oracle's, word by word."""

import hashlib
import json

import numpy as np
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.families.stored_distributions import TableParts
from dptext_etl.families.words import STRICT_INPUT

from .stream_oracle import CFG, K, oracle_draw, oracle_record, oracle_uniform

SMALL = ["alpha", "beta", "gamma", "delta", "don't", "42", "straße", "a-word-of-more-than-sixteen", "epsilon"]


def small_parts(kept=()):
    sets = [np.array([0, 1, 2, 3, 4]), np.array([5, 6, 7, 8])]
    weights = [
        1 + np.arange(25, dtype=np.uint64).reshape(5, 5) ** 3,
        2**40 + np.arange(16, dtype=np.uint64).reshape(4, 4),
    ]
    return TableParts.partition(SMALL, sets, weights, kept=kept), sets, weights


def wide_parts():
    words = [f"word{i}x" for i in range(4100)]
    row = np.array([1 + (i * 7919) % 1009 for i in range(4100)], dtype=np.uint64)
    sets = [np.arange(4100)]
    return TableParts(words, sets, np.zeros(4100, np.uint32), [np.stack([np.roll(row, i % 5) for i in range(4100)])])


def opened(parts, path):
    parts.save(path, {})
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
    parts = wide_parts()
    table = opened(parts, tmp_path / "wide.safetensors")
    assert (table.width, table.max_set, table.sets) == (2, 4100, 1)
    key = _kernel.ReleaseKey(_kernel.Secret.from_bytes(K), "d", "c", "r", CFG)
    text = "word0x unknown word7x WORD4099X 12 word3x"
    out = pa.array(table.release(key, pa.array([text]), pa.array(["a"]), json.dumps({**STRICT_INPUT, "n_max": 100})))
    record = oracle_record(K, "d", "c", "r", CFG, "a", text, 0)
    rows = {i: [int(w) for w in parts.weights[0][i]] for i in (0, 7, 4099, 3)}
    draws = [
        oracle_draw(record, 1, p, rows[i], 2) if i is not None else oracle_uniform(record, 1, p, 4100, 2)
        for p, i in enumerate([0, None, 7, 4099, None, 3])
    ]
    assert out[0].as_py() == {"text": " ".join(f"word{i}x" for i in draws), "positions": 6}
