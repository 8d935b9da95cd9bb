"""Compute the shards of a run in this process, with Polars."""
