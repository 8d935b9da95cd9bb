"""Read options `-p name=value` according to the types of a mechanism's fields."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, get_args, get_origin

from dptext_etl.errors import PolicyError

if TYPE_CHECKING:
    from pydantic import BaseModel

_LISTS = (list, tuple, set, frozenset)


def parse(kind: type[BaseModel], name: str, given: Sequence[str] | None) -> dict[str, Any]:
    """Return the parameters as plain data; a list is written `a,b,c`."""
    texts = pairs(given)
    for parameter in texts:
        if parameter not in kind.model_fields:
            close = get_close_matches(parameter, kind.model_fields, n=1)
            meant = f"did you mean {close[0]}? " if close else ""
            raise PolicyError(f"{name} has no parameter {parameter!r}", f"{meant}{allowed(kind, name)}")
    return {parameter: _typed(kind, name, parameter, text) for parameter, text in texts.items()}


def pairs(given: Sequence[str] | None) -> dict[str, str]:
    """Split "name=value" texts."""
    found: dict[str, str] = {}
    for item in given or ():
        name, equals, text = item.partition("=")
        name = name.strip()
        if not equals or not name:
            raise PolicyError("a parameter is written NAME=VALUE", "for example -p epsilon=2")
        if name in found:
            raise PolicyError(f"the parameter {name} is given twice", "give it once")
        found[name] = text
    return found


def allowed(kind: type[BaseModel], name: str) -> str:
    """Return a sentence that lists the parameters of a mechanism and their types."""
    from dptext_etl.cli.render.mechanism_facts import type_name

    return f"parameters of {name}: " + ", ".join(
        f"{parameter} ({type_name(field.annotation)})" for parameter, field in kind.model_fields.items()
    )


def _typed(kind: type[BaseModel], name: str, parameter: str, text: str) -> Any:
    from pydantic import TypeAdapter, ValidationError

    annotation: Any = kind.model_fields[parameter].annotation
    adapter = TypeAdapter[Any](annotation)
    if text.startswith("{"):
        return _entry(name, parameter, text)
    for inner in get_args(annotation) if "," in text else ():
        if get_origin(inner) in _LISTS:  # a range or the path of one, for instance
            with suppress(ValidationError):
                return TypeAdapter[Any](inner).validate_python(text.split(","))
    try:
        if get_origin(annotation) in _LISTS:
            return adapter.validate_python(text.split(",") if text else [])
        return adapter.validate_strings(text)
    except ValidationError as exc:
        problem = exc.errors(include_input=False, include_url=False)[0]["msg"]
    raise PolicyError(f"{name}: {parameter}: {problem}", allowed(kind, name))


def _entry(name: str, parameter: str, text: str) -> Any:
    """Read an entry with entries of its own as a policy writes it, or as JSON; the mechanism checks what it holds."""
    for read in (json.loads, lambda entry: tomllib.loads(f"entry = {entry}")["entry"]):
        with suppress(ValueError):
            return read(text)
    raise PolicyError(f"{name}: {parameter}: cannot be read", "write it as in a policy: {first = 1, second = [2, 3]}")
