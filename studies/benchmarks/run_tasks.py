"""What `bench_run` measures, each in a separate process: `python run_tasks.py NAME '{"parameter": value}'`."""

from __future__ import annotations

import functools
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks import EPSILON, clocked, data, imdb, policy, rotated

SHORT = 140
"""Characters of a short text, at most."""


def keep_to(cores: int | None, first: int = 0) -> None:
    """Let this process run on this number of cores from the first one on; call it before a library makes threads."""
    if cores is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[first : first + cores])


def short_texts(rows: int) -> Any:
    """Return distinct public utterances and sentences as a frame (id, text), rotated once there are no more."""
    import polars as pl

    sentence = pl.read_parquet(data("public_corpus/sgd_utterances.parquet"), columns=["text"])
    written = pl.read_parquet(data("public_corpus/wiki_en.parquet"), columns=["text"])
    sentences = written.select(pl.col("text").str.split(". ").explode().str.slice(0, SHORT))
    texts = pl.concat([sentence, sentences]).filter(pl.col("text").str.len_chars() > SHORT // 7)
    texts = texts.unique(maintain_order=True)
    turns = range(-(-rows // texts.height) + 1)
    texts = pl.concat(texts.select(rotated("text", turn)) for turn in turns).unique(maintain_order=True).head(rows)
    return texts.with_row_index("id").select(pl.format("t{}", "id").alias("id"), "text").rechunk()


class Job:
    """A policy over a table in a separate folder.

    Args:
        frame: The table.
        entries: Further entries of the policy.
    """

    def __init__(self, frame: Any, **entries: Any) -> None:
        from dptext_etl import Policy

        self.folder = Path(tempfile.mkdtemp(prefix="dptext-bench-"))
        self.source = self.folder / "raw.parquet"
        frame.write_parquet(self.source)
        self.column = policy()
        _ = self.column.mechanism.table
        text = {"name": "text", "mechanism": {"name": "custext", "epsilon": EPSILON}, "allow": ["cluster"]}
        values = {
            "dataset": "bench",
            "release": "1",
            "source": str(self.source),
            "sink": str(self.folder / "published"),
            "staging": str(self.folder / "inside"),
            "id": "id",
            "unit": "record",
            "key": self.column.key,
            "ledger": {"url": f"sqlite:///{self.folder / 'ledger.db'}"},
            "column": [text],
        }
        self.policy = Policy.parse({**values, **entries})


def run(rows: int | None = None, cores: int | None = None, first: int = 0, **entries: Any) -> dict[str, Any]:
    """A whole run over IMDb, or over short texts, with its profile and the share of the ledger's methods.

    Args:
        rows: Number of short texts; None uses IMDb.
        cores: Cores to keep to; None uses all.
        first: The first of them.
        entries: Further entries of the policy.
    """
    keep_to(cores, first)
    frame, words = imdb() if rows is None else (short_texts(rows), 0)
    job = Job(frame, **entries)
    size = frame.height
    del frame
    from dptext_etl import Ledger, engines  # `bench_start` measures the imports at the start

    summaries, job_run = list[Any](), engines.run
    ledger = Stopwatch()
    ledger.attach(Ledger)
    result = clocked(lambda: summaries.append(job_run(job.policy)))
    shutil.rmtree(job.folder)
    profile = {cost["name"]: cost["cpu_seconds"] for cost in summaries[0].profile}
    return {
        **result,
        "words": words,
        "rows": size,
        "ledger_cpu": ledger.cpu,
        "ledger_wall": ledger.wall,
        "reports": profile["reports"] / sum(profile.values()),
    }


def parts(cores: int | None = None) -> dict[str, Any]:
    """The necessary work of a run over IMDb: read, draw and write with only Polars and the mechanism."""
    keep_to(cores)
    import polars as pl

    from dptext_etl.column import release

    frame, _ = imdb()
    job = Job(frame)
    del frame

    def work() -> None:
        read = pl.read_parquet(job.source)
        texts = release(read["text"].to_arrow(), read["id"].to_arrow(), job.column).text
        read.with_columns(pl.Series("text", texts)).write_parquet(job.folder / "released.parquet")

    result = clocked(work)
    shutil.rmtree(job.folder)
    return result


def plan(rows: int = 1_000_000) -> dict[str, Any]:
    """A plan of a run over short texts."""
    from dptext_etl.runner import plan as planned

    job = Job(short_texts(rows))
    result = clocked(lambda: planned(job.policy))
    shutil.rmtree(job.folder)
    return result


class Stopwatch:
    """Adds up the time inside a class's methods; a method that calls another is counted once."""

    def __init__(self) -> None:
        self.cpu = self.wall = 0.0
        self._depth = 0

    def attach(self, kind: type) -> None:
        """Watch every method that the class defines."""
        for name, method in list(vars(kind).items()):
            if isinstance(method, classmethod):
                setattr(kind, name, classmethod(self._timed(method.__func__)))
            elif callable(method):
                setattr(kind, name, self._timed(method))

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def timed(*arguments: Any, **named: Any) -> Any:
            self._depth += 1
            wall, cpu = time.perf_counter(), time.process_time()
            try:
                return method(*arguments, **named)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.wall += time.perf_counter() - wall
                    self.cpu += time.process_time() - cpu

        return timed


TASKS: dict[str, Callable[..., dict[str, Any]]] = {task.__name__: task for task in (run, parts, plan)}

if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](**json.loads(sys.argv[2]))))
