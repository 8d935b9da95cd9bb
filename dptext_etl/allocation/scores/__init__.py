"""One score per file; its file name is its name."""
