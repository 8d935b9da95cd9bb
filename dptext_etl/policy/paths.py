"""Resolve the relative paths of a policy file from the folder of that file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dptext_etl import catalog
from dptext_etl.key_providers import installed
from dptext_etl.mechanism import Mechanism
from dptext_etl.postprocessing import PostProcess

_PATHS = (("source",), ("sink",), ("staging",), ("key",), ("ledger", "url"), ("ledger", "id_key"))


def anchored(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a policy's entries with relative paths resolved from a folder.

    Args:
        values: The entries of the TOML file; they are changed in place.
        folder: The absolute path of the folder.
    """
    for *parents, last in _PATHS:
        table: Any = values
        for name in parents:
            table = table.get(name, {}) if isinstance(table, dict) else {}
        if isinstance(table, dict) and isinstance(table.get(last), str):
            table[last] = _from_folder(table[last], folder)
    for column in values.get("column", ()):
        mechanism = column.get("mechanism") if isinstance(column, dict) else None
        if isinstance(mechanism, dict) and mechanism.get("name") in catalog.available():  # others are refused later
            _anchor(mechanism, catalog.load(mechanism["name"]), folder)
        steps = column.get("postprocess") if isinstance(column, dict) else None
        for step in steps if isinstance(steps, list) else ():
            if isinstance(step, dict) and step.get("name") in catalog.postprocesses():
                _anchor(step, catalog.load_postprocess(step["name"]), folder)
    return values


def _anchor(given: dict[str, Any], kind: type[Mechanism] | type[PostProcess], folder: Path) -> None:
    """Resolve the paths among the parameters of a mechanism or a post-processing; they are changed in place."""
    for name in given.keys() & kind.artifact_fields:
        value, anchor = given[name], _found if name in kind.hub_fields else _named
        given[name] = [anchor(item, folder) for item in value] if isinstance(value, list) else anchor(value, folder)


def _named(reference: Any, folder: Path) -> Any:
    """Resolve a path from the policy's folder; a name without slash and suffix is an embedded artifact and stays."""
    path = isinstance(reference, str) and ("/" in reference or Path(reference).suffix)
    return _from_folder(reference, folder) if path else reference


def _found(reference: Any, folder: Path) -> Any:
    """Resolve a path from the policy's folder if it exists; other names belong to a hub or a distribution and stay."""
    there = isinstance(reference, str) and "://" not in reference and (folder / reference).exists()
    return str(folder / reference) if there else reference


def _from_folder(reference: str, folder: Path) -> str:
    scheme, _, name = reference.partition(":")
    if scheme == "env" or (name and scheme in installed()):
        return reference
    for prefix in ("file:", "sqlite:///"):
        if reference.startswith(prefix):
            return prefix + str(folder / reference.removeprefix(prefix))
    return reference if "://" in reference else str(folder / reference)
