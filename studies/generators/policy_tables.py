"""Write the reference of the policy file: types from its JSON schema, meanings from the docstrings."""

from __future__ import annotations

import json
from typing import Any

_MANY = {"text": "texts", "text or table": "texts or tables", "text or list of texts": "texts or lists of texts"}


def policy_entries() -> str:
    """Return the reference of the policy file: types from its JSON schema, meanings from the docstrings."""
    from dptext_etl import policy
    from dptext_etl.cli import options
    from dptext_etl.families.choice import Unlinked, UnlinkedLabels
    from dptext_etl.policy.synthetic import Labels, MaxEnt, Synthetic

    schema = policy.Policy.model_json_schema(by_alias=True)
    parts = []
    for title, model, part in (
        ("Top level", policy.Policy, schema),
        ("`[[column]]`", policy.ColumnSpec, schema["$defs"]["ColumnSpec"]),
        ("`ledger`", policy.LedgerSpec, schema["$defs"]["LedgerSpec"]),
        ("`cap`", policy.Cap, schema["$defs"]["Cap"]),
        ("`dagster`", policy.DagsterSpec, schema["$defs"]["DagsterSpec"]),
        ("`unlinked`", Unlinked, schema["$defs"]["Unlinked"]),
        ("`unlinked.labels`", UnlinkedLabels, schema["$defs"]["UnlinkedLabels"]),
        ("`synthetic`", Synthetic, schema["$defs"]["Synthetic"]),
        ("`synthetic.labels`", Labels, schema["$defs"]["Labels"]),
        ("`synthetic.mechanism`", MaxEnt, schema["$defs"]["MaxEnt"]),
    ):
        meanings = {item["name"]: item["meaning"] for item in options.parameters(model)}
        aliases = {field.alias: name for name, field in model.model_fields.items() if field.alias}
        rows = []
        for name, entry in part["properties"].items():
            default = f"`{json.dumps(entry.get('default'))}`" if entry.get("default") is not None else ""
            default = "required" if name in part.get("required", ()) else default
            rows.append((f"`{name}`", kind_of(entry), default, meanings.get(aliases.get(name, name), "")))
        parts += [
            f"### {title}",
            "\n".join(
                f"* {name} ({', '.join(filter(None, (kind, default)))}): {said}" for name, kind, default, said in rows
            ),
        ]
    return "\n\n".join(parts)


def kind_of(entry: dict[str, Any]) -> str:
    """Write a JSON schema type for people."""
    if "enum" in entry:
        return " or ".join(f"`{json.dumps(value)}`" for value in entry["enum"])
    if "anyOf" in entry:
        return " or ".join(kind_of(item) for item in entry["anyOf"] if item.get("type") != "null")
    if "$ref" in entry:
        return {
            "Disclosure": "disclosure",
            "LedgerSpec": "table `ledger`",
            "Cap": "table `cap`",
            "DagsterSpec": "table `dagster`",
            "ColumnSpec": "column",
            "Unlinked": "table `unlinked`",
            "UnlinkedLabels": "table `labels`",
            "Synthetic": "table `synthetic`",
            "Labels": "table `labels`",
            "MaxEnt": "table `mechanism`",
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
