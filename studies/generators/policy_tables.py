"""Write the reference of the policy file: types from its JSON schema, meanings from the docstrings."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from generators.markdown import table

if TYPE_CHECKING:
    from pydantic import BaseModel

_MANY = {"text": "texts", "text or table": "texts or tables", "text or list of texts": "texts or lists of texts"}


def policy_entries() -> str:
    """Return the reference of the policy file, except its tables for forms without rows."""
    from dptext_etl import policy

    return _entries(
        {
            "Top level": policy.Policy,
            "`[[column]]`": policy.ColumnSpec,
            "`ledger`": policy.LedgerSpec,
            "`cap`": policy.Cap,
            "`dagster`": policy.terms.DagsterSpec,
        }
    )


def form_entries() -> str:
    """Return the reference of `[synthetic]` and `[shuffled]`."""
    from dptext_etl.accounting.shuffling import Shuffled, ShuffledLabels
    from dptext_etl.policy.synthetic import Labels, MaxEnt, Synthetic

    return _entries(
        {
            "`synthetic`": Synthetic,
            "`synthetic.labels`": Labels,
            "`synthetic.mechanism`": MaxEnt,
            "`shuffled`": Shuffled,
            "`shuffled.labels`": ShuffledLabels,
        }
    )


_BASICS = "`dataset`, `release`, `column.name`, `column.mechanism`, `column.allow`, `column.accept_unbounded`"
"""The entries that every call needs."""


def doors() -> str:
    """Return a row for each way to release a table: the entries of a policy that it refuses and applies."""
    path = Path(__file__).resolve().parents[2] / "tests" / "doors" / "doors.toml"
    listed = tomllib.loads(path.read_text(encoding="utf-8"))
    rows = dict[tuple[str, str], list[str]]()
    for column, title in enumerate(listed["doors"].values()):
        kinds: dict[str, list[str]] = {"A": [], "R": [], "-": []}
        for names, letters in listed["cells"].items():
            entries = names.split(", ")
            shown = [name for name in entries if name.rpartition(".")[0] not in entries] or entries
            kinds[letters.split()[column]] += [f"`{name}`" for name in shown]
        applied, ignored = ", ".join(kinds["A"]).replace(_BASICS, "basics"), ", ".join(kinds["-"])
        shorter = f"all others, except {ignored}" if len(ignored) < len(applied) else applied
        key = ", ".join(kinds["R"]) or "–", shorter if ignored else "all others"
        rows.setdefault(key, []).append(title)
    lines = [(", ".join(titles), *key) for key, titles in rows.items()]
    return table(("call", "refuses", "applies"), lines)


def _entries(models: dict[str, type[BaseModel]]) -> str:
    """Return entries of tables of the policy: types from its JSON schema, meanings from the docstrings."""
    from dptext_etl import policy
    from dptext_etl.cli import options

    schema = policy.Policy.model_json_schema(by_alias=True)
    parts = []
    for title, model in models.items():
        part = schema if model is policy.Policy else schema["$defs"][model.__name__]
        meanings = {item["name"]: item["meaning"] for item in options.parameters(model)}
        aliases = {field.alias: name for name, field in model.model_fields.items() if field.alias}
        rows = []
        for name, entry in part["properties"].items():
            default = f"`{json.dumps(entry.get('default'))}`" if entry.get("default") not in (None, []) else ""
            default = "required" if name in part.get("required", ()) else default
            said = meanings.get(aliases.get(name, name), "")
            kind = kind_of(entry)
            if shows_its_type(entry, kind, default, said):
                kind = ""
            rows.append((f"`{name}`", kind, default, said))
        parts += [
            f"### {title}",
            "\n".join(
                f"* {name} ({', '.join(filter(None, (kind, default)))}): {said}".replace(" ():", ":")
                for name, kind, default, said in rows
            ),
        ]
    return "\n\n".join(parts)


def shows_its_type(entry: dict[str, Any], kind: str, default: str, said: str) -> bool:
    """Return True if the default or the meaning of an entry shows its type."""
    chosen = re.findall(r"`(\"[^`]*\")`", kind)
    if chosen:
        return all(choice in said for choice in chosen)
    return bool(default) and entry.get("type") in ("boolean", "integer", "number", "string")


def kind_of(entry: dict[str, Any]) -> str:
    """Write a JSON schema type for people."""
    if "enum" in entry:
        return " or ".join(f"`{json.dumps(value)}`" for value in entry["enum"])
    if "anyOf" in entry:
        return " or ".join(kind_of(item) for item in entry["anyOf"] if item.get("type") != "null")
    if "$ref" in entry:
        return {
            "Disclosure": "disclosure",
            "ColumnSpec": "column",
        }.get(entry["$ref"].rpartition("/")[2], "table")
    if entry.get("type") == "array":
        items = kind_of(entry.get("items", {}))
        return f"list of {items}" if items.endswith(("`", "s")) else f"list of {_MANY.get(items, items + 's')}"
    return {
        "string": "text",
        "integer": "whole number",
        "number": "number",
        "boolean": "`true` or `false`",
        "object": "table",
    }.get(entry.get("type", ""), "anything")
