"""Models that write text: denoisers, paraphrasers and rewriters, and the pairs that they learn from."""
