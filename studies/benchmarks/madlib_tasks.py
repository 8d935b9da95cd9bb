"""Measurements of MADLIB, each in a separate process as in `tasks.py`."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

from tasks import clocked, data, imdb, random_vectors

EPSILON = 10.0
ROWS = 1_000  # of a batch
VECTORS = "word_vectors/sgns_300d_30k.npz"


def madlib(words: int = 100_000, limit: int = 20_000, source: str = VECTORS) -> dict[str, float]:
    """The column over IMDb in batches, with its memory next to the text."""
    import pyarrow as pa

    from dptext_etl.column import draw
    from dptext_etl.keys import throwaway
    from dptext_etl.mechanisms.madlib import Madlib

    frame, count = imdb(words)
    vectors = random_vectors(frame) if source == "random" else str(data(source))
    mechanism = Madlib(epsilon=EPSILON, vectors=vectors, limit=limit)
    texts, ids = frame["text"].to_arrow(), frame["id"].to_arrow()
    started = time.process_time()
    key = throwaway(mechanism.cfg())
    draw(mechanism, texts.slice(0, 1), ids.slice(0, 1), key)
    result = {"ready": time.process_time() - started}

    def all_batches() -> list[Any]:
        batches = range(0, len(texts), ROWS)
        return [draw(mechanism, texts.slice(at, ROWS), ids.slice(at, ROWS), key) for at in batches]

    drawn = int(pa.compute.sum(mechanism.positions(texts)).as_py())
    result |= clocked(all_batches)
    result["process"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {**result, "words": drawn, "read": count, "bytes": float(texts.nbytes)}


def plain_madlib(rows: int = 20, limit: int = 20_000) -> dict[str, float]:
    """The frozen loop over the first reviews, lower-cased and cut to words of its vocabulary: each is drawn."""
    from plain_loops import madlib_texts

    from dptext_etl.embeddings import WordVectors

    public = WordVectors.load(data(VECTORS), limit=limit)
    words = list(public.words)
    vectors = (public.vectors * public.scale).astype("float32")
    frame, _ = imdb()
    vocabulary = set(words)
    texts = [" ".join(word for word in text.lower().split() if word in vocabulary) for text in frame["text"].head(rows)]
    madlib_texts(texts[:1], words, vectors, EPSILON)
    return {
        **clocked(lambda: madlib_texts(texts, words, vectors, EPSILON)),
        "words": sum(len(text.split()) for text in texts),
    }


TASKS: dict[str, Callable[..., dict[str, float]]] = {task.__name__: task for task in (madlib, plain_madlib)}

if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](**json.loads(sys.argv[2]))))
