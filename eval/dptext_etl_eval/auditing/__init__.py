"""Audit a policy or a mechanism: let its own code draw, and hold what was seen against what is claimed."""
