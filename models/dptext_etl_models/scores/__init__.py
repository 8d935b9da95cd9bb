"""Scores of words that papers after paper 001 use: key words of a text, and the attention of a language model."""
