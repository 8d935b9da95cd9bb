"""Publish staged shards: gates, parts, manifest."""
