"""Facts as people and machines read them."""
