"""Write the sections about mechanisms: each in its own words, then its facts."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from typing import Any

from generators.markdown import command_json, linked, shown

_DOTS = '"…"'
_SHARED = 2
"""A parameter of at least this number of mechanisms, with one meaning, is described once."""


def sections() -> str:
    """Return a section for each mechanism."""
    from dptext_etl import available

    facts = {name: command_json("explain", name) for name in available()}
    shared = _shared(facts)
    return "\n\n".join("\n\n".join(_section(one, shared)) for one in facts.values())


def shared_parameters() -> str:
    """Return the parameters that several mechanisms have."""
    from dptext_etl import available

    return "\n".join(reversed(_shared({name: command_json("explain", name) for name in available()}).values()))


def _shared(facts: dict[str, dict[str, Any]]) -> dict[str, str]:
    counts = Counter(_parameter(item) for one in facts.values() for item in one["parameters"])
    often = [line for line, count in reversed(counts.most_common()) if count >= _SHARED]
    return {line.split("`")[1]: line for line in often if not line.startswith("* `epsilon`")}


def title(name: str) -> str:
    """Return the name that a mechanism has in the field: the first word of its own description."""
    return _description(name).split(maxsplit=1)[0]


def _description(name: str) -> str:
    from dptext_etl import load

    return inspect.getdoc(inspect.getmodule(load(name))) or name


def _section(facts: dict[str, Any], shared: dict[str, str]) -> list[str]:
    """Return the paragraphs about one mechanism."""
    name, claim, cost = facts["name"], facts["guarantee"], facts["spend"]
    summary, _, source = _description(name).partition("\n\n")
    disclosed = "; ".join(f"{meaning} (`{key}`)" for key, meaning in claim["disclosures"].items())
    lines = [_parameter(item) for item in facts["parameters"]]
    also = [line.split("`")[1] for line in lines if line in shared.values()]
    consent = ", ".join(f"`{line}`" for line in facts["consent"])
    heading = "" if title(name).lower() == name else f" {{#{name}}}"
    facts_of_it = [
        f"* **Guarantee**: `{claim['class']}`, {claim['meaning']}; ε is per {claim['unit']}.",
        f"* **Released exactly**: {disclosed}.",
        f"* **Cost of a text**{_length(facts)} with {_example(facts)}: {_cost(cost)}.",
        f"* **Consent in the policy**: {consent}." if consent else "",
        f"* **Source**: {_source(source)}",
        f"* **Shared parameters**: {', '.join(f'`{one}`' for one in also)}." if also else "",
    ]
    return [
        f"## {title(name)}{heading}",
        f"{linked(summary)} `{_entry(facts)}`",
        "\n".join(filter(None, facts_of_it)),
        "\n".join(line for line in lines if line not in shared.values()),
    ]


def _source(said: str) -> str:
    """Return the source, without the list of differences that may follow it: the rule that it cites has them."""
    first = " ".join(said.partition("\n\n")[0].split()).removeprefix("Paper: ").removeprefix("Papers: ")
    if not first.endswith(":"):
        return linked(first)
    kept, _, last = first.rpartition(". ")
    rules = re.findall(r"docs/spec/[\w.-]+#[\w-]+", last)
    return f"{kept}. Differences: {', '.join(map(linked, rules))}."


def _cost(cost: dict[str, Any]) -> str:
    said = {"ε": "epsilon", "δ": "delta", "tight ε": "epsilon_tight", "ρ": "rho", "log10 odds": "log10_odds"}
    return ", ".join(f"{sign} = {shown(cost[name])}" for sign, name in said.items())


def _parameter(item: dict[str, Any]) -> str:
    default = "required" if item["required"] else f"`{item['default']}`"
    return f"* `{item['name']}` ({item['type']}, {default}): {item['meaning']}"


def _length(facts: dict[str, Any]) -> str:
    return f" of {facts['spend']['words']} words" if facts["guarantee"]["unit"] == "word" else ", whatever its length,"


def _example(facts: dict[str, Any]) -> str:
    """Return the parameters of the example that the cost is for."""
    stated = (facts["note"] or "").partition(":")[0].split(", ")
    found = [item for item in facts["parameters"] if item["required"] or item["name"] in stated]
    return ", ".join(f"{item['name']} = {item['value']}" for item in found)


def _entry(facts: dict[str, Any]) -> str:
    """Return the line of a policy: the required parameters, with dots for names that only the reader knows."""
    required = [item for item in facts["parameters"] if item["required"]]
    given = [f"{item['name']} = {_DOTS if isinstance(item['value'], str) else item['value']}" for item in required]
    name = 'name = "' + facts["name"] + '"'
    return f"mechanism = {{ {', '.join([name, *given])} }}"
