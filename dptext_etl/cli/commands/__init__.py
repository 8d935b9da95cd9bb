"""Define the commands."""
