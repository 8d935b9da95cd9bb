"""Runs over tables of short rows, each in a separate process: `python scale_tasks.py NAME '{"parameter": value}'`."""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks import EPSILON, clocked, data

CHUNK = 500_000


def table(folder: str, rows: int) -> dict[str, float]:
    """Write `rows` short rows, then the same with a thousand more: distinct utterances, then pairs of their halves."""
    import polars as pl

    text = (
        pl.read_parquet(data("public_corpus/sgd_utterances.parquet"), columns=["text"])
        .drop_nulls()
        .unique(maintain_order=True)
    )
    words, half = pl.col("text").str.split(" "), pl.col("text").str.split(" ").list.len() // 2
    begins, ends = text.select(begins=words.list.head(half), ends=words.list.slice(half))
    turns = range(1, -(-(rows + 1_000) // text.height) * 5 // 4 + 1)
    paired = (begins.list.concat(ends.tail(-turn).append(ends.head(turn))).list.join(" ") for turn in turns)
    texts = pl.concat([text["text"], *paired]).unique(maintain_order=True)
    for name, height in (("raw.parquet", rows), ("more.parquet", rows + 1_000)):
        numbers = pl.int_range(height, eager=True)
        frame = pl.DataFrame({"id": pl.select(pl.format("r{}", numbers)).to_series(), "text": texts.head(height)})
        frame.write_parquet(Path(folder) / name, row_group_size=CHUNK)
    return {"bytes": float(frame["text"].str.len_bytes().sum())}


def run(folder: str, source: str) -> dict[str, float]:
    """Run CusText over a table as an incremental release, gates and publication included."""
    from dptext_etl import Policy, _kernel
    from dptext_etl import run as run_policy

    place = Path(folder)
    if not (place / "noise.key").exists():
        _kernel.Secret().write(str(place / "noise.key"))
    os.environ["DPTEXT_ANCHORS"] = str(place / "anchors")
    plan = Policy.parse(
        {
            "dataset": "bench",
            "release": "1",
            "source": str(place / source),
            "sink": str(place / "published"),
            "staging": str(place / "inside"),
            "id": "id",
            "unit": "record",
            "incremental": True,
            "key": f"file:{place / 'noise.key'}",
            "ledger": {"url": f"sqlite:///{place / 'ledger.db'}"},
            "cap": {"measure": "pure", "epsilon": 2000, "period": "2026"},
            "column": [{"name": "text", "mechanism": {"name": "custext", "epsilon": EPSILON}, "allow": ["cluster"]}],
        }
    )
    mechanism: Any = plan.column_policies()[0].mechanism
    _ = mechanism.table
    text: dict[str, Any] = {}
    result = clocked(lambda: text.update(run_policy(plan).as_dict()))
    whole = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {**result, "whole": whole, "new": text["rows"]["new"], "published": text["published_rows"]}


TASKS: dict[str, Callable[..., dict[str, float]]] = {"table": table, "run": run}


if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](**json.loads(sys.argv[2]))))
