"""Lists of made-up words for tests of list mechanisms."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from dptext_etl.artifacts import save_tensors
from dptext_etl.embeddings.neighbor_lists import FORMAT

from .fixed_keys import release_with_keys

KEYS = [bytes(range(start, start + 32)) for start in (100, 7)]


def spelling(number):
    letters = "abcdefghij"
    return "w" + "".join(letters[int(digit)] for digit in str(number))


def write(path, count, lists, words=None):
    """Save lists of words; equal lengths or not."""
    tensors = {
        "words": np.frombuffer("\n".join(words or map(spelling, range(count))).encode(), np.uint8),
        "lists": np.concatenate(lists).astype(np.uint32),
        "offsets": np.cumsum([0, *map(len, lists)]).astype(np.uint64),
    }
    save_tensors(Path(path), tensors, {"format": FORMAT, "description": "{}"})
    return str(path)


def permuted(folder, count, number):
    """Save lists of `count` words, the first in order, the others permuted; return the path and the lists."""
    random = np.random.default_rng(count)
    orders = [np.arange(count), *(random.permutation(count) for _ in range(number - 1))]
    return write(Path(folder) / f"{count}-{number}.safetensors", count, orders), orders


def drawn(mechanism, text, key):
    """The words that the kernel releases under an explicit record key."""
    out = release_with_keys(mechanism, pa.array([text], pa.large_string()), pa.array([key], pa.binary(32)))
    return out.text[0].as_py().split(" ")
