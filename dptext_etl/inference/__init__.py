"""Neural models: loading, batching, scoring."""
