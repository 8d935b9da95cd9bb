"""Compute the shards of a run on the executors of Spark."""
