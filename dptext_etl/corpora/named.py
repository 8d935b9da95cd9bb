"""Find corpora by name: each is one module of `dptext_etl.corpora.shipped`, which writes it on first use.

The module of `everyday-30k` is `everyday_30k`. It has `description()`, everything that the content depends on, and
`build(path)`, which writes the file; nothing registers it elsewhere.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from dptext_etl.artifacts import store
from dptext_etl.corpora import shipped


def names() -> tuple[str, ...]:
    """Return the names of all corpora that come with the library, sorted.

    >>> "example" in names()
    True
    """
    return tuple(sorted(name.replace("_", "-") for _, name, _ in pkgutil.iter_modules(shipped.__path__)))


def place(name: str) -> Path | None:
    """Return the file of a corpus that comes with the library, written once per machine; None for another name.

    Raises:
        ArtifactError: The artifact cache cannot be written.
    """
    if name not in names():
        return None
    module = importlib.import_module(f"{shipped.__name__}.{name.replace('-', '_')}")
    return store(module.description(), module.build, suffix=".safetensors").path
