"""Charge, compute, stage and commit one shard after the other."""
