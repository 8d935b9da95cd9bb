"""Audit a policy or a mechanism: let its own code draw, and compare the results with the claim."""
