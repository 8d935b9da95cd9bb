"""Write the page of the Python API: every public name of the public packages, from the source."""

from __future__ import annotations

import ast
import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from generators.markdown import linked

PACKAGES = (
    "dptext_etl",
    "dptext_etl.polars",
    "dptext_etl.spark",
    "dptext_etl.duckdb",
    "dptext_etl.orchestration",
    "dptext_etl.corpora",
    "dptext_etl.runner",
    "dptext_etl.families.aggregate.classifier",
    "dptext_etl.checks.great_expectations.expectations",
    "dptext_etl_eval",
)
"""Packages whose `__all__` is public (docs/policy.md, Upgrades and stability), and modules in `_CHOSEN`."""
_CHOSEN = {
    "dptext_etl.corpora": ("Corpus", "estimate_frequencies"),
    "dptext_etl.runner": ("scan_published", "open_classifier"),
    "dptext_etl.families.aggregate.classifier": ("Classifier",),
    "dptext_etl.checks.great_expectations.expectations": (
        *("suite_for", "downstream_suite", "validate", "validate_downstream", "validate_suite", "validate_table"),
    ),
}
"""The public names of modules that hold others, too."""
_FIRST = (
    "These packages export all public names except [mechanisms](mechanisms.md). The page has a sentence for each name "
    "and argument. `help(NAME)` has types, details, examples, and errors ([kinds](cli.md#exit-codes))."
)
_LEFT_TO_HELP = ("Example", "Raises", "Returns")
"""Sections of docstrings that the page leaves out."""
_ON_A_PAGE = {
    "ColumnPolicy": ("Its entries", "policy.md#entries"),
    "Policy": ("Its entries", "policy.md#entries"),
    "LedgerSpec": ("Its entries", "policy.md#ledger"),
    "Ledger": ("How to use it", "ledger.md"),
}
"""Classes whose entries another page describes."""
_OF_PARENTS = ("Ledger", "Policy")
"""Classes of which the page lists inherited methods, too."""
_RESULTS = ("dptext_etl_eval",)
"""Packages whose functions serve commands and whose classes are results: the page describes no argument of them."""
_SHORT = 6
"""Descriptions of at most this number of words are repeated."""
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
        about = ast.get_docstring(source) or ""
        lines += [f"## {package}", linked(first_sentence(about))]
        if package not in _RESULTS and (shared := _shared(package)):
            lines += ["Several functions of this package have these arguments:"]
            lines += ["\n".join(f"* `{name}`: {_whole(said)}" for name, said in sorted(shared.items()))]
        for name in _in_order(package):
            lines += _entry(package, name)
    return "\n\n".join(filter(None, lines)) + "\n"


def _entry(package: str, name: str) -> Iterator[str]:
    """Yield the heading, the code, and the public methods of one name."""
    definition = _found(package, name)
    if definition is None:
        return
    yield f"### {package}.{name}"
    yield _code(package, definition)
    if isinstance(definition, ast.ClassDef):
        methods = _methods(package, definition, inherited=name in _OF_PARENTS)
        yield "\n".join(f"* `{method}`: {linked(said)}" for method, said in methods.items())


def _methods(package: str, definition: ast.ClassDef, *, inherited: bool) -> dict[str, str]:
    """Return a sentence about each public method and property, then about those that parents define."""
    found = {
        method.name: first_sentence(ast.get_docstring(method) or "")
        for method in definition.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
        if not method.name.startswith("_") and ast.get_docstring(method)
    }
    home = _home(package, definition.name)
    for base in definition.bases if inherited else ():
        if isinstance(parent := _found(home, ast.unparse(base)), ast.ClassDef):
            of_parent = _methods(_home(home, parent.name), parent, inherited=True)
            found |= {key: said for key, said in of_parent.items() if key not in found}
    return found


def _code(package: str, definition: Definition) -> str:
    """Return the signature of a definition, and its docstring as Markdown."""
    head = "" if isinstance(definition, ast.ClassDef) else f"```text\n{_signature(definition)}\n```\n\n"
    said = _markdown(package, definition.name, ast.get_docstring(definition) or "")
    if definition.name in _ON_A_PAGE:
        text, target = _ON_A_PAGE[definition.name]
        said = said.partition("\n\n**Attributes**")[0] + f" [{text}]({target})."
    return f"{head}{said}".rstrip()


def _markdown(package: str, name: str, docstring: str) -> str:
    """Return a docstring as Markdown: its first sentence, then its sections, without examples and errors."""
    parts: list[str] = []
    shared, before = _shared(package), _first_places()[f"{package}.{name}"]
    for head, body in _sections(docstring):
        inner = textwrap.dedent(body).strip("\n")
        if not head:
            parts += [linked(first_sentence(inner))] if inner else []
        elif head not in _LEFT_TO_HELP and package not in _RESULTS:
            entries = {name: said for name, said in _entries(inner) if shared.get(name) != said}
            parts += [f"**{head}**"] if head != "Args" else []
            parts.append(_described(entries, before))
    return "\n\n".join(filter(None, parts))


def _described(entries: dict[str, str], before: dict[tuple[str, str], str]) -> str:
    """Describe each argument in one line, and list those that another name describes after that name."""
    lines, elsewhere = list[str](), dict[str, list[str]]()
    for name, words in entries.items():
        said = _whole(words)
        if see := re.search(r"\(see `(\w+)`\)", said):
            elsewhere.setdefault(see[1], []).append(name)
        elif len(said.split()) > _SHORT and (where := before.get((name, said))):
            elsewhere.setdefault(where, []).append(name)
        else:
            lines.append(f"* `{name}`: {said}")
    lines += [f"* {', '.join(f'`{name}`' for name in names)}: see `{where}`." for where, names in elsewhere.items()]
    return "\n".join(lines)


@cache
def _first_places() -> dict[str, dict[tuple[str, str], str]]:
    """Return, for each public name, the arguments that names before it on the page describe, and where."""
    found, before = dict[str, dict[tuple[str, str], str]](), dict[tuple[str, str], str]()
    for package in PACKAGES:
        for name in _in_order(package):
            found[f"{package}.{name}"] = dict(before)
            definition = _found(package, name)
            for head, body in _sections(ast.get_docstring(definition) or "") if definition else ():
                if head in ("Args", "Attributes") and name not in _ON_A_PAGE and package not in _RESULTS:
                    for entry, said in _entries(textwrap.dedent(body)):
                        before.setdefault((entry, _whole(said)), f"{package}.{name}")
    return found


def _in_order(package: str) -> list[str]:
    """Return the public names of a package as the page has them: runs, then functions, then classes."""
    return sorted(_public(package), key=lambda name: (not name.startswith("run"), not name[0].islower()))


def first_sentence(text: str) -> str:
    """Return the first sentence of a text, on one line."""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"(?<=[.!?])(?<!\be\.g\.)\s+(?=[A-Z`\"])", paragraph, maxsplit=1)[0]


def _whole(said: str) -> str:
    """Return a description as a sentence; its further ones are left to `help`."""
    said = first_sentence(said)
    return linked(said if said.endswith((".", "…")) else f"{said}.")


@cache
def _shared(package: str) -> dict[str, str]:
    """Return the arguments that several functions of a package have with one meaning, and their meanings."""
    counts: Counter[tuple[str, str]] = Counter()
    for name in _public(package):
        if isinstance(definition := _found(package, name), ast.FunctionDef):
            for head, body in _sections(ast.get_docstring(definition) or ""):
                if head == "Args":
                    counts.update(_entries(textwrap.dedent(body)))
    return {name: said for (name, said), count in counts.items() if count > 1 and "(see `" not in said}


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


def _entries(block: str) -> Iterator[tuple[str, str]]:
    """Yield the names of a section and their meanings: a line that is indented continues the entry before it."""
    for entry in re.split(r"\n(?=\S)", block.strip("\n")):
        name, _, said = entry.partition(":")
        yield name, " ".join(said.split())


def _signature(definition: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return a function's signature without the types of its arguments, as Python's own pages write it."""
    for name in ast.walk(definition.args):
        if isinstance(name, ast.arg):
            name.annotation = None
    returns = f" -> {ast.unparse(definition.returns)}" if definition.returns else ""
    return "\n    ".join(textwrap.wrap(f"{definition.name}({ast.unparse(definition.args)}){returns}", _WIDTH))


def _found(package: str, name: str) -> Definition | None:
    """Find the definition of a public name: in its package, or in the module from which that imports it."""
    defined = (node for node in _source(_home(package, name)).body if isinstance(node, Definition))
    return next((node for node in defined if node.name == name), None)


def _home(package: str, name: str) -> str:
    """Return the module that defines a public name."""
    for node in ast.walk(_source(package)):
        for item in node.names if isinstance(node, ast.ImportFrom) else ():
            if (item.asname or item.name) == name:
                return _home(str(node.module), item.name)  # type: ignore[attr-defined]
    return package


def _source(module: str) -> ast.Module:
    spec = find_spec(module)
    return ast.parse(Path(str(spec.origin if spec else "")).read_text(encoding="utf-8"))


def _public(package: str) -> list[str]:
    """Return the names in `_CHOSEN`, else those in `__all__`."""
    if package in _CHOSEN:
        return [*_CHOSEN[package]]
    for statement in _source(package).body:
        if isinstance(statement, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__all__" for target in statement.targets
        ):
            return [str(name) for name in ast.literal_eval(statement.value)]
    return []
