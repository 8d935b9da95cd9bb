"""Write the page of the command line, from the commands themselves."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable
from typing import Any

from generators.markdown import table

_JSON = (
    "With `--json`, stdout holds one object. A command that fails prints "
    '`{{"error": {{"code", "exit_code", "message", "hint", "fields"}}}}`, unless it has printed an object already. '
    "`fields` holds the figures and declared names of the message. If ids or persons stop a plan or a run, "
    "`fields.counts` holds all their counts. Codes: {codes}."
)
_AMOUNTS = (
    "Amounts are numbers in the unit that their key names, or `component` next to them. `epsilon` and `eps_pure` count "
    "epsilon, `rho` counts rho, and `delta` is a delta. Charged amounts are rounded up to a millionth. An amount "
    'without a finite bound is `"inf"`.'
)
_ALSO = (
    "These have one meaning in several commands. Each command lists them by name after *Also*, with two exceptions: "
    "all commands except {without} accept `--json`, and all commands of `dptext ledger` accept `POLICY`, `--ledger`, "
    "and `--id-key`, unless they list other ones."
)
_TRAIN = "These commands train models on public texts. `--help` lists their options."
_EVERYWHERE = "--json"
_LEDGER = ("--ledger", "--id-key")
"""Options that all commands of a ledger have, next to its policy."""
_SHARED = 2
"""An option of at least this number of commands, with one meaning, is described once."""


def command_line() -> str:
    """Return the page of the command line, from the commands themselves."""
    import typer

    from dptext_etl.cli.app import app
    from dptext_etl.errors import EXIT_CODES

    found = list(commands(typer.main.get_command(app), ("dptext",)))
    training = [one for one in found if one[0][1] == "train"]
    counts = Counter(entry for words, command in found if words[1] != "train" for entry in entries(command))
    shared = sorted(entry for entry, count in counts.items() if count >= _SHARED)
    without = [f"`{words[-1]}`" for words, command in found if _EVERYWHERE not in short(entries(command))]
    lines = [
        "# Command line",
        "The page has the purpose and the options of each command. `dptext COMMAND --help` has the details.",
        "## Exit codes",
        table(("exit code", "meaning"), [(f"{code}", said) for code, said in EXIT_CODES.items()]),
        "## JSON",
        _JSON.format(codes=", ".join(codes())),
        _AMOUNTS,
        "## Shared arguments and options",
        _ALSO.format(without=", ".join(without)),
        listed(shared),
    ]
    for words, command in found:
        if words[1] != "train":
            lines += section(words, command, shared)
    rows = [
        (f"`{words[-1]}`", inspect.cleandoc(command.help or "").partition("\n\n")[0]) for words, command in training
    ]
    lines += ["## dptext train", _TRAIN, table(("`dptext train`", "purpose"), rows)]
    return "\n\n".join(filter(None, lines)) + "\n"


def section(words: tuple[str, ...], command: Any, shared: Iterable[tuple[str, str]]) -> list[str]:
    """Return the heading, the description, and the arguments and options of a command."""
    paragraphs = inspect.cleandoc(command.help or "").replace("\f", "").split("\n\n")
    here = entries(command)
    also = [name for name in short(one for one in here if one in shared) if name != _EVERYWHERE]
    if words[1] == "ledger" and {*_LEDGER} <= {*also}:
        also = [name for name in also if name not in ("POLICY", *_LEDGER)]
    return [
        f"## {' '.join(words)}",
        paragraphs[0],
        listed(one for one in here if one not in shared),
        "Also: " + ", ".join(f"`{name}`" for name in also) + "." if also else "",
    ]


def short(found: Iterable[tuple[str, str]]) -> list[str]:
    """Return the first name of each argument or option, without its value."""
    return [name.split(",")[0].split()[0] for name, _ in found]


def entries(command: Any) -> list[tuple[str, str]]:
    """Return the arguments and options of a command, each with its help."""
    return [(names(item), getattr(item, "help", None) or "") for item in command.params if item.name != "help"]


def listed(pairs: Iterable[tuple[str, str]]) -> str:
    """Return arguments and options as a list."""
    return "\n".join(f"* `{name}`: {said}" for name, said in pairs)


def codes() -> list[str]:
    """Return the codes of all failures, as `--json` writes them."""
    from dptext_etl import errors

    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    exit_codes = [kind.code for kind in kinds if issubclass(kind, errors.DPTextError)]
    return [f"`{code}`" for code in dict.fromkeys([*exit_codes, "interrupted"])]


def commands(command: Any, words: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], Any]]:
    """Yield every command below `command` with the words that call it."""
    import typer.core

    if not isinstance(command, typer.core.TyperGroup):
        yield words, command
        return
    context = typer.Context(command)
    for name in command.list_commands(context):
        yield from commands(command.get_command(context, name), (*words, name))


def names(parameter: Any) -> str:
    """Write how a parameter is given."""
    name = parameter.metavar or (parameter.name or "").upper()
    if parameter.param_type_name == "argument":
        return name
    value = "" if getattr(parameter, "is_flag", False) else f" {name}"
    return ", ".join([*parameter.opts, *parameter.secondary_opts]) + value
