"""Masked language models: which positions are drawn, and how they are scored."""
