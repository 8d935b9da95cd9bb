"""Resolve the paths of a policy file, and keep its secrets apart."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from dptext_etl import _kernel, catalog, extensions, keys
from dptext_etl.errors import KeyReferenceError
from dptext_etl.object_stores import KEY_DIGITS, variable_of


def require_other_variables(ledger: str, key: str, id_key: str | None, options: Iterable[tuple[str, str]]) -> None:
    """Refuse options of stores and catalogs that name the variable of a key or of the ledger, or one of equal value."""
    ledger_variable = variable_of(ledger)
    url = ledger if ledger_variable is None else os.environ.get(ledger_variable)
    references = [key, id_key or f"file:{(url or '').removeprefix('sqlite:///')}.id.key"]
    secret_variables = {ledger_variable, *map(variable_of, references)}
    for option, value in options:
        variable = variable_of(value)
        if variable is None:
            continue
        value_here = os.environ.get(variable, "")
        if (
            variable in secret_variables
            or (value_here and value_here == url)
            or any(_holds(value_here, reference) for reference in references)
        ):
            msg = f"{option} names a variable that holds the noise key, the id key, or the URL of the ledger"
            raise ValueError(f"{msg}, and the store would get it; name the variable of this credential")


def _holds(value: str, reference: str) -> bool:
    """Return whether a value is the key of a reference; a key that is not here is no value of this environment."""
    if not KEY_DIGITS.fullmatch(value):
        return False
    try:
        key = keys.resolve(reference)
    except KeyReferenceError:
        return False
    other = _kernel.Secret.from_bytes(bytes.fromhex(value.strip()))
    return _kernel.fingerprint(key, "") == _kernel.fingerprint(other, "")


def anchored(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a policy's entries with relative paths resolved from a folder."""
    for table, names in (
        (values, ("source", "sink", "staging", "key")),
        (values.get("ledger"), ("url", "id_key")),
        (values.get("cap"), ("file",)),
    ):
        for name in names:
            if isinstance(table, dict) and isinstance(table.get(name), str):
                table[name] = _from_folder(table[name], folder)
    table = values.get("table")
    catalog = table.get("catalog") if isinstance(table, dict) else None
    if isinstance(catalog, dict) and str(catalog.get("uri")).startswith("sqlite:///"):
        catalog["uri"] = _from_folder(catalog["uri"], folder)
    synthetic = values.get("synthetic")
    maxent = synthetic.get("mechanism") if isinstance(synthetic, dict) else None
    if isinstance(maxent, dict) and "corpus" in maxent:
        maxent["corpus"] = _existing(maxent["corpus"], folder)
    for column in values.get("column", ()):
        if isinstance(column, dict):
            steps = column.get("postprocess")
            _anchor_named("mechanisms", column.get("mechanism"), folder)
            for step in steps if isinstance(steps, list) else ():
                _anchor_named("postprocesses", step, folder)
    return values


def _anchor_named(group: extensions.Group, parameters: Any, folder: Path) -> None:
    """Resolve the paths among the parameters of a mechanism or a post-processing, which are checked later."""
    if isinstance(parameters, dict) and extensions.known(group, parameters.get("name")):
        load = catalog.load if group == "mechanisms" else catalog.load_postprocess
        _anchor(parameters, load(parameters["name"]), folder)


def _anchor(parameters: dict[str, Any], kind: type[BaseModel], folder: Path) -> None:
    """Resolve the paths in the fields of a model that name artifacts, at any depth; they are changed in place."""
    paths: frozenset[str] = getattr(kind, "artifact_fields", frozenset())
    hub: frozenset[str] = getattr(kind, "hub_fields", frozenset())
    for name in parameters.keys() & paths:
        value, anchor = parameters[name], _existing if name in hub else _named
        parameters[name] = (
            [anchor(item, folder) for item in value] if isinstance(value, list) else anchor(value, folder)
        )
    for name in parameters.keys() & kind.model_fields.keys():
        inner = next(_models(kind.model_fields[name].annotation), None)
        for item in parameters[name] if isinstance(parameters[name], list) else [parameters[name]]:
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


def _existing(reference: Any, folder: Path) -> Any:
    """Resolve a path from the policy's folder if it exists; other names belong to a hub or a distribution and stay."""
    if not isinstance(reference, str) or "://" in reference:
        return reference
    if (folder / reference).exists():
        return str(folder / reference)
    kind, colon, place = reference.partition(":")  # such as "nltk:FOLDER"
    return kind + colon + str(folder / place) if place and (folder / place).exists() else reference


def _from_folder(reference: str, folder: Path) -> str:
    scheme, _, name = reference.partition(":")
    if scheme == "env":
        return reference
    for prefix in ("file:", "sqlite:///"):
        if reference.startswith(prefix):
            return prefix + str(folder / reference.removeprefix(prefix))
    if name:
        from dptext_etl.key_providers import installed

        if "://" in reference or scheme in installed():
            return reference
    return str(folder / reference)
