"""Every mechanism through a client of Spark Connect, a separate process: JSON in (argument), JSON out (a file)."""

import json
import sys
from pathlib import Path

from dptext_etl import ColumnPolicy, Policy, load
from dptext_etl.spark import register, register_view


def main(remote, key, rows, mechanisms, out):
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(remote).getOrCreate()
    assert not hasattr(spark, "_jvm")
    spark.createDataFrame(rows, "id string, text string, n int").createOrReplaceTempView("films")
    released = {}
    for name in mechanisms:
        mechanism = load(name).example()
        policy = ColumnPolicy(
            dataset="demo",
            column="text",
            release="r1",
            mechanism=mechanism,
            key=key,
            allow=mechanism.guarantee.disclosures,
        )
        for form in ("arrow",) if mechanism.accelerated else ("arrow", "pandas"):
            register(spark, "private_text", policy, form=form)
            query = "SELECT private_text(id => id, text => text) AS text FROM films ORDER BY n"
            released[f"{name} {form}"] = [row.text for row in spark.sql(query).collect()]
        if name == "custext":
            released["view"] = view(spark, policy)
    Path(out).write_text(json.dumps(released))


def view(spark, policy):
    """The texts of a view of the same policy, whose readers choose no id."""
    column = {"name": "text", "mechanism": policy.mechanism, "allow": policy.allow}
    entries = {"dataset": "demo", "release": "r1", "source": "a", "sink": "b", "id": "id", "unit": "record"}
    whole = Policy.parse(
        {
            **entries,
            "key": policy.key,
            "ledger": {"url": "l.db"},
            "keep": ["n"],
            "keep_unique": "accepted",
            "column": [column],
        }
    )
    made = register_view(spark, "released_films", table="films", policy=whole, charge=False)
    return [row.text for row in made.orderBy("n").collect()]


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
