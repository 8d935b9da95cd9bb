"""The commands of `dptext train`, one per file."""
