"""Draw words by their places on public lists in which neighbors stand in parallel."""
