"""One shard after the other: charge, compute, stage, commit."""
