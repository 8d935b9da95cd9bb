"""What is measured in Spark, each in a process of its own, as in `tasks.py`."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks import imdb, policy


def session(folder: Path) -> Any:
    """Start Spark with two task slots, on the loopback alone."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    settings = {
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
    """Run a query to a sink that keeps nothing; seconds by the clock."""
    began = time.perf_counter()
    spark.sql(query).write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def identity_function(spark: Any) -> None:
    """Register the Arrow function that gives its column back."""
    import pyarrow as pa
    from pyspark.sql.functions import arrow_udf

    def same(text: pa.Array) -> pa.Array:
        return text

    same.__annotations__ = {"text": pa.Array, "return": pa.Array}
    spark.udf.register("same", arrow_udf(same, "string"))


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
    found: dict[str, list[float]] = {name: [] for name in queries}
    for turn in range(times + 1):
        register(spark, "charged", plan, ledger=f"sqlite:///{folder / f'{turn}.db'}", unit="record")
        for name, query in queries.items():
            found[name].append(seconds(spark, query))
    spark.stop()
    shutil.rmtree(folder, ignore_errors=True)
    return {**{name: min(taken[1:]) for name, taken in found.items()}, "words": words, "rows": rows}


def frame() -> dict[str, float]:
    """A whole run of the frame, after a small one that starts the workers."""
    from dptext_etl.spark import privatize_frame

    folder = Path(tempfile.mkdtemp(prefix="dptext-bench-"))
    spark = session(folder)
    films, words, rows = films_of(spark, folder)
    films.createOrReplaceTempView("films")
    identity_function(spark)
    identity = min(seconds(spark, "SELECT same(text) FROM films") for _ in range(3))
    plan = policy()

    def whole(chosen: Any, name: str) -> float:
        entries = {"sink": str(folder / name), "ledger": {"url": f"sqlite:///{folder / name}.db"}, "unit": "record"}
        began = time.perf_counter()
        privatize_frame(chosen, plan, id="id", **entries)
        return time.perf_counter() - began

    whole(films.limit(200), "small")
    wall = whole(films, "large")
    spark.stop()
    shutil.rmtree(folder, ignore_errors=True)
    return {"wall": wall, "identity": identity, "words": words, "rows": rows}


TASKS: dict[str, Callable[..., dict[str, float]]] = {"functions": functions, "frame": frame}

if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](**json.loads(sys.argv[2]))))
