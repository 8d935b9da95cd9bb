"""Every public function and method that may meet rows lets errors leave without the local variables of its frames."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

from dptext_etl.errors import bare
from dptext_etl.polars import namespace

ROOT = Path(__file__).resolve().parents[2]
IMPORTED = re.compile(r"^from (dptext_etl[\w.]*) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE)
ROWS = re.compile(r"\b(DataFrame|LazyFrame|Series|Expr|Array|ChunkedArray|SparkSession|PolicyLike|StagedRun|Given)\b")
"""Types of parameters that hold rows, or lead to the table that holds them."""
ROWLESS = ("dptext_etl.policy.", "dptext_etl.accounting.", "dptext_etl.allocation.")
"""Packages that read no table: policies and amounts, and the division of one text, which `release` calls."""
INNER = tuple(
    f"dptext_etl{place}."
    for place in (
        *(".engines.engine", ".engines.local", ".checks.gate", ".runner.preflight"),
        *(".mechanism", ".families", "_models.families"),
    )
)
"""Steps of an engine, which `run` and `stage` call, of gates, and of mechanisms, which `privatize` calls."""
BARE = {bare(lambda: None).__code__, bare(lambda: (yield)).__code__}


def exported():
    """What packages list in `__all__`."""
    for package in ("dptext_etl", "dptext_etl_models", "dptext_etl_eval"):
        root = pytest.importorskip(package)
        folders = (found.name for found in pkgutil.walk_packages(root.__path__, f"{package}.") if found.ispkg)
        for name in (package, *folders):
            yield from ((name, item) for item in getattr(importlib.import_module(name), "__all__", ()))


def documented():
    """What examples of the documentation import."""
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for module, inside, line in IMPORTED.findall(page.read_text(encoding="utf-8")):
            names = (inside or line.partition("#")[0]).split(",")
            yield from ((module, name.split(" as ")[0].strip()) for name in names if name.strip())


def registered():
    """The namespaces that Polars frames, series and expressions get."""
    yield from (("dptext_etl.polars.namespace", name) for name in vars(namespace) if name.endswith("Namespace"))


def doors():
    """Public functions, and public methods of public classes, by name."""
    for module, name in sorted({*exported(), *documented(), *registered()}):
        found = getattr(importlib.import_module(module), name, None)
        ours = inspect.isclass(found) and found.__module__.startswith("dptext_etl")
        bases = [base for base in found.__mro__ if base.__module__.startswith("dptext_etl")] if ours else []
        methods = [getattr(found, name) for base in bases for name in vars(base) if not name.startswith("_")]
        for door in filter(callable, [found if not inspect.isclass(found) else None, *methods]):
            if inspect.isfunction(door) or inspect.ismethod(door):
                yield f"{door.__module__}.{door.__qualname__}", door


def meets_rows(door):
    named = (str(item.annotation) for item in inspect.signature(inspect.unwrap(door)).parameters.values())
    return any(ROWS.search(annotation) for annotation in named)


def walked():
    return {name: door for name, door in doors() if not name.startswith((*ROWLESS, *INNER)) and meets_rows(door)}


def test_every_door_that_meets_rows_is_bare():
    found = walked()
    assert len(found) > 30
    assert {"dptext_etl.polars.frame.run_frame", "dptext_etl.column.privatize"} <= set(found)
    assert sorted(name for name, door in found.items() if door.__code__ not in BARE) == []
