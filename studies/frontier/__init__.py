"""Measure what releases keep and what attackers get, over mechanisms, budgets and data sets."""
