"""Write the sections about mechanisms: the description of each, then its facts."""

from __future__ import annotations

import inspect
import re
from typing import Any

from generators.markdown import command_json, linked, shown

_DOTS = '"…"'
_PAPER = re.compile(r"([A-Z][\w .,&-]*? \d{4}), (\"[^\"]+\")( \((?:section|algorithm)[^)]*\))?")
_ON_THE_PAGE = {
    ("allocation", "Allocation"): "See [one budget for all draws](#allocation).",
    ("length", "disclose | fixed | noisy"): "See [words](#words).",
    ("epsilon_length", "number"): "See [words](#words).",
}
"""Parameters that the prose of the page describes, by name and type."""
_PLAIN = ("number", "text", "true | false", "whole number")
"""Types that a default shows."""
_IN_ALL = "mode"
"""A parameter of all mechanisms, which their sections do not list."""
_COST = re.compile(r"; a (?:draw|text) costs .*")
"""The cost of a text, which the table has."""
_UNIT_ONLY = re.compile(r"^\* `epsilon` .*: Epsilon per (?:drawn )?\w+\.$")
"""An epsilon that the line of the guarantee describes."""
_EXPLAIN = (
    "Pages recommend none of these. `dptext explain NAME` lists the parameters of a mechanism. "
    'With `mode = "faithful"`, it reproduces its paper for benchmarks, and cannot be published.'
)
RECOMMENDED = ("surrogate",)
"""Mechanisms that pages recommend; all others are of the papers."""


def sections() -> str:
    """Return a section for each mechanism: the recommended ones first, then the mechanisms of the papers."""
    from dptext_etl import available

    facts = {name: command_json("explain", name) for name in available()}
    parts = {name: "\n\n".join(filter(None, _section(item))) for name, item in facts.items()}
    papers = (f"#{part}" for name, part in parts.items() if name not in RECOMMENDED)
    recommended = [parts[name] for name in RECOMMENDED]
    return "\n\n".join([*recommended, _synthetic(), "## Mechanisms of the papers {#papers}", _EXPLAIN, *papers])


def _synthetic() -> str:
    """Return the section about the mechanism of synthetic tables, which covers a whole column."""
    from dptext_etl.policy.synthetic import CLAIM, MaxEnt

    summary, meanings = inspect.getdoc(MaxEnt) or "", []
    for line in summary.partition("Attributes:")[2].strip().splitlines():
        name, _, meaning = line.strip().partition(": ")
        meanings += [f"* `{name}`: {meaning}"] if name != "name" else []
    about = (
        "It adds noise once to sums over a whole column, and draws public texts that follow them. "
        "[Synthetic tables](synthetic-tables.md) explains the form. "
        '`mechanism = { name = "maxent", epsilon = 1.0, delta = 1e-6, corpus = "everyday-30k" }` in `[synthetic]`'
    )
    claim = (
        f"* **Guarantee**: `{CLAIM.guarantee_class.value}`, ε per {CLAIM.unit} for the whole table. "
        "**Rules**: [synthetic](spec/synthetic.md)."
    )
    return "\n\n".join(("## Synthetic tables (`maxent`) {#maxent}", about, claim, "\n".join(meanings)))


def title(name: str) -> str:
    """Return the name that a mechanism has in the field: the first word of its own description."""
    return _description(name).split(maxsplit=1)[0]


def _description(name: str) -> str:
    from dptext_etl import load

    return inspect.getdoc(inspect.getmodule(load(name))) or name


def _section(facts: dict[str, Any]) -> list[str]:
    """Return the paragraphs about one mechanism."""
    name, claim, cost = facts["name"], facts["guarantee"], facts["spend"]
    summary, _, source = _description(name).partition("\n\n")
    disclosed = ", ".join(f"`{key}`" for key in claim["disclosures"])
    lines = [_parameter(item) for item in facts["parameters"]]
    consent = ", ".join(f"`{line}`" for line in facts["consent"])
    heading = "" if title(name).lower() == name else f" {{#{name}}}"
    consent = f"**Consent in the policy**: {consent}." if consent else ""
    in_table = [  # of other mechanisms, the table at the top has these
        f"* **Guarantee**: `{claim['class']}`, ε per {claim['unit']}. **Released exactly**: {disclosed}.",
        f"* **Cost of a text** at {_example(facts)}: {_cost(cost)}.",
    ]
    facts_of_it = [
        *(in_table if name in RECOMMENDED else ()),
        consent and f"* {consent}",
        f"* **Source**: {_source(source)}",
    ]
    return [
        f"## {title(name)}{heading}",
        f"{linked(summary)} `{_entry(facts)}`",
        "\n".join(filter(None, facts_of_it)),
        "\n".join(
            line
            for line in (lines if name in RECOMMENDED else ())
            if not _UNIT_ONLY.search(line) and f"`{_IN_ALL}`" not in line
        ),
    ]


def papers() -> str:
    """Return the papers of all mechanisms with their titles."""
    from dptext_etl import available

    found = [paper for name in available() for paper in _PAPER.findall(_cited(_description(name)))]
    return "\n".join(dict.fromkeys(f"* {authors}, {name}" for authors, name, _ in found))


def _source(said: str) -> str:
    """Return the papers that a description cites, and links to the rules about differences from them."""
    cited = _cited(said)
    rules = re.findall(r"docs/spec/[\w.-]+#[\w-]+", cited)
    found = "; ".join(f"{authors}{sections}" for authors, _, sections in _PAPER.findall(cited))
    return f"{found}. Rules: {', '.join(map(linked, rules))}."


def _cited(said: str) -> str:
    """Return the paragraph of a description that cites papers."""
    paragraphs = (" ".join(part.split()) for part in said.split("\n\n"))
    return next(part for part in paragraphs if _PAPER.search(part))


def _cost(cost: dict[str, Any]) -> str:
    delta = f", δ = {shown(cost['delta'])}" if cost["delta"] else ""
    return f"ε = {shown(cost['epsilon'])}{delta}, log10 odds = {shown(cost['log10_odds'])}"


def _parameter(item: dict[str, Any]) -> str:
    default = "" if item["required"] or item["default"] is None else f"`{item['default']}`".replace("\n", "\\n")
    kind = item["type"].removesuffix(" | none")
    said = _ON_THE_PAGE.get((item["name"], kind), _COST.sub(".", item["meaning"]))
    kind = "" if default and kind in _PLAIN else kind
    required = "required" if item["required"] else ""
    return f"* `{item['name']}` ({', '.join(filter(None, (kind, default, required)))}): {said}"


def _example(facts: dict[str, Any]) -> str:
    """Return the parameters of the example that the cost is for."""
    stated = (facts["note"] or "").partition(":")[0].split(", ")
    found = [item for item in facts["parameters"] if item["required"] or item["name"] in stated]
    return "`" + ", ".join(f"{item['name']}={item['value']}" for item in found) + "`"


def _entry(facts: dict[str, Any]) -> str:
    """Return the line of a policy: the required parameters, with dots for names that only the reader knows."""
    required = [item for item in facts["parameters"] if item["required"]]
    given = [f"{item['name']} = {_DOTS if isinstance(item['value'], str) else item['value']}" for item in required]
    name = 'name = "' + facts["name"] + '"'
    return f"{{ {', '.join([name, *given])} }}"
