"""Release a column within a lazy query. An expression writes no ledger: what leaves your boundary comes from a run."""

import polars as pl
from reviews import make

import dptext_etl.polars  # brings .dptext to expressions and frames
from dptext_etl import Policy

policy = Policy.load(make())
query = pl.scan_parquet("reviews.parquet").filter(pl.col("stars") >= 3).dptext.privatize(policy, select=True)
dptext_etl.polars.guard(query, policy=policy)  # refuses a plan in which raw text gets out
released = query.collect()
print(released.head(3))
print(released.group_by("stars").len().sort("stars"))
