"""Small tables, and releases from them."""

import hashlib
import json

import numpy as np
import pyarrow as pa
from safetensors.numpy import save

from dptext_etl import _kernel

WORDS = ["alpha", "beta", "gamma", "delta", "don't", "42", "straße", "a_word_of_more_than_sixteen"]

STRICT = {
    "case": "lower",
    "punctuation": "drop",
    "numbers": "uniform",
    "oov": "uniform",
    "null": "pass",
    "n_max": 10_000,
}

FAITHFUL = {"case": "keep", "punctuation": "keep", "numbers": "keep", "oov": "keep", "null": "pass", "n_max": 10_000}

KEY = _kernel.ReleaseKey(_kernel.Secret.from_bytes(bytes(range(32))), "demo", "text", "r1", "ab" * 32)


def blob(words):
    return np.frombuffer("\n".join(words).encode(), np.uint8)


def tensors(**changed):
    """Two sets of four words; weights 1..4, shifted by the word's number."""
    rows = np.array([[(i + j) % 4 + 1 for j in range(4)] for i in range(8)], np.uint64)
    return {
        "inputs": blob(WORDS),
        "outputs": blob([]),
        "kept": blob(["of", "the"]),
        "input_set": np.array([0, 0, 0, 0, 1, 1, 1, 1], np.uint32),
        "set_offsets": np.array([0, 4, 8], np.uint64),
        "members": np.arange(8, dtype=np.uint32),
        "row_offsets": np.arange(0, 36, 4, dtype=np.uint64),
        "cumulative": rows.cumsum(axis=1).astype(np.uint64).ravel(),
        **changed,
    }


def write(path, metadata=None, **changed):
    contents = {name: tensor for name, tensor in tensors(**changed).items() if tensor is not None}
    path.write_bytes(save(contents, metadata or {"format": "dptext-table/1", "description": "{}"}))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def release(table, texts, ids=None, policy=STRICT, **options):
    ids = pa.array([f"r{i}" for i in range(len(texts))], pa.string()) if ids is None else ids
    return pa.array(table.release(KEY, texts, ids, json.dumps(policy), **options))
