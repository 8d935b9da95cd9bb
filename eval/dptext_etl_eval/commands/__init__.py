"""The commands `dptext evaluate`, `dptext audit`, and `dptext rehearse`."""
