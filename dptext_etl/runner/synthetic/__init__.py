"""Charge, sum, stage, and publish a synthetic table (docs/spec/synthetic.md#runs)."""
