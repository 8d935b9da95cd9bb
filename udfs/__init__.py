"""Re-exports of `dptext_etl.polars` and `dptext_etl.spark`, where users of the engines look first."""
