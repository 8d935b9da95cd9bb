"""Draw and score the positions of texts with masked language models."""
