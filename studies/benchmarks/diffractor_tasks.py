"""Measurements of 1-Diffractor, each in a separate process as in `tasks.py`."""

from __future__ import annotations

import functools
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks import clocked, data, imdb

LISTS = 5
GAMMA = 5


def orders(limit: int, count: int = LISTS) -> str:
    """Write permutations of the first embedded words, whose draws cost as much as lists'; return the path."""
    import numpy as np

    from dptext_etl.artifacts import save_tensors
    from dptext_etl.embeddings import WordVectors
    from dptext_etl.embeddings.neighbor_lists import FORMAT

    words = WordVectors.load(limit=limit).words
    random = np.random.default_rng(5)
    tensors: dict[str, np.ndarray[Any, Any]] = {
        "words": np.frombuffer("\n".join(words).encode(), np.uint8),
        "lists": np.concatenate([random.permutation(limit) for _ in range(count)]).astype(np.uint32),
        "offsets": (np.arange(count + 1) * limit).astype(np.uint64),
    }
    path = Path(tempfile.mkdtemp(prefix="dptext-bench-")) / "lists.safetensors"
    save_tensors(path, tensors, {"format": FORMAT, "description": "{}"})
    return str(path)


def diffractor(words: int | None = None, variant: str = "tem", limit: int = 5_000) -> dict[str, float]:
    """The expression over IMDb: five lists of 5,000 words."""
    import polars as pl

    from dptext_etl import ColumnPolicy, _kernel
    from dptext_etl.mechanisms.diffractor import Diffractor
    from dptext_etl.polars import privatize

    frame, count = imdb(words)
    folder = Path(tempfile.mkdtemp(prefix="dptext-bench-"))
    _kernel.Secret().write(str(folder / "noise.key"))
    mechanism = Diffractor(epsilon=1.0, variant=variant, lists=orders(limit))
    policy = ColumnPolicy(
        dataset="bench", column="text", release="bench", mechanism=mechanism, key=f"file:{folder / 'noise.key'}"
    )
    expression = privatize("text", policy, id="id")
    frame.head(50).select(expression)
    size = int(frame.select(pl.col("text").str.len_bytes().sum()).item())
    return {**clocked(lambda: frame.select(expression)), "words": count, "bytes": size}


def plain_diffractor(variant: str = "tem", rows: int = 150, limit: int = 5_000) -> dict[str, float]:
    """The frozen loop over the first reviews, lower-cased and cut to words of its lists: each is drawn."""
    from plain_loops import diffractor_geometric, diffractor_tem

    from dptext_etl.embeddings.neighbor_lists import NeighborLists

    lists = NeighborLists.open(orders(limit))
    listed = [[lists.words[word] for word in order] for order in lists.lists]
    places = [{word: place for place, word in enumerate(order)} for order in listed]
    frame, _ = imdb()
    vocabulary = set(lists.words)
    texts = [" ".join(word for word in text.lower().split() if word in vocabulary) for text in frame["text"].head(rows)]
    loop: Callable[..., list[str]] = diffractor_geometric
    if variant == "tem":
        loop = functools.partial(diffractor_tem, gamma=GAMMA)
    loop(texts[:2], listed, places, 1.0)
    return {
        **clocked(lambda: loop(texts, listed, places, 1.0)),
        "words": sum(len(text.split()) for text in texts),
    }


def public_vectors(limit: int) -> Any:
    """Vectors of the first words of the largest shared embedding."""

    from dptext_etl.embeddings import WordVectors

    whole = WordVectors.load(data("word_vectors/sgns_300d_30k.npz"))
    return whole.take(whole.words[:limit])


def diffractor_list(limit: int = 5_000) -> dict[str, float]:
    """Our list of the first words, 300 dimensions."""

    from dptext_etl.embeddings.neighbor_lists import nearest_walk

    vectors = public_vectors(limit)
    nearest_walk(vectors.take(vectors.words[:100]))
    return clocked(lambda: nearest_walk(vectors))


def plain_diffractor_list(limit: int = 5_000) -> dict[str, float]:
    """The frozen loop that makes the same list."""
    from plain_loops import diffractor_lists

    vectors = public_vectors(limit)
    return clocked(lambda: diffractor_lists(list(vectors.words), [vectors.vectors * vectors.scale]))


def one_product(limit: int = 5_000) -> dict[str, float]:
    """One product of the vectors with themselves in float32, in blocks, the least cost of comparing all pairs."""
    import numpy as np

    matrix = public_vectors(limit).vectors.astype(np.float32)

    def blocks() -> None:
        for start in range(0, limit, 512):
            matrix[start : start + 512] @ matrix.T

    return clocked(blocks)


TASKS: dict[str, Callable[..., dict[str, float]]] = {
    task.__name__: task for task in (diffractor, plain_diffractor, diffractor_list, plain_diffractor_list, one_product)
}

if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](**json.loads(sys.argv[2]))))
