"""Write the page of the Python API: every public name of the public packages, from the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

PACKAGES = (
    "dptext_etl",
    "dptext_etl.polars",
    "dptext_etl.spark",
    "dptext_etl.orchestration",
    "dptext_etl.corpora",
    "dptext_etl_eval",
)
"""Packages whose `__all__` is public (docs/stability.md)."""
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def python_api() -> str:
    """Return the page: a part per package, and per public name its signature and its docstring."""
    lines = [
        "# Python API",
        "What these packages export is public. Mechanisms have [pages of their own](mechanisms/index.md).",
    ]
    for package in PACKAGES:
        source = _source(package)
        lines += [f"## {package}", ast.get_docstring(source) or ""]
        for name in _public(source):
            lines += _entry(package, name)
    return "\n\n".join(lines) + "\n"


def _entry(package: str, name: str) -> Iterator[str]:
    """Yield the heading, the code, and the public methods of one name."""
    found = _found(package, name)
    if found is None:
        return
    yield f"### {package}.{name}"
    yield _code(found)
    if isinstance(found, ast.ClassDef):
        for method in found.body:
            if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and not method.name.startswith("_"):
                said = (ast.get_docstring(method) or "").partition("\n\n")[0].replace("\n", " ")
                if said:
                    yield f"* `{method.name}`: {said}"


def _code(found: Definition) -> str:
    """Return a definition without its body, and its docstring."""
    if isinstance(found, ast.ClassDef):
        head = f"class {found.name}({', '.join(map(ast.unparse, found.bases))})".replace("()", "")
    else:
        returns = f" -> {ast.unparse(found.returns)}" if found.returns else ""
        head = f"{found.name}({ast.unparse(found.args)}){returns}"
    return f"```text\n{head}\n\n{ast.get_docstring(found) or ''}\n```"


def _found(package: str, name: str) -> Definition | None:
    """Find the definition of a public name: in its package, or in the module from which that imports it."""
    source = _source(package)
    for node in ast.walk(source):
        if isinstance(node, ast.ImportFrom) and any((item.asname or item.name) == name for item in node.names):
            return _found(
                str(node.module), next(item.name for item in node.names if (item.asname or item.name) == name)
            )
    defined = (node for node in source.body if isinstance(node, Definition) and node.name == name)
    return next(defined, None)


def _source(module: str) -> ast.Module:
    spec = find_spec(module)
    return ast.parse(Path(str(spec.origin if spec else "")).read_text(encoding="utf-8"))


def _public(source: ast.Module) -> list[str]:
    """Return the names in `__all__`."""
    for statement in source.body:
        if isinstance(statement, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__all__" for target in statement.targets
        ):
            return [str(name) for name in ast.literal_eval(statement.value)]
    return []
