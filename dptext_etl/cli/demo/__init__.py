"""Provide the data, the planted bug and the report of `dptext demo`."""
