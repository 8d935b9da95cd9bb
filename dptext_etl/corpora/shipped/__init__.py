"""Corpora that come with the library, each written by a module of its own."""
