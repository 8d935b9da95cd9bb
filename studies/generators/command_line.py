"""Write the page of the command line, from the commands themselves."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from generators.markdown import table

if TYPE_CHECKING:
    import click


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
    "These have one meaning in several commands. Each command lists them by name after *Also*. Commands that train "
    "models list options there, too, which only `--help` describes."
)
_SHARED = 3
"""An option of at least this number of commands, with one meaning, is described once."""
_BRIEF = ("audit", "calibrate", "corpus", "evaluate", "explain", "init", "preview", "rehearse", "train")
"""Commands that how-to pages explain: the page has the first paragraph of their help."""


def command_line() -> str:
    """Return the page of the command line, from the commands themselves."""
    import typer

    from dptext_etl.cli.app import app
    from dptext_etl.errors import EXIT_CODES

    all_commands = list(commands(typer.main.get_command(app), ("dptext",)))
    counts = Counter(entry for _, command in all_commands for entry in entries(command))
    shared = sorted(entry for entry, count in counts.items() if count >= _SHARED)
    lines = [
        "# Command line",
        "`dptext COMMAND --help` prints the details of a command.",
        "## Exit codes",
        table(("exit code", "meaning"), [(f"{code}", said) for code, said in EXIT_CODES.items()]),
        "## JSON",
        _JSON.format(codes=", ".join(codes())),
        _AMOUNTS,
        "## Shared arguments and options",
        _ALSO,
        listed(shared),
    ]
    for words, command in all_commands:
        paragraphs = inspect.cleandoc(command.help or "").replace("\f", "").split("\n\n")
        here = entries(command)
        needed = {names(item) for item in command.params if item.required}
        named = [one for one in here if one in shared or (words[1] == "train" and one[0] not in needed)]
        lines += [f"## {' '.join(words)}", *(paragraphs[:1] if words[1] in _BRIEF else paragraphs)]
        lines += [listed(one for one in here if one not in named)]
        lines += ["Also: " + ", ".join(f"`{name.split(',')[0].split()[0]}`" for name, _ in named) + "."] * bool(named)
    return "\n\n".join(filter(None, lines)) + "\n"


def entries(command: click.Command) -> list[tuple[str, str]]:
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


def commands(command: click.Command, words: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], click.Command]]:
    """Yield every command below `command` with the words that call it."""
    import click

    if not isinstance(command, click.Group):
        yield words, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None  # it is listed
        yield from commands(below, (*words, name))


def names(parameter: click.Parameter) -> str:
    """Write how a parameter is given."""
    name = parameter.metavar or (parameter.name or "").upper()
    if parameter.param_type_name == "argument":
        return name
    value = "" if getattr(parameter, "is_flag", False) else f" {name}"
    return ", ".join([*parameter.opts, *parameter.secondary_opts]) + value
