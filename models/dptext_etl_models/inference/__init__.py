"""Load neural models, batch their inputs, and compute their scores."""
