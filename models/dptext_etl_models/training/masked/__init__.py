"""Masked language models for DP-MLM: examples, training, clips and the figures of their cards."""
