"""Run models that turn a text into a vector, and a vector into a text."""
