"""Write the page of the Python API: every public name of the public packages, from the source."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

PACKAGES = (
    "dptext_etl",
    "dptext_etl.polars",
    "dptext_etl.spark",
    "dptext_etl.duckdb",
    "dptext_etl.orchestration",
    "dptext_etl.corpora",
    "dptext_etl_eval",
)
"""Packages whose `__all__` is public (docs/policy.md, Upgrades and stability)."""
_FIRST = (
    "What these packages export is public. [Mechanisms](mechanisms.md) have a page. `help(NAME)` also prints examples "
    "and the errors that a function raises. [Exit codes](cli.md#exit-codes) list the kinds of errors."
)
_LEFT_TO_HELP = ("Example", "Raises")
"""Sections of docstrings that the page leaves out."""
_ON_A_PAGE = {"Policy": "policy.md#entries"}
"""Classes whose attributes another page lists."""
_WIDTH = 100
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def python_api() -> str:
    """Return the page: a part per package, functions first, and per public name its signature and its docstring."""
    lines = [
        "# Python API",
        _FIRST,
    ]
    for package in PACKAGES:
        source = _source(package)
        lines += [f"## {package}", ast.get_docstring(source) or ""]
        for name in sorted(_public(source), key=lambda name: (not name.startswith("run"), not name[0].islower())):
            lines += _entry(package, name)
    return "\n\n".join(filter(None, lines)) + "\n"


def _entry(package: str, name: str) -> Iterator[str]:
    """Yield the heading, the code, and the public methods of one name."""
    found = _found(package, name)
    if found is None:
        return
    yield f"### {package}.{name}"
    yield _code(found)
    if isinstance(found, ast.ClassDef):
        methods = []
        for method in found.body:
            if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and not method.name.startswith("_"):
                said = (ast.get_docstring(method) or "").partition("\n\n")[0].replace("\n", " ")
                if said:
                    methods.append(f"* `{method.name}`: {said}")
        yield "\n".join(methods)


def _code(found: Definition) -> str:
    """Return the signature of a definition, and its docstring as Markdown."""
    if isinstance(found, ast.ClassDef):
        head = f"class {found.name}({', '.join(map(ast.unparse, found.bases))})".replace("()", "")
    else:
        head = _signature(found)
    said = _markdown(ast.get_docstring(found) or "")
    if found.name in _ON_A_PAGE:
        said = said.partition("\n\n**Attributes**")[0] + f" [Its entries]({_ON_A_PAGE[found.name]})."
    return f"```text\n{head}\n```\n\n{said}".rstrip()


def _markdown(docstring: str) -> str:
    """Return a docstring as Markdown: its first paragraph, then its sections. `help` has the rest."""
    parts: list[str] = []
    for head, body in _sections(docstring):
        inner = textwrap.dedent(body).strip("\n")
        if not head:
            parts.append(" ".join(inner.partition("\n\n")[0].split()))
        elif head == "Returns":
            parts.append(f"**Returns** {' '.join(inner.split())}")
        elif head not in _LEFT_TO_HELP:
            parts += [f"**{head}**", _entries(inner)]
    return "\n\n".join(parts)


def _sections(docstring: str) -> Iterator[tuple[str, str]]:
    """Yield the sections of a docstring with their heads; text before them has none."""
    head, lines = "", list[str]()
    for line in docstring.splitlines():
        if line.endswith(":") and line[:-1].isalpha():
            yield head, "\n".join(lines)
            head, lines = line[:-1], []
        else:
            lines.append(line)
    yield head, "\n".join(lines)


def _entries(block: str) -> str:
    """Return the entries of a section as a list: a line that is indented continues the entry before it."""
    lines: list[str] = []
    for line in block.splitlines():
        if line.startswith(" ") and lines:
            lines[-1] += f" {line.strip()}"
        else:
            name, colon, said = line.partition(":")
            lines.append(f"* `{name}`:{said}" if colon else f"* {line}")
    return "\n".join(lines)


def _signature(found: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return a function's signature, one argument per line if it is long."""
    returns = f" -> {ast.unparse(found.returns)}" if found.returns else ""
    line = f"{found.name}({ast.unparse(found.args)}){returns}"
    if len(line) <= _WIDTH:
        return line
    given = found.args
    by_place = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(by_place) - len(given.defaults)) + list(given.defaults)
    arguments = [_argument(name, value) for name, value in zip(by_place, defaults, strict=True)]
    if given.vararg or given.kwonlyargs:
        arguments.append(f"*{ast.unparse(given.vararg)}" if given.vararg else "*")
    arguments += [_argument(name, value) for name, value in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    if given.kwarg:
        arguments.append(f"**{ast.unparse(given.kwarg)}")
    return f"{found.name}(\n" + "".join(f"    {argument},\n" for argument in arguments) + f"){returns}"


def _argument(name: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(name) + (f" = {ast.unparse(default)}" if default is not None else "")


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
