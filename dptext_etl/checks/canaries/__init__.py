"""Plant canary rows, find them again, and bound what chance does to their words."""
