"""Draw words by their places on public lists in which neighbours stand beside each other."""
