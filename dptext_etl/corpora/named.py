"""Find corpora by name: each is one module, here one of `dptext_etl.corpora.shipped`, which writes it on first use.

The module of `everyday-30k` is `everyday_30k`. It has `description()`, everything that the content depends on, and
`build(path)`, which writes the file.
"""

from __future__ import annotations

from pathlib import Path

from dptext_etl import extensions
from dptext_etl.artifacts import store


def names() -> tuple[str, ...]:
    """Return the names of all corpora that are installed, sorted.

    >>> "example" in names()
    True
    """
    return tuple(sorted(name.replace("_", "-") for name in extensions.names("corpora")))


def place(name: str) -> Path | None:
    """Return the file of an installed corpus, written once per machine; None for another name."""
    module_name = name.replace("-", "_")
    if "_" in name or not extensions.known("corpora", module_name):
        return None
    module = extensions.module("corpora", module_name)
    return store(module.description(), module.build, suffix=".safetensors").path
