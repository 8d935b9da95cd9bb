"""The gates, each a class in a file of this folder: the file is the registration (`checks.gate.every`)."""
