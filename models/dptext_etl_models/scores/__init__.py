"""Scores of words after Meisenbacher et al. 2025: key words of a text, and the attention of a language model."""
