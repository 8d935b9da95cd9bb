"""Scores of words that papers after paper 001 take: key words of a text, and what a language model attends to."""
