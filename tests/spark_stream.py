"""A stream in a separate process, which may kill itself and its Java while it works: JSON in, a table out."""

import json
import os
import signal
import sys

from dptext_etl import ColumnPolicy
from dptext_etl.spark import register


def main(settings, policy, ledger, schema, folder, die):
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    register(spark, "private_review", ColumnPolicy(**policy), ledger=ledger, unit="record")

    def killed():
        os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def publish(batch, number):
        rows = batch.selectExpr("n", "private_review(review, id) AS review")
        if die == "before the sink":
            rows.foreach(lambda row: None)
            killed()
        rows.write.mode("overwrite").parquet(f"{folder}/released/batch={number}")
        if die == "after the sink":
            killed()

    stream = spark.readStream.schema(schema).json(f"{folder}/arriving").writeStream.foreachBatch(publish)
    stream = stream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    stream.start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
