"""Canary rows: what they are made of, where they stand, how they are found again."""
