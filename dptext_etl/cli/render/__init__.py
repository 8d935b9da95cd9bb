"""Render facts for people and for machines."""
