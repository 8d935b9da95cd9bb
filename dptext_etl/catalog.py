"""Find mechanisms by their file names; no other registration is needed."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import Any

from dptext_etl import mechanisms
from dptext_etl.errors import PolicyError
from dptext_etl.mechanism import Mechanism
from dptext_etl.validation import validated


@cache
def available() -> tuple[str, ...]:
    """Return the names of all mechanisms, sorted.

    >>> "custext" in available()
    True
    """
    return tuple(sorted(name for _, name, _ in pkgutil.iter_modules(mechanisms.__path__)))


def load(name: str) -> type[Mechanism]:
    """Return the class of the mechanism `name`.

    Raises:
        PolicyError: There is no such mechanism.
    """
    if name not in available():
        raise PolicyError(
            f"there is no mechanism of that name; available: {', '.join(available())}", "see `dptext mechanisms`"
        )
    module = importlib.import_module(f"{mechanisms.__name__}.{name}")
    own = [
        item
        for _, item in inspect.getmembers(module, inspect.isclass)
        if issubclass(item, Mechanism) and item.__module__ == module.__name__ and not inspect.isabstract(item)
    ]
    if len(own) != 1:
        raise PolicyError(f"mechanisms/{name}.py holds {len(own)} mechanisms, it must hold exactly one")
    return own[0]


def build(parameters: Mapping[str, Any]) -> Mechanism:
    """Make a mechanism from plain data: `{"name": "custext", "epsilon": 2.0}`.

    Raises:
        PolicyError: The name or a parameter is unknown, or a value is out of range.
    """
    values = dict(parameters)
    name = values.pop("name", None)
    if not isinstance(name, str):
        raise PolicyError("a mechanism needs a name", f'write {{ name = "{available()[0]}", epsilon = 2.0 }}')
    kind = load(name)
    with validated(name, kind.model_fields, of=f"parameters of {name}"):
        return kind(**values)
