"""Judge a published table by the suite of its policy, and a table downstream for words that no one released."""

import polars as pl
from reviews import make

from dptext_etl import Policy, run
from dptext_etl.checks.great_expectations.expectations import suite_for, validate_downstream

policy = Policy.load(make())
run(policy)
print([type(expectation).__name__ for expectation in suite_for(policy).expectations])
released = pl.read_parquet("published/reviews")
print("what was published:", "passes" if validate_downstream(released, policy).success else "fails")
leaking = released.with_columns(pl.lit("The room was clean and the staff were friendly.").alias("review"))
print("raw text in its place:", "passes" if validate_downstream(leaking, policy).success else "fails")
