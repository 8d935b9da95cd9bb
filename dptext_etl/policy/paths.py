"""Resolve the paths of a policy file, and keep its secrets apart."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from dptext_etl import _kernel, catalog, extensions, keys
from dptext_etl.errors import KeyReferenceError, PolicyError
from dptext_etl.object_stores import KEY_DIGITS, is_secret, variable_of
from dptext_etl.policy.terms import TABLE


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


SETTABLE = ("source", "sink", "table.name", "release", "environment")
"""The entries that may differ between environments: `dptext … --set`, and variables in a policy file."""
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def for_environment(values: dict[str, Any], settings: Mapping[str, str]) -> dict[str, Any]:
    """Return a policy's entries with some of them set, and with the values of the variables that they name.

    Args:
        values: The entries; "env:NAME" or "${NAME}" in one of `SETTABLE` names a variable of this environment.
        settings: Values by entry, which replace those of the file.

    Raises:
        PolicyError: A setting is of another entry, or a variable is not set.
    """
    if other := sorted(settings.keys() - set(SETTABLE)):
        raise PolicyError(f"{other[0]} cannot be set for a single call", f"--set takes {', '.join(SETTABLE)}")
    if "table.name" in settings and not isinstance(values.get("table"), dict):
        raise PolicyError("table.name cannot be set: the policy has no table [table]", "remove it from --set")
    for entry in SETTABLE:
        table, _, name = entry.rpartition(".")
        entries = values.get(table) if table else values
        if isinstance(entries, dict) and entry in settings:
            entries[name] = settings[entry]
        if isinstance(entries, dict) and isinstance(text := entries.get(name), str):
            whole = variable_of(text)
            entries[name] = _value_of(entry, whole) if whole else _with_values(entry, text)
    return values


def _with_values(entry: str, text: str) -> str:
    found = _VARIABLE.sub(lambda match: _value_of(entry, match[1]), text)
    if "${" in _VARIABLE.sub("", text):
        raise PolicyError(f"{entry} holds ${{ without the name of a variable and }}", "write ${NAME}")
    return found


def _value_of(entry: str, variable: str) -> str:
    """Return the value of a variable that may be part of a path: else a policy could send any credential to a store."""
    if not variable.startswith("DPTEXT_") or is_secret(variable):
        msg = f"{entry}: only variables whose names begin with DPTEXT_, and hold no secret, may be part of an entry"
        raise PolicyError(msg, f"for example DPTEXT_{entry.upper().replace('.', '_')}")
    value = os.environ.get(variable)
    if not value:
        raise PolicyError(f"{entry}: the variable {variable} is not set", f"set {variable}, or use --set {entry}=…")
    return value


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
    for properties in (table.get("catalog") if isinstance(table, dict) else None, values.get("source_catalog")):
        if isinstance(properties, dict) and str(properties.get("uri")).startswith("sqlite:///"):
            properties["uri"] = _from_folder(properties["uri"], folder)
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
    if scheme == "env" or reference.startswith(TABLE):
        return reference
    for prefix in ("file:", "sqlite:///"):
        if reference.startswith(prefix):
            return prefix + str(folder / reference.removeprefix(prefix))
    if name:
        from dptext_etl.key_providers import installed

        if "://" in reference or scheme in installed():
            return reference
    return str(folder / reference)
