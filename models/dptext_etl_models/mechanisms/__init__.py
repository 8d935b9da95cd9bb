"""The mechanisms, one per file; `pyproject.toml` lists each as an entry point."""
