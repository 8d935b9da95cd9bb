"""Small lists, releases from them, and an independent law to compare with."""

import hashlib
import json

import numpy as np
import pyarrow as pa
from safetensors.numpy import save

from dptext_etl import _kernel

from .tables import STRICT, blob

TOKEN, LIST = 1, 2
ONE_LEVEL = 4096

DROP = {**STRICT, "oov": "drop", "numbers": "drop"}

FAITHFUL = {**STRICT, "oov": "keep", "numbers": "keep"}

TEM = {"tem": {"weights": [40, 20, 7], "outside": 3}}

GEOMETRIC = {"geometric": {"rate": [1, 3]}}


def names(n):
    return [f"w{i}x" for i in range(n)]


def orders(n, count, seed=0):
    rng = np.random.default_rng(seed)
    return np.array([rng.permutation(n) for _ in range(count)], np.uint32)


def write(path, words, order, law, kept=(), metadata=None, **changed):
    tensors = {"inputs": blob(words), "lists": np.asarray(order, np.uint32).ravel(), "kept": blob(kept), **changed}
    stated = {"format": "dptext-lists/1", "description": "{}"}
    stated |= {"law": law if isinstance(law, str) else json.dumps(law)} if law is not None else {}
    kept_tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    path.write_bytes(save(kept_tensors, stated | (metadata or {})))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make(path, words, order, law, **options):
    return _kernel.Table.open(str(path), write(path, words, order, law, **options))


def release(table, texts, key, policy=STRICT):
    keys = pa.array([key] * len(texts), pa.binary(32))
    return pa.array(table.release_with_keys(keys, pa.array(texts), json.dumps(policy))).to_pylist()


def explicit(law, n, place):
    weights, outside = law["tem"]["weights"], law["tem"]["outside"]
    return [weights[abs(j - place)] if abs(j - place) < len(weights) else outside for j in range(n)]


def oracle_list(key, position, count):
    return _kernel.below(key, LIST, position, count, 1) if count > 1 else 0


def oracle_tem(key, position, word, lists, law):
    """The list by purpose 2, then the draw from explicit weights over its places."""
    count, n = lists.shape
    order = lists[oracle_list(key, position, count)].tolist()
    weights = explicit(law, n, order.index(word))
    return order[_kernel.draw(key, TOKEN, position, weights, 2 if n > ONE_LEVEL else 1)]


def oracle_geometric(key, position, word, lists, law):
    count, n = lists.shape
    order = lists[oracle_list(key, position, count)].tolist()
    step = _kernel.discrete_laplace(key, TOKEN, position, *law["geometric"]["rate"])
    return order[min(max(order.index(word) + step, 0), n - 1)]


def oracle_text(key, words, lists, law):
    """Released words; -1 is an unknown word."""
    oracle = oracle_tem if "tem" in law else oracle_geometric
    n = lists.shape[1]
    width = 2 if n > ONE_LEVEL and "tem" in law else 1
    drawn = [
        oracle(key, position, word, lists, law) if word >= 0 else _kernel.below(key, TOKEN, position, n, width)
        for position, word in enumerate(words)
    ]
    return " ".join(f"w{word}x" for word in drawn)


def text(words):
    return " ".join("unknown" if word < 0 else f"W{word}X" for word in words)
