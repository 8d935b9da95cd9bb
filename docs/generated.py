"""The part of the documentation that is read from the code: a hook of mkdocs (`mkdocs.yml`).

One page per mechanism of the catalog, the command line's page, and tables that stand where a page says `{{ name }}`.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import click
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parent.parent


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List one page per mechanism in the navigation."""
    from dptext_etl import available

    pages = ["mechanisms/index.md", *({name: f"mechanisms/{name}.md"} for name in available())]
    for entry in config.nav or ():
        if isinstance(entry, dict) and "Mechanisms" in entry:
            entry["Mechanisms"] = pages
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that no file holds."""
    from mkdocs.structure.files import File

    from dptext_etl import available

    pages = {
        "contributing.md": (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").replace("](docs/", "]("),
        "cli.md": command_line(),
        **{f"mechanisms/{name}.md": mechanism(name) for name in available()},
    }
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put a table where a page asks for one."""
    return re.sub(r"\{\{ (\w+) \}\}", lambda found: TABLES[found.group(1)](), markdown)


def table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Write a Markdown table."""
    lines = [list(header), ["---"] * len(list(header)), *(list(row) for row in rows)]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines
    )


def said(*arguments: str) -> dict[str, Any]:
    """Return what `dptext ARGUMENTS --json` says."""
    from typer.testing import CliRunner

    from dptext_etl.cli.app import app

    return dict(json.loads(CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False).stdout))


def mechanisms() -> str:
    """Return the table of all mechanisms and variants, as `dptext mechanisms` knows them."""
    found = said("mechanisms")["mechanisms"]
    rows = []
    for item in found:
        name = item["name"]
        for variant in item["variants"]:
            disclosed = ", ".join(f"`{one}`" for one in variant["disclosures"])
            called = f"[{name}]({name}.md)" + (f" {variant['variant']}" if variant["variant"] else "")
            rows.append((called, item["summary"], f"`{variant['class']}`", variant["epsilon_per"], disclosed))
    return table(("name", "what it does", "class", "ε is per", "discloses"), rows)


def costs() -> str:
    """Return what one text costs under each mechanism and variant, as the mechanisms themselves say."""
    from dptext_etl import available, load
    from dptext_etl.cli.render import mechanism_facts
    from dptext_etl.families.words import WordMechanism

    rows = []
    for name in available():
        for variant, example in mechanism_facts.examples(load(name)).items():
            claim = example.guarantee
            told = ", ".join(sorted(item.value for item in claim.disclosures - {"nullness"})) or "nothing"
            metric = example.metric_claim if isinstance(example, WordMechanism) else None
            rows.append(
                (
                    f"[{name}]({name}.md)" + (f" {variant}" if variant else ""),
                    claim.unit,
                    f"`{claim.guarantee_class.value}`",
                    told,
                    f"`{metric.metric}`" if metric else "none",
                    "·".join(example.cost_factors(1)),
                )
            )
    header = (
        "mechanism",
        "ε is per",
        "class",
        "released exactly, beside nullness",
        "by distance (METRIC)",
        "ε of a text",
    )
    return table(header, rows)


def mechanism(name: str) -> str:
    """Return the page of one mechanism: its own words, then its facts."""
    from dptext_etl import load

    kind = load(name)
    facts = said("explain", name)
    claim, cost = facts["guarantee"], facts["spend"]
    words = inspect.getdoc(inspect.getmodule(kind)) or ""
    lines = [f"# {name}", linked(words), "## Guarantee"]
    lines.append(
        table(
            ("", ""),
            [
                ("class", f"`{claim['class']}`: {claim['meaning']}"),
                ("ε is per", claim["unit"]),
                ("neighbours", claim["neighbours"]),
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
    return "\n\n".join(lines) + "\n"


def linked(words: str) -> str:
    """Turn the references of a docstring to the specification into links of a page one folder down."""
    return re.sub(
        r"docs/spec/(\w+\.md)#([\w-]+)",
        lambda found: f"[{found.group(2).replace('-', ' ')}](../spec/{found.group(1)}#{found.group(2)})",
        words,
    )


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
        ("disclosed beside the draw", f"{found['disclosed_bits_per_token']:.2f} bits per word"),
        ("unknown words and numbers", found["unknown_words"]),
        ("output words", outputs),
    ]
    lengths = [
        (f"`{item['length']}`", f"refused: {item['refused']}")
        if item["class"] is None
        else (f"`{item['length']}`", f"`{item['class']}`, discloses {', '.join(item['disclosures'])}")
        for item in facts["lengths"]
    ]
    by = "" if example["samples"] is None else f" (frequencies of {example['samples']:,} draws)"
    drawn = [(item["word"], f"{item['probability']:.5f}") for item in example["outputs"][:6]]
    return [
        "## One draw",
        table(("", ""), rows),
        "## The number of words",
        table(("length", ""), lengths),
        "## An example",
        f"What `{example['word']}` becomes{by}; it stays with probability {example['stays']:.5f}.",
        table(("output", "probability"), [*drawn, ("…", "")]),
    ]


def shown(amount: float | str) -> str:
    """Write an amount for people."""
    return amount if isinstance(amount, str) else f"{amount:.6g}"


def command_line() -> str:
    """Return the page of the command line, from the commands themselves."""
    import typer

    from dptext_etl.cli.app import app

    top = typer.main.get_command(app)
    lines = [
        "# Command line",
        "`dptext COMMAND --help` says the same. Exit codes: 0 fine, 2 usage or policy, 3 budget, 4 gate.",
    ]
    for words, command in commands(top, ("dptext",)):
        lines += [f"## {' '.join(words)}", inspect.cleandoc(command.help or "").replace("\f", "")]
        rows = [
            (f"`{names(item)}`", getattr(item, "help", None) or "") for item in command.params if item.name != "help"
        ]
        lines += [table(("argument or option", "meaning"), rows)] if rows else []
    return "\n\n".join(lines) + "\n"


def commands(command: click.Command, words: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], click.Command]]:
    """Yield every command below `command` with the words that call it."""
    below = getattr(command, "commands", None)
    if below is None:
        yield words, command
        return
    for name, child in below.items():
        yield from commands(child, (*words, name))


def names(parameter: click.Parameter) -> str:
    """Write how a parameter is given."""
    name = parameter.metavar or (parameter.name or "").upper()
    if parameter.param_type_name == "argument":
        return name
    value = "" if getattr(parameter, "is_flag", False) else f" {name}"
    return ", ".join([*parameter.opts, *parameter.secondary_opts]) + value


def policy_entries() -> str:
    """Return the reference of the policy file: types from its JSON schema, meanings from the docstrings."""
    from dptext_etl import policy
    from dptext_etl.cli.render import mechanism_facts

    schema = policy.Policy.model_json_schema(by_alias=True)
    parts = []
    for title, model, part in (
        ("Top level", policy.Policy, schema),
        ("`[[column]]`", policy.ColumnSpec, schema["$defs"]["ColumnSpec"]),
        ("`ledger`", policy.LedgerSpec, schema["$defs"]["LedgerSpec"]),
        ("`cap`", policy.Cap, schema["$defs"]["Cap"]),
    ):
        meanings = {item["name"]: item["meaning"] for item in mechanism_facts.parameters(model)}
        aliases = {field.alias: name for name, field in model.model_fields.items() if field.alias}
        rows = []
        for name, entry in part["properties"].items():
            default = "required" if name in part.get("required", ()) else f"`{json.dumps(entry.get('default'))}`"
            rows.append((f"`{name}`", kind_of(entry), default, meanings.get(aliases.get(name, name), "")))
        parts += [f"### {title}", table(("entry", "type", "default", "meaning"), rows)]
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
            "ColumnSpec": "column",
        }.get(entry["$ref"].rpartition("/")[2], "table")
    if entry.get("type") == "array":
        return f"list of {kind_of(entry.get('items', {}))}s"
    return {
        "string": "text",
        "integer": "whole number",
        "number": "number",
        "boolean": "`true` or `false`",
        "object": "table",
    }.get(entry.get("type", ""), "anything")


def disclosures() -> str:
    """Return all disclosures and their meanings."""
    from dptext_etl.guarantee import Disclosure

    return table(
        ("disclosure", "what is released in clear"), ((f"`{item.value}`", item.meaning) for item in Disclosure)
    )


def classes() -> str:
    """Return all guarantee classes and their meanings."""
    from dptext_etl.guarantee import GuaranteeClass

    return table(("class", "meaning"), ((f"`{item.value}`", item.meaning) for item in GuaranteeClass))


def gates() -> str:
    """Return all gates, when they judge, and what each catches."""
    from dptext_etl.checks import Stage
    from dptext_etl.checks.catalog import every

    said = {Stage.STAGED: "staged run", Stage.PUBLISHED: "published table"}
    rows = (
        (f"`{gate.name}`", ", ".join(said[stage] for stage in Stage if stage in gate.stages), gate.catches)
        for gate in every()
    )
    return table(("gate", "judges", "what it catches"), rows)


def text_shapes() -> str:
    """Return what becomes of unusual texts."""
    sys.path.append(str(ROOT / "docs"))  # mkdocs takes away what a hook puts there while it is loaded
    import shapes

    header = ("shape", "text", "words", "strict", "strict, unknown words vanish", "faithful")
    return table(header, shapes.rows())


def rooms() -> str:
    """Return the rooms by layer, as the import contract has them, each in the words of its own docstring."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    rows = []
    for layer in contracts["contracts"][0]["layers"]:
        for room in layer.split("|"):
            path = ROOT.joinpath(*room.strip(" ()").split("."))
            file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            if file.exists():
                said = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
                rows.append((f"`{room.strip(' ()')}`", linked(said.partition("\n\n")[0]).replace("](../", "](")))
    return table(("room", "what it holds"), rows)


def benchmarks() -> str:
    """Return the last measured figures, parts of one run under one line that says when and where."""
    results = json.loads((ROOT / "benchmarks" / "results.json").read_text(encoding="utf-8"))
    written = []
    for (machine, date), parts in itertools.groupby(
        results["parts"].values(), key=lambda part: (part["machine"], part["date"])
    ):
        rows = [
            [item[cell] for cell in ("work", "measured", "against", "ratio", "goal")]
            for part in parts
            for item in part["rows"]
        ]
        written += [f"{machine}, {date}.", table(("work", "measured", "against", "ratio", "goal"), rows)]
    return "\n\n".join(written)


TABLES: dict[str, Callable[[], str]] = {
    "mechanisms": mechanisms,
    "costs": costs,
    "policy_entries": policy_entries,
    "disclosures": disclosures,
    "classes": classes,
    "gates": gates,
    "text_shapes": text_shapes,
    "benchmarks": benchmarks,
    "rooms": rooms,
}
