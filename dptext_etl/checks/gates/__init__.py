"""The gates, one per file: the file is the registration (`checks.gate.every`)."""
