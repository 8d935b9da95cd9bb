"""Measurements, each in a separate process: `python tasks.py NAME '{"parameter": value}'` prints one JSON line.

Set-up (reading, building and mapping the table, one small call) stays outside the clock.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring import HERE, SKIPPED

SHARED = HERE.parents[2] / "shared" / "data"
K = 20
EPSILON = 2.0
BATCH = 100_000  # rows of a run's shard


def data(name: str) -> Path:
    """Return a file of real data, or end with a sentence."""
    path = SHARED / name
    if not path.exists():
        print(f"skipped: {name} does not lie in shared/data next to this checkout", file=sys.stderr)
        sys.exit(SKIPPED)
    return path


def clocked(work: Callable[[], Any]) -> dict[str, float]:
    """Run `work` and return its CPU-seconds (all threads), wall seconds and its addition to the peak of memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, cpu = time.perf_counter(), time.process_time()
    kept = work()
    result = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    result["peak"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    del kept
    return result


def imdb(words: int | None = None) -> tuple[Any, int]:
    """Return distinct reviews of IMDb as a frame (id, text) and their words; or as many as hold about `words` words."""
    import polars as pl

    frame = pl.read_parquet(data("imdb/imdb.parquet"), columns=["id", "text"])
    frame = frame.unique("text", maintain_order=True).with_columns(pl.col("id").cast(pl.String))
    count = pl.col("text").str.count_matches(r"\S+")
    if words is not None:
        turns = range(-(-words // int(frame.select(count.sum()).item())))
        turned = (frame.with_columns(pl.col("id") + f"-{turn}", rotated("text", turn)) for turn in turns)
        frame = pl.concat(turned).filter(count.cum_sum() <= words)
    frame = frame.rechunk()
    return frame, int(frame.select(count.sum()).item())


def rotated(name: str, turn: int) -> Any:
    """Return a column of texts with the first `turn` words behind the others, so that no text repeats one of before."""
    import polars as pl

    words = pl.col(name).str.split(" ")
    return words.list.slice(turn).list.concat(words.list.head(turn)).list.join(" ") if turn else pl.col(name)


def vectors() -> tuple[list[str], Any]:
    """Return 20,000 words and their 300-dimensional vectors."""
    import numpy as np

    with np.load(data("word_vectors/sgns_300d_30k.npz")) as stored:
        return [str(word) for word in stored["words"][:20_000]], stored["vectors"][:20_000].astype(np.float32)


def policy() -> Any:
    """Return the policy under which the column is measured, with a key that is thrown away."""
    from dptext_etl import ColumnPolicy, _kernel
    from dptext_etl.mechanisms.custext import CusText

    folder = Path(tempfile.mkdtemp(prefix="dptext-bench-"))
    _kernel.Secret().write(str(folder / "noise.key"))
    return ColumnPolicy(
        dataset="bench",
        column="text",
        release="bench",
        mechanism=CusText(epsilon=EPSILON, k=K),
        key=f"file:{folder / 'noise.key'}",
        allow={"cluster"},
    )


def column(words: int | None = None) -> dict[str, float]:
    """The expression over the column."""
    import polars as pl

    from dptext_etl.polars import privatize

    frame, count = imdb(words)
    expression = privatize("text", policy(), id="id")
    frame.head(50).select(expression)
    size = int(frame.select(pl.col("text").str.len_bytes().sum()).item())
    return {**clocked(lambda: frame.select(expression)), "words": count, "bytes": size}


def split_join() -> dict[str, float]:
    """Polars' own split and join of the column."""
    import polars as pl

    frame, count = imdb()
    expression = pl.col("text").str.split(" ").list.join(" ")
    frame.head(50).select(expression)
    return {**clocked(lambda: frame.select(expression)), "words": count}


def plain_texts(rows: int = 1_000) -> dict[str, float]:
    """The frozen loop over the first reviews, lower-cased and cut to words of its table: each is drawn."""
    from plain_loops import custext_mapping, custext_texts

    frame, _ = imdb()
    texts = frame["text"].head(rows).to_list()
    words, table = vectors()
    sets, probabilities = custext_mapping(words, table[:, :50], K, EPSILON)
    texts = [" ".join(word for word in text.lower().split() if word in sets) for text in texts]
    custext_texts(texts[:10], sets, probabilities)
    return {
        **clocked(lambda: custext_texts(texts, sets, probabilities)),
        "words": sum(len(text.split()) for text in texts),
    }


def plain_mapping() -> dict[str, float]:
    """The frozen loop that builds sets and probabilities, over the float64 that a script gets from a text file."""
    from plain_loops import custext_mapping

    words, table = vectors()
    table = table.astype("float64")
    return clocked(lambda: custext_mapping(words, table, K, EPSILON))


def mapping() -> dict[str, float]:
    """Our sets and integer weights of the same words, whose vectors both hold in memory when the clock starts."""
    import numpy as np

    from dptext_etl.mechanisms.custext import CusText

    words, table = vectors()
    folder = Path(tempfile.mkdtemp(prefix="dptext-bench-"))
    os.environ["DPTEXT_CACHE"] = str(folder / "cache")
    np.savez(folder / "vectors.npz", words=np.array(words), vectors=table)
    mechanism = CusText(epsilon=EPSILON, k=K, metric="cosine", vectors=str(folder / "vectors.npz"))
    mechanism.table_description()  # reads the vectors
    return clocked(mechanism.parts)


def santext(
    words: int | None = None, limit: int = 10_000, source: str = "english-20k", batch: int = BATCH
) -> dict[str, float]:
    """The SanText column over IMDb in batches, by default of a run, with its memory next to the text."""
    import pyarrow as pa

    from dptext_etl.column import draw
    from dptext_etl.keys import throwaway
    from dptext_etl.mechanisms.santext import SanText

    frame, count = imdb(words)
    if source == "random":
        source = random_vectors(frame)
    mechanism = SanText(epsilon=EPSILON, vectors=source, limit=limit)
    texts, ids = frame["text"].to_arrow(), frame["id"].to_arrow()
    started = time.process_time()
    key = throwaway(mechanism.cfg())
    draw(mechanism, texts.slice(0, 1), ids.slice(0, 1), key)
    result = {"ready": time.process_time() - started}

    def all_batches() -> list[pa.Array]:
        return [
            draw(mechanism, texts.slice(at, batch), ids.slice(at, batch), key).text
            for at in range(0, len(texts), batch)
        ]

    result |= clocked(all_batches)
    result["process"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {**result, "words": count, "bytes": float(texts.nbytes)}


def random_vectors(frame: Any, size: int = 65_000, dimensions: int = 300) -> str:
    """Write random vectors for the most frequent words of the texts: as many as no file of the shared data has."""
    import numpy as np
    import polars as pl

    words = frame.lazy().select(pl.col("text").str.to_lowercase().str.extract_all(r"[a-z]+").explode().alias("word"))
    common = words.group_by("word").len().sort("len", "word", descending=[True, False]).head(size).collect()["word"]
    listed = common.to_list() + [f"zz{at}" for at in range(size - len(common))]
    vectors = np.random.default_rng(5).normal(size=(size, dimensions)).astype(np.float32)
    path = Path(tempfile.mkdtemp(prefix="dptext-bench-")) / "random.npz"
    np.savez(path, words=np.array(listed), vectors=vectors)
    return str(path)


def plain_santext(rows: int = 200, limit: int = 10_000) -> dict[str, float]:
    """The frozen loop over the first reviews, lower-cased and cut to words of its vocabulary: each is drawn."""
    from plain_loops import santext_probabilities, santext_texts

    from dptext_etl.embeddings import WordVectors

    public = WordVectors.load(limit=limit)
    words = list(public.words)
    probabilities = santext_probabilities((public.vectors * public.scale).astype("float32"), EPSILON)
    frame, _ = imdb()
    vocabulary = set(words)
    texts = [" ".join(word for word in text.lower().split() if word in vocabulary) for text in frame["text"].head(rows)]
    santext_texts(texts[:2], words, probabilities)
    return {
        **clocked(lambda: santext_texts(texts, words, probabilities)),
        "words": sum(len(text.split()) for text in texts),
    }


TASKS: dict[str, Callable[..., dict[str, float]]] = {
    task.__name__: task for task in (column, split_join, plain_texts, plain_mapping, mapping, santext, plain_santext)
}

if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](**json.loads(sys.argv[2]))))
