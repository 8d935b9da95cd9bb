"""Recipes for the tables of the papers."""
