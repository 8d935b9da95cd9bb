"""Measurements in Spark, each in a separate process, as in `tasks.py`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks import imdb, policy


def session(folder: Path) -> Any:
    """Start Spark with two task slots, only on the loopback."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder),
    }
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def films_of(spark: Any, folder: Path) -> tuple[Any, int, int]:
    """Return IMDb as a cached frame of four partitions, its words and its rows."""
    reviews, count = imdb()
    reviews.write_parquet(folder / "imdb.parquet")
    films = spark.read.parquet(str(folder / "imdb.parquet")).repartition(4).cache()
    return films, count, films.count()


def seconds(spark: Any, query: str) -> float:
    """Run a query to a sink that keeps nothing; seconds elapsed."""
    began = time.perf_counter()
    spark.sql(query).write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def identity_function(spark: Any) -> None:
    """Register the Arrow function that gives its column back."""
    import pyarrow as pa
    from pyspark.sql.pandas.functions import arrow_udf

    def same(text: pa.Array) -> pa.Array:
        return text

    same.__annotations__ = {"text": pa.Array, "return": pa.Array}
    declare: Any = arrow_udf  # its overloads expect annotations that users write
    spark.udf.register("same", declare(same, "string"))


def functions(times: int = 5) -> dict[str, float]:
    """The SQL functions in turn, the best of several times each; with a ledger, the best of as many new ledgers."""
    from dptext_etl.spark import register

    folder = Path(tempfile.mkdtemp(prefix="dptext-bench-"))
    spark = session(folder)
    films, words, rows = films_of(spark, folder)
    films.createOrReplaceTempView("films")
    identity_function(spark)
    plan = policy()
    register(spark, "by_arrow", plan, form="arrow")
    register(spark, "by_pandas", plan, form="pandas")
    queries = {
        "identity": "SELECT same(text) FROM films",
        "arrow": "SELECT by_arrow(text, id) FROM films",
        "pandas": "SELECT by_pandas(text, id) FROM films",
        "ledger": "SELECT charged(text, id) FROM films",
    }
    seconds_of: dict[str, list[float]] = {name: [] for name in queries}
    for turn in range(times + 1):
        register(spark, "charged", plan, ledger=f"sqlite:///{folder / f'{turn}.db'}", unit="record")
        for name, query in queries.items():
            seconds_of[name].append(seconds(spark, query))
    spark.stop()
    shutil.rmtree(folder, ignore_errors=True)
    return {**{name: min(taken[1:]) for name, taken in seconds_of.items()}, "words": words, "rows": rows}


def frame() -> dict[str, float]:
    """A whole run of the frame, after a small one that starts the workers."""
    from dptext_etl.spark import run_frame

    folder = Path(tempfile.mkdtemp(prefix="dptext-bench-"))
    spark = session(folder)
    films, words, rows = films_of(spark, folder)
    films.createOrReplaceTempView("films")
    identity_function(spark)
    identity = min(seconds(spark, "SELECT same(text) FROM films") for _ in range(3))
    plan = policy()

    def whole(chosen: Any, name: str) -> float:
        places = {"sink": str(folder / name), "staging": str(folder / f"{name}.staging")}
        entries: dict[str, Any] = {**places, "ledger": {"url": f"sqlite:///{folder / name}.db"}, "unit": "record"}
        began = time.perf_counter()
        run_frame(chosen, plan, id="id", **entries)
        return time.perf_counter() - began

    whole(films.limit(200), "small")
    wall = whole(films, "large")
    spark.stop()
    shutil.rmtree(folder, ignore_errors=True)
    return {"wall": wall, "identity": identity, "words": words, "rows": rows}


def tweets(folder: Path, rows: int) -> Path:
    """Write a table of distinct short texts, each with an id and an author of about seven texts."""
    import numpy as np
    import polars as pl
    from run_tasks import short_texts

    users = np.random.default_rng(7).integers(0, rows // 7 + 1, rows)
    table = short_texts(rows).with_columns(user=pl.Series(users))
    table.write_parquet(folder / "tweets.parquet")
    return folder / "tweets.parquet"


def tree_seconds() -> float:
    """Return the CPU-seconds of this process and all that it started: Spark's Java, and the workers of that."""
    ticks, seconds_of, parents = os.sysconf("SC_CLK_TCK"), {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            facts = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(facts[1])
            seconds_of[int(path.parent.name)] = sum(map(int, facts[11:15])) / ticks  # with children that ended

    def below(process: int) -> float:
        return seconds_of[process] + sum(below(child) for child, parent in parents.items() if parent == process)

    return below(os.getpid())


def entries(folder: Path, name: str) -> dict[str, Any]:
    """Return the entries of a run of the tweets, without its column."""
    return {
        "sink": str(folder / name),
        "staging": str(folder / f"{name}.staging"),
        "subject": "user",
        "cap": {"measure": "pure", "epsilon": 1e6},
        "ledger": {"url": f"sqlite:///{folder / name}.db"},
    }


def short_rows(rows: int = 1_000_000) -> dict[str, float]:
    """A run over short rows, after a small one that starts the workers; next to it the SQL function."""
    from dptext_etl.spark import register, run_frame

    folder = Path(tempfile.mkdtemp(prefix="dptext-bench-"))
    spark = session(folder)
    frame = spark.read.parquet(str(tweets(folder, rows)))
    frame.createOrReplaceTempView("tweets")
    plan = policy()
    register(spark, "private", plan)
    function = min(seconds(spark, "SELECT private(text, id) FROM tweets") for _ in range(2))
    run_frame(frame.limit(200), plan, id="id", **entries(folder, "small"))
    began, used = time.perf_counter(), tree_seconds()
    run_frame(frame, plan, id="id", **entries(folder, "large"))
    result = {"wall": time.perf_counter() - began, "cpu": tree_seconds() - used, "function": function, "rows": rows}
    spark.stop()
    shutil.rmtree(folder, ignore_errors=True)
    return result


def command(rows: int = 1_000_000) -> dict[str, float]:
    """The same rows by `dptext run --engine spark`, the start of Spark included; it finds two cores."""
    from dptext_etl import Policy

    folder = Path(tempfile.mkdtemp(prefix="dptext-bench-"))
    column, where = policy(), entries(folder, "large")
    whole = Policy.parse(
        {
            "dataset": "bench",
            "release": "bench",
            "source": str(tweets(folder, rows)),
            "id": "id",
            "key": column.key,
            "column": [{"name": "text", "mechanism": {"name": "custext", "epsilon": 2.0}, "allow": ["cluster"]}],
            **where,
        }
    )
    written = "\n".join(f"{name} = {_toml(value)}" for name, value in whole.model_dump(**AS_WRITTEN).items())
    (folder / "privacy.toml").write_text(written)
    began = time.perf_counter()
    line = [sys.executable, "-m", "dptext_etl.cli", "run", str(folder / "privacy.toml"), "--engine", "spark"]
    subprocess.run(line, check=True, capture_output=True, env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"})
    wall = time.perf_counter() - began
    shutil.rmtree(folder, ignore_errors=True)
    return {"wall": wall, "rows": rows}


AS_WRITTEN: dict[str, Any] = {"mode": "json", "by_alias": True, "exclude_none": True}


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_toml(item)}" for name, item in value.items() if item is not None) + "}"
    return json.dumps(value) if not isinstance(value, list) else f"[{', '.join(map(_toml, value))}]"


TASKS: dict[str, Callable[..., dict[str, float]]] = {
    "functions": functions,
    "frame": frame,
    "short_rows": short_rows,
    "command": command,
}

if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](**json.loads(sys.argv[2]))))
