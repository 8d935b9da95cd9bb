"""Measurements of surrogate, each in a separate process: `python surrogate_tasks.py NAME '{"parameter": value}'`.

Corpora and texts are made of random words with random vectors. They mean nothing; their time and memory are real.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks import clocked

DIMENSIONS = 300
WORDS = 8_000
LENGTH = 10
BLOCK = 5_000
SEED = 7


def made(m: int, rows: int) -> tuple[Any, list[str], Any]:
    """Write a corpus of m texts; return its folder (kept open), texts to release, and the generator."""
    import numpy as np

    from dptext_etl.corpora import Corpus, WordEncoder

    rng = np.random.default_rng(SEED)
    words = vocabulary()
    vectors = (rng.normal(size=(WORDS, DIMENSIONS)) * 300).astype(np.int16)
    public, texts = random_texts(words, m, rng), random_texts(words, rows, rng)
    near = rng.integers(-20, 21, (m, DIMENSIONS), dtype=np.int8)  # of the length that encoded texts have
    folder = tempfile.TemporaryDirectory()
    facts = {"licence": "none", "provenance": "random words"}
    Corpus.save(Path(folder.name), public, facts, vectors=near, encoder=WordEncoder(words.tolist(), vectors))
    return folder, texts, rng


def vocabulary() -> Any:
    """Return the words that all texts are made of."""
    import numpy as np

    return np.array([f"w{chr(97 + i % 26)}{chr(97 + i // 26 % 26)}{chr(97 + i // 676)}" for i in range(WORDS)])


def random_texts(words: Any, count: int, rng: Any) -> list[str]:
    """Return this number of distinct texts of ten random words."""
    texts = [" ".join(words[row]) for row in rng.integers(0, len(words), (count, LENGTH))]
    assert len(set(texts)) == count, "texts of ten random words are distinct"
    return texts


def surrogate(m: int = 20_000, rows: int = 10_000, epsilon: float = 4.0) -> dict[str, Any]:
    """Release short texts over a corpus of m texts: encoding, draws, inner products, selection, joining."""
    import pyarrow as pa

    from dptext_etl import _kernel
    from dptext_etl.keys import RecordKeys
    from dptext_etl.mechanisms.surrogate import Surrogate

    folder, texts, _ = made(m, rows)
    with folder:
        mechanism = Surrogate(epsilon=epsilon, corpus=folder.name)
        column, ids = pa.array(texts, pa.large_string()), pa.array([str(row) for row in range(rows)])
        del texts
        key = _kernel.ReleaseKey(_kernel.Secret(), "bench", "text", "bench", mechanism.cfg())
        mechanism.release(column.slice(0, 64), RecordKeys(key, ids.slice(0, 64), 0))
        result = clocked(lambda: mechanism.release(column, RecordKeys(key, ids, 0)))
    return {**result, "rows": rows, "process": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def opened(folder: str, rows: int) -> dict[str, Any]:
    """Release over a corpus that another process wrote: the memory of this one holds no more than a release needs.

    The first release, which packs the corpus, stays outside the clock.
    """
    import numpy as np
    import pyarrow as pa

    from dptext_etl import _kernel
    from dptext_etl.keys import RecordKeys
    from dptext_etl.mechanisms.surrogate import Surrogate

    mechanism = Surrogate(epsilon=4.0, corpus=folder)
    texts = random_texts(vocabulary(), rows, np.random.default_rng(SEED + 1))
    column, ids = pa.array(texts, pa.large_string()), pa.array([str(row) for row in range(rows)])
    key = _kernel.ReleaseKey(_kernel.Secret(), "bench", "text", "bench", mechanism.cfg())
    mechanism.release(column.slice(0, 64), RecordKeys(key, ids.slice(0, 64), 0))
    result = clocked(lambda: mechanism.release(column, RecordKeys(key, ids, 0)))
    return {**result, "rows": rows, "process": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def million(rows: int = 1_000) -> dict[str, Any]:
    """Write a corpus of a million texts, and let another process release over it."""
    import subprocess

    folder, _, _ = made(1_000_000, 1)
    with folder:
        parameters = json.dumps({"folder": folder.name, "rows": rows})
        done = subprocess.run(
            [sys.executable, __file__, "opened", parameters], capture_output=True, text=True, check=True
        )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def plain(m: int = 20_000, rows: int = 2_000, d: int = 820) -> dict[str, Any]:
    """Do the same with numpy as a script would, from vectors that are encoded already: products, partition, choice."""
    import numpy as np

    folder, _, rng = made(2, 1)
    folder.cleanup()
    vectors = rng.integers(-20, 21, (m, DIMENSIONS)).astype(np.float32)
    queries = rng.integers(-20, 21, (rows, DIMENSIONS)).astype(np.float32)
    draws, chance = np.random.default_rng(SEED), 0.7

    def release() -> list[int]:
        chosen = []
        for start in range(0, rows, 64):
            for scores in queries[start : start + 64] @ vectors.T:
                near = np.argpartition(scores, m - d)[m - d :]
                chosen.append(int(draws.choice(near) if draws.random() < chance else draws.integers(m)))
        return chosen

    return {**clocked(release), "rows": rows}


TASKS: dict[str, Callable[..., dict[str, Any]]] = {
    "surrogate": surrogate,
    "opened": opened,
    "million": million,
    "plain": plain,
}

if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](**json.loads(sys.argv[2]))))
