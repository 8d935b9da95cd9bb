"""Great Expectations over released tables."""
