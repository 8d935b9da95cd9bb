"""DP-MLM's work on the host, with batches as large as a GPU's and no model: the work that a GPU would wait for.

    python studies/benchmarks/bench_dpmlm_host.py          # a table
    python studies/benchmarks/bench_dpmlm_host.py --json   # the same rows as JSON

Texts and the tokenizer are made here; the model is a stub, and nothing is drawn.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import gpu_models
import gpu_shares
from measuring import Row, best, main

TEXTS, TOKENS = 20_000, 30_000
GOALS = {"sequential": 5.0, "block": 3.0, "parallel": 1.5}  # CPU-µs a word


def rows() -> list[Row]:
    """Measure everything and return the rows of the table."""
    with tempfile.TemporaryDirectory(prefix="dptext-bench-") as folder:
        size = replace(gpu_models.WHOLE, tokens=TOKENS, roberta=gpu_models.TINY.roberta, bart=gpu_models.TINY.bart)
        gpu_models.build(Path(folder), size)
        seconds = {name: best(2, name, script=Path(__file__).name, folder=folder)["cpu"] * 1e6 for name in GOALS}
    return [
        Row(
            f"DP-MLM, {name}: work of the host, {TEXTS:,} texts of 2 to 50 words, batches of a GPU, one thread",
            f"{seconds[name]:.2f} CPU-µs a word",
            goal=f"<= {goal}",
            met=seconds[name] <= goal,
        )
        for name, goal in GOALS.items()
    ]


def task(name: str, folder: str) -> dict[str, float]:
    """Measure one kind of decoding, in a separate process."""
    settings = {} if name == "sequential" else {"decoding": name} | ({"block": 4} if name == "block" else {})
    mechanism = gpu_models.dpmlm(Path(folder), **settings)
    return {"cpu": gpu_shares.host(mechanism, gpu_models.texts(TEXTS, gpu_models.WHOLE, seed=3))}


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in GOALS:
        print(json.dumps(task(sys.argv[1], **json.loads(sys.argv[2]))))
    else:
        main(rows)
