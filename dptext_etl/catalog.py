"""Make mechanisms and post-processings from plain data; `extensions` finds their modules by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dptext_etl import extensions
from dptext_etl.errors import PolicyError
from dptext_etl.mechanism import Mechanism, PostProcess


def available() -> tuple[str, ...]:
    """Return the names of all mechanisms, sorted.

    >>> "custext" in available()
    True
    """
    return extensions.names("mechanisms")


def load(name: str) -> type[Mechanism]:
    """Return the class of a mechanism.

    Args:
        name: Name of the mechanism, such as "custext".

    Returns:
        The class, whose fields are the parameters.

    Raises:
        PolicyError: There is no such mechanism; the hint names the closest ones.
    """
    return extensions.load("mechanisms", name, Mechanism)  # type: ignore[type-abstract]


def load_postprocess(name: str) -> type[PostProcess]:
    return extensions.load("postprocesses", name, PostProcess)  # type: ignore[type-abstract]


def build(parameters: Mapping[str, Any]) -> Mechanism:
    """Make a mechanism from its name and parameters, such as `{"name": "custext", "epsilon": 2.0}`."""
    name, values = _named(parameters, "a mechanism", 'write { name = "custext", epsilon = 2.0 }')
    return load(name)(**values)


def build_postprocess(parameters: Mapping[str, Any]) -> PostProcess:
    """Make a post-processing from its name and parameters, such as `{"name": "rewrite_again", "model": "FOLDER"}`."""
    hint = 'write postprocess = [{ name = "rewrite_again", model = "FOLDER" }]'
    name, values = _named(parameters, "a post-processing", hint)
    return load_postprocess(name)(**values)


def _named(parameters: Mapping[str, Any], what: str, hint: str) -> tuple[str, dict[str, Any]]:
    values = dict(parameters)
    name = values.pop("name", None)
    if not isinstance(name, str):
        raise PolicyError(f"{what} needs a name", hint)
    return name, values
