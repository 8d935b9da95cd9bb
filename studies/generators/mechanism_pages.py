"""Write the page of a mechanism: its own words, then its facts."""

from __future__ import annotations

import inspect
from typing import Any

from generators.markdown import command_json, linked, shown, table

NEXT = {
    "choice": "[What it leaves](../frontier.md#surrogate), and [how to build a corpus](../surrogate-corpus.md)",
    "stored_distributions": "[What it leaves](../frontier.md)",
    "distance": "[What it leaves](../frontier.md)",
    "lists": "[What it leaves](../frontier.md)",
    "score": "[How a model draws](../score.md), and [what DP-MLM leaves](../frontier.md#dp-mlm)",
    "latent": "[How noise on vectors works](../latent.md), and [what it leaves](../frontier.md#latent)",
}
"""What a reader of a mechanism's page reads next, by family."""

DOTS = '"…"'


def title(name: str) -> str:
    """Return the name that a mechanism has in the field: the first word of its own description."""
    return _description(name).split(maxsplit=1)[0]


def _description(name: str) -> str:
    from dptext_etl import load

    return inspect.getdoc(inspect.getmodule(load(name))) or name


def mechanism(name: str) -> str:
    """Return the page of one mechanism: what it does, its facts, then its source and what differs from it."""
    facts = command_json("explain", name)
    claim, cost = facts["guarantee"], facts["spend"]
    summary, _, source = _description(name).partition("\n\n")
    lines = [f"# {title(name)}", linked(summary)]
    lines.append(f"See it at work: `dptext preview {name}`. What it would cost: `dptext explain {name}`.")
    lines += [f"In a policy: `{_entry(facts)}`. {NEXT[_family(name)]}.", "## Guarantee"]
    lines.append(
        table(
            ("", ""),
            [
                ("class", f"`{claim['class']}`: {claim['meaning']}"),
                ("ε is per", claim["unit"]),
                ("neighbors", claim["neighbours"]),
                ("assumptions", ", ".join(f"`{item}`" for item in claim["assumptions"])),
            ],
        )
    )
    lines += [
        "Released exactly, in clear:",
        table(("disclosure", "meaning"), ((f"`{k}`", v) for k, v in claim["disclosures"].items())),
    ]
    lines += [
        "## Parameters",
        table(
            ("name", "type", "default", "meaning"),
            (
                (f"`{i['name']}`", i["type"], "required" if i["required"] else f"`{i['default']}`", i["meaning"])
                for i in facts["parameters"]
            ),
        ),
    ]
    stated = (facts["note"] or "").partition(":")[0].split(", ")  # parameters of the small example
    shows = [i for i in facts["parameters"] if i["required"] or i["name"] in stated]
    values = ", ".join(f"{i['name']} = {i['value']}" for i in shows)
    by_word = claim["unit"] == "word"
    lines += [
        f"## What a text of {cost['words']} words costs" if by_word else "## What a text costs, whatever its length",
        f"With {values}; the command `dptext explain {name} -p …` prints it for other values.",
        table(
            ("ε", "δ", "ε, tight", "ρ (zCDP)", "log10 odds"),
            [[shown(cost[k]) for k in ("epsilon", "delta", "epsilon_tight", "rho", "log10_odds")]],
        ),
    ]
    if facts["consent"]:
        lines.append("A policy that uses it says so: " + ", ".join(f"`{line}`" for line in facts["consent"]) + ".")
    if facts["law"]:
        lines += law(facts)
    lines += of_models(facts)
    lines += ["## Where it comes from, and what differs", linked(source)]
    return "\n\n".join(lines) + "\n"


def _family(name: str) -> str:
    """Return the room of the bases of a mechanism: where its noise enters."""
    from dptext_etl import load

    rooms = (base.__module__.split(".") for base in load(name).__mro__)
    return next(room[2] for room in rooms if room[1:2] == ["families"] and room[2] in NEXT)


def _entry(facts: dict[str, Any]) -> str:
    """Return the line of a policy: what is required, with dots for what only the reader can name."""
    required = [i for i in facts["parameters"] if i["required"]]
    given = [f"{i['name']} = {DOTS if isinstance(i['value'], str) else i['value']}" for i in required]
    name = 'name = "' + facts["name"] + '"'
    return f"mechanism = {{ {', '.join([name, *given])} }}"


def of_models(facts: dict[str, Any]) -> list[str]:
    """Return the parts of a page on a model's draw or on a latent's noise, and what the amounts convert to."""
    lines = []
    for title, heading in (("draw", "One draw"), ("noise", "The noise")):
        if facts[title]:
            lines += [f"## {heading}", table(("", ""), ((name, shown(v)) for name, v in facts[title].items()))]
    if facts["conversions"]:
        rows = [[shown(item[key]) for key in ("records", "delta", "epsilon", "rule")] for item in facts["conversions"]]
        lines += [
            "## All of it for one person",
            "The least (ε, δ) statement that is known, at a δ fixed beforehand, for records released together.",
            table(("records", "δ", "ε", "rule"), rows),
        ]
    return lines


def law(facts: dict[str, Any]) -> list[str]:
    """Return the parts of a page that say what one draw can tell, what lengths can be hidden, and an example."""
    found, example = facts["law"], facts["example"]
    metric = found["metric"]
    by_distance = "no claim"
    if metric:
        by_distance = f"{shown(metric['epsilon'])} per unit of `{metric['name']}`, at most {shown(metric['diameter'])}"
    outputs = "not fixed" if found["output_words"] is None else f"{found['output_words']:,}"
    kind = "exact, from the integers that are drawn from" if found["is_exact"] else "an upper bound"
    rows = [
        (
            "declared ε of one draw",
            f"{shown(found['epsilon_word'])}: {shown(found['times_epsilon'])} times the parameter",
        ),
        (f"worst case of one draw ({kind})", shown(found["epsilon_worst"])),
        ("by distance (METRIC)", by_distance),
        ("disclosed next to the draw", f"{found['disclosed_bits_per_token']:.2f} bits per word"),
        ("unknown words and numbers", found["unknown_words"]),
        ("output words", outputs),
    ]
    lengths = [
        (f"`{item['length']}`", f"refused: {item['refused']}")
        if item["class"] is None
        else (f"`{item['length']}`", f"`{item['class']}`, discloses {', '.join(item['disclosures'])}")
        for item in facts["lengths"]
    ]
    parts = ["## One draw", table(("", ""), rows), "## The number of words", table(("length", ""), lengths)]
    if example["samples"] is None:  # frequencies of random draws would change with every build
        drawn = [(item["word"], f"{item['probability']:.5f}") for item in example["outputs"][:6]]
        parts += [
            "## An example",
            f"What `{example['word']}` becomes; it stays with probability {example['stays']:.5f}.",
            table(("output", "probability"), [*drawn, ("…", "")]),
        ]
    return parts
