"""Resolve the relative paths of a policy file from the folder of that file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from dptext_etl import catalog, extensions
from dptext_etl.key_providers import installed

_PATHS = (("source",), ("sink",), ("staging",), ("key",), ("ledger", "url"), ("ledger", "id_key"))


def anchored(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a policy's entries with relative paths resolved from a folder."""
    for *parents, last in _PATHS:
        table: Any = values
        for name in parents:
            table = table.get(name, {}) if isinstance(table, dict) else {}
        if isinstance(table, dict) and isinstance(table.get(last), str):
            table[last] = _from_folder(table[last], folder)
    synthetic = values.get("synthetic")
    made = synthetic.get("mechanism") if isinstance(synthetic, dict) else None
    if isinstance(made, dict) and "corpus" in made:
        made["corpus"] = _found(made["corpus"], folder)
    for column in values.get("column", ()):
        mechanism = column.get("mechanism") if isinstance(column, dict) else None
        if isinstance(mechanism, dict) and extensions.known("mechanisms", mechanism.get("name")):
            _anchor(mechanism, catalog.load(mechanism["name"]), folder)
        steps = column.get("postprocess") if isinstance(column, dict) else None
        for step in steps if isinstance(steps, list) else ():
            if isinstance(step, dict) and extensions.known("postprocesses", step.get("name")):
                _anchor(step, catalog.load_postprocess(step["name"]), folder)
    return values


def _anchor(given: dict[str, Any], kind: type[BaseModel], folder: Path) -> None:
    """Resolve the paths among the parameters of a model, at any depth; they are changed in place.

    A model names the fields that hold paths (`artifact_fields`, `hub_fields`), and so do the models of its fields.
    """
    paths: frozenset[str] = getattr(kind, "artifact_fields", frozenset())
    perhaps: frozenset[str] = getattr(kind, "hub_fields", frozenset())
    for name in given.keys() & paths:
        value, anchor = given[name], _found if name in perhaps else _named
        given[name] = [anchor(item, folder) for item in value] if isinstance(value, list) else anchor(value, folder)
    for name in given.keys() & kind.model_fields.keys():
        inner = next(_models(kind.model_fields[name].annotation), None)
        for item in given[name] if isinstance(given[name], list) else [given[name]]:
            if inner is not None and isinstance(item, dict):
                _anchor(item, inner, folder)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that a field may hold, alone, or among other types or in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _named(reference: Any, folder: Path) -> Any:
    """Resolve a path from the policy's folder; a name without slash and suffix is an embedded artifact and stays."""
    path = isinstance(reference, str) and ("/" in reference or Path(reference).suffix)
    return _from_folder(reference, folder) if path else reference


def _found(reference: Any, folder: Path) -> Any:
    """Resolve a path from the policy's folder if it exists; other names belong to a hub or a distribution and stay.

    What stands before a colon ("nltk:FOLDER") says what lies there, and stays.
    """
    if not isinstance(reference, str) or "://" in reference:
        return reference
    if (folder / reference).exists():
        return str(folder / reference)
    kind, colon, place = reference.partition(":")
    return kind + colon + str(folder / place) if place and (folder / place).exists() else reference


def _from_folder(reference: str, folder: Path) -> str:
    scheme, _, name = reference.partition(":")
    if scheme == "env" or (name and scheme in installed()):
        return reference
    for prefix in ("file:", "sqlite:///"):
        if reference.startswith(prefix):
            return prefix + str(folder / reference.removeprefix(prefix))
    return reference if "://" in reference else str(folder / reference)
