"""Release a column with a SQL function that charges the ledger, batch by batch, on the executors."""

from pathlib import Path

from pyspark.sql import SparkSession
from reviews import make

from dptext_etl import Policy
from dptext_etl.spark import register

policy = Policy.load(make())
spark = SparkSession.builder.master("local[2]").getOrCreate()
spark.read.parquet(str(Path("reviews.parquet").absolute())).createOrReplaceTempView("raw_reviews")
register(spark, "private_review", policy.column_policy("review"), ledger=f"sqlite:///{Path('sql.db').absolute()}")
released = spark.sql("SELECT id, stars, private_review(review, id, user_id) AS review FROM raw_reviews")
released.show(3, truncate=False)
