"""A Dagster code location over `privacy.toml`: small enough to copy."""
