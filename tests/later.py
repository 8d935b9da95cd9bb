"""Modules that are imported when a test first uses them: each worker collects all files, and runs a part of them."""

import importlib
from importlib.util import find_spec

import pytest


class Later:
    """A module that is not imported yet."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, item):
        if item.startswith("__") or item == "_mock_name":  # pytest looks for them in every name of a file
            raise AttributeError(item)
        return getattr(importlib.import_module(self._name), item)


def later(name, reason=None):
    """Return the module as `pytest.importorskip` does, but import it at its first use."""
    package = name.partition(".")[0]
    if find_spec(package) is None:
        pytest.skip(reason or f"{package} is not installed", allow_module_level=True)
    return Later(name)
