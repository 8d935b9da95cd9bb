"""Models that make a vector of a text, and a text of a vector."""
