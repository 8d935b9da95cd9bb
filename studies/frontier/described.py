"""Write the lines above and below the tables of the papers from the settings: a run, and how it differs from them."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from papers import settings

from frontier.setups import STAND_INS, Setup, Shown


def head(setup: Setup) -> str:
    """Return the command, the size, the models, and the seed of a run."""
    asked = f"--size {setup.size}"
    asked += "".join(f" --{name} {value}" for name, value in (("rows", setup.rows), ("tests", setup.tests)) if value)
    command = f'make -C studies paper-{setup.paper} PAPER="{asked} --seed {setup.seed}"'
    folders = {"MODELS": setup.models, "TABLES": setup.tables}
    command += "".join(f" {name}={name.lower()}" for name, folder in folders.items() if folder is not None)
    tools = {name: tool for name in settings.tools_of(setup.paper) if _of_models(tool := settings.tools()[name])}
    models = [
        f"{tool.get('paper', name)} given" if _given(setup, name) else f"no {tool.get('paper', name)}: {tool['here']}"
        for name, tool in tools.items()
    ]
    return f"`{command}`\n\n{rows(setup)}. Models: {'; '.join(models)}.\n"


def rows(setup: Setup) -> str:
    """Return the numbers of rows of a run in words."""
    train, test = (
        f"{setup.sizes[name] or 'all'} {word} texts" for name, word in (("rows", "training"), ("tests", "test"))
    )
    return f"Size {setup.size}: {train} and {test} at most, {setup.sizes['slow']:g} of them with generative models"


def below(setup: Setup, table: Shown) -> str:
    """Return the lines below a table: the paper's settings, and how a run differs from them."""
    differs = "; ".join(differences(setup, table.number)) or "nothing"
    return f"{asked(setup.paper, table.number)}\n\nWhat differs here: {differs}.{opposite(table)}\n"


def opposite(table: Shown) -> str:
    """Return in which columns our figures have the opposite sign of the paper's; empty where none has."""
    found = []
    for name, cells in zip(table.head, zip(*table.rows, strict=True), strict=True):
        pairs = [(float(a.replace(",", "")), float(b.replace(",", ""))) for a, b in _PAIR.findall("\n".join(cells))]
        count = sum(printed * here < 0 for printed, here in pairs)
        found += [f"{name} ({count} of {len(pairs)} cells)"] if count else []
    return f" Opposite signs: {'; '.join(found)}." if found else ""


_PAIR = re.compile(r"^(-?[\d,.]+) / (-?[\d,.]+)", re.MULTILINE)


def asked(paper: str, number: str) -> str:
    """Return the settings of a table as a sentence of the page."""
    of_paper = settings.of_paper(paper)
    table, training = of_paper["table"][number], of_paper["training"]
    parts = [
        f"section {table['section']}",
        f"sets {', '.join(table['sets']) or 'none'}",
        f"mechanism {_pairs(table['mechanism'])}",
        *([f"next to it, {_pairs(table['second'])}"] if "second" in table else []),
        *(f"{name} = {_shown(table[name])}" for name in ("additions", "k") if name in table),
        f"ε = {', '.join(f'{value:g}' for value in table['every'])}",
        f"figures: {', '.join(table['metrics'])}",
        f"training: {_listed({name: value for name, value in training.items() if not isinstance(value, dict)})}",
    ]
    attacked = any("attacker" in figure for figure in table["metrics"])
    parts += [
        f"{name}: {_listed(more)}"
        for name, more in training.items()
        if isinstance(more, dict) and (name in table["sets"] or (name == "attack" and attacked))
    ]
    sections = {name: value for name, value in of_paper.items() if isinstance(value, dict)}
    parts += [f"{name}: {_listed(value)}" for name, value in sections.items() if name not in SHOWN]
    return f"The paper's settings (`studies/papers/paper-{paper}.toml`): {'; '.join(parts)}."


SHOWN = ("training", "table")
"""Sections of a paper's settings that are not the same for all of its tables."""


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_shown(value)}" for name, value in values.items())


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return f"({_listed(value)})"
    if isinstance(value, list):
        return " and ".join(map(_shown, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _pairs(values: Mapping[str, Any]) -> str:
    name, *more = values.values()
    return f"{name} ({', '.join(map(str, more))})" if more else str(name)


def differences(setup: Setup, number: str) -> list[str]:
    """Return how a table of a run differs from the paper: in sizes, budgets, training, tools, and sets."""
    paper, sizes = settings.of_paper(setup.paper), setup.sizes
    table, mechanisms = paper["table"][number], paper["table"][number]["mechanism"]["name"]
    differs = []
    if words := sizes["words"]:
        differs.append(f"texts are cut to {words} words (the paper's limit: {paper['longest']} tokens)")
    if sizes["rows"]:
        differs.append(f"{sizes['rows']} training and {sizes['tests']} test texts at most")
    if list(setup.budgets(number)) != table["every"]:
        differs.append(f"only ε = {', '.join(f'{value:g}' for value in setup.budgets(number))}")
    differs += _training(setup)
    if sizes["masked"] and "masked-words" in table["uses"]:
        differs.append(f"{sizes['masked']} masked words at most")
    if sizes["vocabulary"] and "SanText" in mechanisms:
        differs.append(f"a vocabulary of {sizes['vocabulary']:,} words where all pairs have a distance")
    if setup.length() < paper.get("dpbart", 0) and "DP-BART" in mechanisms:
        differs.append(f"DP-BART reads {setup.length()} tokens (the paper: {paper['dpbart']})")
    differs += _pruning(setup)
    differs += [difference for name in table["uses"] if (difference := replaced(setup, name))]
    absent = [name for name in table["sets"] if not setup.given(name)]
    played = [f"{STAND_INS[name][0]} for {name}" for name in absent if name in STAND_INS and setup.data is not None]
    differs += [f"included sets: {', '.join(played)}"] if played else []
    return differs


def _training(setup: Setup) -> list[str]:
    training, (recipe, runs) = setup.settings["training"], setup.recipe()
    if not setup.has(training["classifier"]):
        return [f"{settings.tools()[training['classifier']]['here']} in the place of {training['classifier']}, one run"]
    if (recipe.epochs, len(runs)) != (training["epochs"], training["seeds"]):
        return [f"{recipe.epochs} epochs and {len(runs)} runs"]
    return []


def _pruning(setup: Setup) -> list[str]:
    """Return how pruning and training under noise differ from paper 003."""
    paper, sizes = setup.settings.get("pruning"), setup.sizes
    if paper is None:
        return []
    given = {"stages": sizes["stages"], "steps": sizes["steps"], "texts": sizes["public"]}
    fewer = [f"{value:,} {name} ({paper[name]:,})" for name, value in given.items() if value not in {0, paper[name]}]
    fewer += [f"{sizes['noise_epochs']} epoch under noise (100 to 500)"] if sizes["noise_epochs"] else []
    fewer += [f"{sizes['minutes']:g} minutes under noise at most"] if sizes["minutes"] else []
    fewer += [] if setup.has("bart-base") else ["higher rates for the small model"]
    return [f"pruning with {', '.join(fewer)}"] if fewer else []


def replaced(setup: Setup, name: str) -> str:
    """Name the tool that replaces the paper's in a run; empty where a run uses the paper's."""
    tool = settings.tools()[name]
    if _given(setup, name) or ("needs" in tool and not _given(setup, tool["needs"])):
        return ""
    if "sets" in tool and setup.file("public_corpus") is None:
        return f"generated texts in the place of {tool['paper']}"
    smaller = "smaller" in tool and _there(setup, tool["file"])
    return f"{tool['smaller' if smaller else 'here']} in the place of {tool.get('paper', name)}"


def _of_models(tool: Mapping[str, Any]) -> bool:
    return not {"always", "sets", "file"} & tool.keys()


def _given(setup: Setup, name: str) -> bool:
    """Return whether a run uses the paper's tool."""
    tool = settings.tools()[name]
    if "always" in tool:
        return False
    if "sets" in tool:
        return all(map(setup.given, tool["sets"]))
    by_file = "file" in tool and "smaller" not in tool and _there(setup, tool["file"])
    return by_file or setup.has(tool.get("folder", name))


def _there(setup: Setup, path: str) -> bool:
    outside, _, inside = path.partition("!")
    file = setup.file(outside)
    return file is not None and (not inside or inside in zipfile.ZipFile(Path(file)).namelist())


COMMAND = re.compile(r'paper-(\d+) PAPER="--size (\w+)(?: --rows (\d+))?(?: --tests (\d+))? --seed (\d+)"`')


def again(page: str) -> str:
    """Return the page with the words of blocks without given weights written again; figures and commits stay."""
    for paper, size, train, test, seed in COMMAND.findall(page):
        numbers = [int(value) if value else None for value in (train, test)]
        page = _block(page, Setup(paper, size, rows=numbers[0], tests=numbers[1], seed=int(seed)))
    return page


def _block(page: str, setup: Setup) -> str:
    start, end = (f"<!-- paper-{setup.paper}: {which} -->" for which in ("start", "end"))
    before, block, after = re.split(f"({start}\n.*?{end})", page, flags=re.DOTALL)
    number = re.compile(r"\*\*(?:Table (\d)|(Figure \d)).*?\*\*")
    _, *tables = re.split(r"(?=^\*\*(?:Table|Figure) )", block, flags=re.MULTILINE)
    lines = re.compile(r"^The paper's settings \(.*?^What differs here: [^\n]*\n", re.MULTILINE | re.DOTALL)
    written = [f"{start}\n\n{head(setup)}\n"]
    for table in tables:
        found = number.match(table)
        assert found is not None
        cells = [
            [cell.strip() for cell in line[1:-1].split("|")] for line in re.findall(r"^\|.*\|$", table, re.MULTILINE)
        ]
        shown = Shown("", cells[0], cells[2:], found[1] or found[2])
        written.append(lines.sub(lambda _, shown=shown: below(setup, shown), table))
    return before + "".join(written) + after
