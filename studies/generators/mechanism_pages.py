"""Write the sections about mechanisms: the description of each, then its facts."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from typing import Any

from generators.markdown import command_json, linked, shown

_DOTS = '"…"'
_PAPER = re.compile(r"[A-Z][\w .,&-]*? \d{4}, \"[^\"]+\"(?: \((?:section|algorithm)[^)]*\))?")
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
    disclosed = ", ".join(f"`{key}`" for key in claim["disclosures"])
    lines = [_parameter(item) for item in facts["parameters"]]
    also = [line.split("`")[1] for line in lines if line in shared.values()]
    consent = ", ".join(f"`{line}`" for line in facts["consent"])
    heading = "" if title(name).lower() == name else f" {{#{name}}}"
    facts_of_it = [
        f"* **Guarantee**: `{claim['class']}`, ε per {claim['unit']}. **Released exactly**: {disclosed}."
        + (f" **Consent in the policy**: {consent}." if consent else ""),
        f"* **Cost of a text**{_length(facts)} at {_example(facts)}: {_cost(cost)}.",
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
    """Return the papers that a description cites, and links to the rules about differences from them."""
    cited = next(part for part in said.split("\n\n") if _PAPER.search(" ".join(part.split())))
    cited = " ".join(cited.split())
    rules = re.findall(r"docs/spec/[\w.-]+#[\w-]+", cited)
    return f"{'; '.join(_PAPER.findall(cited))}. Rules: {', '.join(map(linked, rules))}."


def _cost(cost: dict[str, Any]) -> str:
    delta = f", δ = {shown(cost['delta'])}" if cost["delta"] else ""
    return f"ε = {shown(cost['epsilon'])}{delta}, log10 odds = {shown(cost['log10_odds'])}"


def _parameter(item: dict[str, Any]) -> str:
    default = "required" if item["required"] else f"`{item['default']}`"
    return f"* `{item['name']}` ({item['type']}, {default}): {item['meaning']}"


def _length(facts: dict[str, Any]) -> str:
    return f" of {facts['spend']['words']} words" if facts["guarantee"]["unit"] == "word" else ""


def _example(facts: dict[str, Any]) -> str:
    """Return the parameters of the example that the cost is for."""
    stated = (facts["note"] or "").partition(":")[0].split(", ")
    stated_parameters = [item for item in facts["parameters"] if item["required"] or item["name"] in stated]
    return ", ".join(f"{item['name']} = {item['value']}" for item in stated_parameters)


def _entry(facts: dict[str, Any]) -> str:
    """Return the line of a policy: the required parameters, with dots for names that only the reader knows."""
    required = [item for item in facts["parameters"] if item["required"]]
    given = [f"{item['name']} = {_DOTS if isinstance(item['value'], str) else item['value']}" for item in required]
    name = 'name = "' + facts["name"] + '"'
    return f"mechanism = {{ {', '.join([name, *given])} }}"
