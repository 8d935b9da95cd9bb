"""Find mechanisms and post-processings by their file names; no other registration is needed."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from functools import cache
from types import ModuleType
from typing import Any, TypeVar

from dptext_etl import mechanisms, postprocess
from dptext_etl.errors import PolicyError
from dptext_etl.mechanism import Mechanism
from dptext_etl.postprocessing import PostProcess
from dptext_etl.validation import validated

Kind = TypeVar("Kind", Mechanism, PostProcess)


@cache
def available() -> tuple[str, ...]:
    """Return the names of all mechanisms, sorted.

    >>> "custext" in available()
    True
    """
    return _names(mechanisms)


@cache
def postprocesses() -> tuple[str, ...]:
    """Return the names of all post-processings, sorted.

    >>> "rewrite_again" in postprocesses()
    True
    """
    return _names(postprocess)


def load(name: str) -> type[Mechanism]:
    """Return the class of the mechanism `name`.

    Raises:
        PolicyError: There is no such mechanism.
    """
    if name not in available():
        raise PolicyError(
            f"there is no mechanism of that name; available: {', '.join(available())}", "see `dptext mechanisms`"
        )
    return _loaded(mechanisms, name, Mechanism)  # type: ignore[type-abstract]


def load_postprocess(name: str) -> type[PostProcess]:
    """Return the class of the post-processing `name`.

    Raises:
        PolicyError: There is no such post-processing.
    """
    if name not in postprocesses():
        raise PolicyError(f"there is no post-processing of that name; available: {', '.join(postprocesses())}")
    return _loaded(postprocess, name, PostProcess)  # type: ignore[type-abstract]


def build(parameters: Mapping[str, Any]) -> Mechanism:
    """Make a mechanism from plain data: `{"name": "custext", "epsilon": 2.0}`.

    Raises:
        PolicyError: The name or a parameter is unknown, or a value is out of range.
    """
    name, values = _named(parameters, "a mechanism", f'write {{ name = "{available()[0]}", epsilon = 2.0 }}')
    kind = load(name)
    with validated(name, kind.model_fields, of=f"parameters of {name}"):
        return kind(**values)


def build_postprocess(parameters: Mapping[str, Any]) -> PostProcess:
    """Make a post-processing from plain data: `{"name": "rewrite_again", "model": "models/rewriter"}`.

    Raises:
        PolicyError: The name or a parameter is unknown, or a value is out of range.
    """
    hint = f'write postprocess = [{{ name = "{postprocesses()[0]}", model = "FOLDER" }}]'
    name, values = _named(parameters, "a post-processing", hint)
    kind = load_postprocess(name)
    with validated(name, kind.model_fields, of=f"parameters of {name}"):
        return kind(**values)


def _names(room: ModuleType) -> tuple[str, ...]:
    return tuple(sorted(name for _, name, _ in pkgutil.iter_modules(room.__path__)))


def _loaded(room: ModuleType, name: str, base: type[Kind]) -> type[Kind]:
    module = importlib.import_module(f"{room.__name__}.{name}")
    own = [
        item
        for _, item in inspect.getmembers(module, inspect.isclass)
        if issubclass(item, base) and item.__module__ == module.__name__ and not inspect.isabstract(item)
    ]
    if len(own) != 1:
        folder, what = room.__name__.rpartition(".")[2], "mechanisms" if room is mechanisms else "post-processings"
        raise PolicyError(f"{folder}/{name}.py holds {len(own)} {what}, it must hold exactly one")
    return own[0]


def _named(parameters: Mapping[str, Any], what: str, hint: str) -> tuple[str, dict[str, Any]]:
    values = dict(parameters)
    name = values.pop("name", None)
    if not isinstance(name, str):
        raise PolicyError(f"{what} needs a name", hint)
    return name, values
