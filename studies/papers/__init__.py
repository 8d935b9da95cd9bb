"""The settings of the five papers, as data."""
