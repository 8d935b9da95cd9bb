"""Hold the commands, one per file."""
