"""Families of mechanisms that draw from a model's scores, or add noise to its vectors."""
