"""The commands `dptext evaluate` and `dptext audit`."""
