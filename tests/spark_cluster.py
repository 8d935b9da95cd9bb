"""A Spark application in a separate process, for drills that need another master or whole logs: JSON in, JSON out."""

import json
import sys
import time
from pathlib import Path

from dptext_etl import ColumnPolicy
from dptext_etl.engines.spark import worker_policy
from dptext_etl.spark import register


def slow_first_attempt(folder, seconds):
    """Pass rows on; the first attempt of partition 0 sleeps after it has passed them, so that another is started."""

    def passing(batches):
        from pyspark import TaskContext

        task = TaskContext.get()
        yield from batches
        with (Path(folder) / "attempts").open("a") as file:
            file.write(f"{task.partitionId()}-{task.attemptNumber()}\n")
        if task.partitionId() == 0 and task.attemptNumber() == 0:
            time.sleep(seconds)

    return passing


def where(_text):
    """Where the worker has what computes there."""
    import sys
    from importlib.util import find_spec

    return " ".join([sys.executable, *(find_spec(name).origin for name in ("dptext_etl", "numpy", "pandas", "polars"))])


def main(master, settings, policy, rows, ledger, folder, queries, slow=0, one_machine=False):
    from pyspark.sql import SparkSession

    if one_machine:  # a cluster whose workers share this machine, and so the ledger's file
        worker_policy.is_local = lambda spark: True
    spark = SparkSession.builder.master(master).config(map=settings).getOrCreate()
    frame = spark.createDataFrame(rows, "id string, review string, n int").repartition(4)
    frame.createOrReplaceTempView("films")
    register(spark, "private_review", ColumnPolicy(**policy), ledger=ledger, unit="record")
    spark.udf.register("where_computed", where)
    said = []
    for query in queries:
        try:
            out = spark.sql(query)
            if slow:
                out = out.mapInArrow(slow_first_attempt(folder, slow), out.schema)
            said.append([list(row) for row in out.collect()])
        except Exception as exc:  # noqa: BLE001  (the drill reads what it says)
            said.append(str(exc))
    (Path(folder) / "said.json").write_text(json.dumps(said))
    spark.stop()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
