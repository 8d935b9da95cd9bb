"""Doors into engines: `udfs.polars` and `udfs.spark`, over `dptext_etl.column` and the kernel."""
