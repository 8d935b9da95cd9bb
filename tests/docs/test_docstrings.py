"""Docstrings of the public API document every argument, in the sections of Google's style."""

import ast
import inspect
import re
import textwrap
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from typing import NoReturn

import dptext_etl
from dptext_etl import errors

FEWEST = 60
"""Public functions with arguments, at least: a walk that finds fewer is broken."""


def modules():
    """Packages and modules that declare their public names."""
    names = [item.name for item in walk_packages(dptext_etl.__path__, "dptext_etl.") if "._" not in item.name]
    found = [import_module(name) for name in names if not name.endswith("__main__")]
    return [dptext_etl, *(module for module in found if hasattr(module, "__all__"))]


def functions(value):
    """Public functions of a public name: itself, or the methods that a class of ours defines."""
    if inspect.isfunction(value):
        yield value
    elif inspect.isclass(value):
        for base in value.__mro__:
            if base.__module__.startswith("dptext_etl"):
                for name, member in vars(base).items():
                    method = getattr(member, "__func__", member)
                    if inspect.isfunction(method) and not name.startswith("_"):
                        yield method


def arguments(function):
    named = [item.name for item in inspect.signature(function).parameters.values() if item.kind is not item.VAR_KEYWORD]
    return [name for name in named if name not in {"self", "cls"}]


def section(docstring, head):
    """The text of one section of a docstring; empty if there is none."""
    found = re.search(rf"^{head}:\n((?:    .*\n?|\n)*)", docstring, re.MULTILINE)
    return found.group(1) if found else ""


def described(docstring):
    return re.findall(r"^    \*{0,2}(\w+)(?: \([^)]*\))?:", section(docstring, "Args"), re.MULTILINE)


@cache
def public():
    """Public functions with arguments, by their full names."""
    values = (getattr(module, name) for module in modules() for name in module.__all__)
    found = {f"{one.__module__}.{one.__qualname__}": one for value in values for one in functions(value)}
    return {name: one for name, one in found.items() if one.__module__.startswith("dptext_etl") and arguments(one)}


def raised(function):
    """Names of the errors of ours that the code of a function itself raises."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    calls = [node.exc.func for node in ast.walk(tree) if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)]
    return {call.id for call in calls if isinstance(call, ast.Name) and hasattr(errors, call.id)}


def problems(function):
    """The parts that the docstring of a function lacks."""
    docstring = inspect.getdoc(function) or ""
    missing = [f"no description of {name}" for name in arguments(function) if name not in described(docstring)]
    missing += [f"no description of {name}" for name in sorted(raised(function)) if f"    {name}:" not in docstring]
    if inspect.signature(function).return_annotation not in {"None", None, NoReturn}:
        missing += [] if re.search(r"\b(?:returns?|yields?)\b", docstring, re.IGNORECASE) else ["no result"]
    return missing


def test_every_argument_of_a_public_function_is_described():
    found = {name: problems(function) for name, function in public().items()}
    assert {name: missing for name, missing in found.items() if missing} == {}
    assert len(found) >= FEWEST


def test_a_missing_argument_is_found():
    def release(texts, *, rows=1):
        """Release texts.

        Args:
            texts: Strings.

        Returns:
            rows: a section of another kind describes no argument.
        """

    assert problems(release) == ["no description of rows"]


if __name__ == "__main__":
    for name, function in sorted(public().items()):
        print(name, "; ".join(problems(function)) or "ok")
