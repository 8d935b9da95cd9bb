"""The raw table of a run: how it is read, which roles its columns play, which rows are new."""
