"""Release a DataFrame as a run does, on the executors: ledger, gates and publication included."""

from pathlib import Path

from pyspark.sql import SparkSession
from reviews import make

from dptext_etl.spark import published, run_frame

policy = make()
spark = SparkSession.builder.master("local[2]").getOrCreate()
frame = spark.read.parquet(str(Path("reviews.parquet").absolute()))
summary = run_frame(frame, policy)
print(f"released {summary.rows['released']} rows, version {summary.version}")
published(spark, str(Path("published/reviews").absolute())).show(3, truncate=False)
