"""From staged shards to a published version: gates, parts, manifest."""
