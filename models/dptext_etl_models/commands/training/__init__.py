"""Hold the commands of `dptext train`, one per file."""
