"""`dptext_etl/_kernel.pyi` describes the compiled module: every name, and every parameter in its order."""

import ast
import inspect
from pathlib import Path

import pytest

from dptext_etl import _kernel

STUB = ast.parse((Path(_kernel.__file__).parent / "_kernel.pyi").read_text(encoding="utf-8"))


def described():
    """Functions and methods of the stub: the path of names, and the definition."""
    for node in STUB.body:
        if isinstance(node, ast.FunctionDef):
            yield (node.name,), node
        if isinstance(node, ast.ClassDef):
            yield from (((node.name, one.name), one) for one in node.body if isinstance(one, ast.FunctionDef))


def names(node):
    return {item.name for item in node.body if isinstance(item, (ast.FunctionDef, ast.ClassDef))} | {
        item.target.id for item in node.body if isinstance(item, ast.AnnAssign)
    }


def public(thing):
    return {name for name in vars(thing) if not name.startswith("_")}


def test_the_stub_has_every_public_name_and_no_other():
    assert public(_kernel) == {name for name in names(STUB) if not name.startswith("_")}
    for node in STUB.body:
        if isinstance(node, ast.ClassDef) and hasattr(_kernel, node.name):
            described_here = {name for name in names(node) if not name.startswith("_")}
            assert public(getattr(_kernel, node.name)) == described_here, node.name


@pytest.mark.parametrize(
    ("path", "node"), [*described()], ids=lambda item: ".".join(item) if isinstance(item, tuple) else ""
)
def test_parameters_are_those_of_the_module(path, node):
    found = _kernel
    for name in path:
        found = getattr(found, name, None)
    if found is None or not callable(found) or path[-1].startswith("__"):
        pytest.skip("a property, a protocol of the stub, or a special method, which has no signature of its own")
    declared = [item.arg for item in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    try:
        real = list(inspect.signature(found).parameters)
    except ValueError:
        pytest.skip("compiled without a signature")
    assert [name for name in declared if name not in {"self", "cls"}] == [
        name for name in real if name not in {"self", "cls"}
    ]
