"""Read the raw table of a run, give its columns their roles, and find its new rows."""
