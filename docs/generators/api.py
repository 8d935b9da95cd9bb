"""Write the page of the Python API: every public name of the public packages, from its docstring."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

PACKAGES = (
    "dptext_etl",
    "dptext_etl.polars",
    "dptext_etl.spark",
    "dptext_etl.orchestration",
    "dptext_etl_eval",
    "dptext_etl.corpora",
)
"""Packages whose `__all__` is public (docs/stability.md)."""


def python_api() -> str:
    """Return the page: a part per package, with a directive of mkdocstrings per public name."""
    lines = [
        "# Python API",
        "What these packages export is public. Mechanisms have [pages of their own](mechanisms/index.md).",
    ]
    for package in PACKAGES:
        source = ast.parse(Path(str(find_spec(package).origin)).read_text(encoding="utf-8"))
        lines += [f"## {package}", ast.get_docstring(source) or ""]
        lines += [f"::: {package}.{name}" for name in _public(source)]
    return "\n\n".join(lines) + "\n"


def _public(source: ast.Module) -> list[str]:
    """Return the names in `__all__`."""
    for statement in source.body:
        if isinstance(statement, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__all__" for target in statement.targets
        ):
            return [str(name) for name in ast.literal_eval(statement.value)]
    return []
