"""Write the page of the command line, from the commands themselves."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING

from generators.markdown import table

if TYPE_CHECKING:
    import click


_JSON = (
    "With `--json`, stdout holds one object. A command that fails prints one, too, unless it has printed its own: "
    '`{{"error": {{"code", "exit_code", "message", "hint", "fields"}}}}`. `fields` holds the figures and the declared '
    "names of the message, and is empty where it has none. If null or doubled ids or null persons stop a plan or a "
    "run, `fields.counts` holds all their counts. Codes: {codes}."
)
_AMOUNTS = (
    "Amounts are plain numbers in the unit that their key names, or `component` next to them: `epsilon` and `eps_pure` "
    "count epsilon, `rho` counts rho, `delta` is a delta. An amount that is charged is rounded up to a millionth. One "
    'without a finite bound is `"inf"`.'
)


def command_line() -> str:
    """Return the page of the command line, from the commands themselves."""
    import typer

    from dptext_etl.cli.app import app
    from dptext_etl.errors import EXIT_CODES

    top = typer.main.get_command(app)
    lines = [
        "# Command line",
        "`dptext COMMAND --help` says the same about a command.",
        "## Exit codes",
        table(("exit code", "meaning"), [(f"{code}", said) for code, said in EXIT_CODES.items()]),
        "## JSON",
        _JSON.format(codes=", ".join(codes())),
        _AMOUNTS,
    ]
    for words, command in commands(top, ("dptext",)):
        lines += [f"## {' '.join(words)}", inspect.cleandoc(command.help or "").replace("\f", "")]
        rows = [
            (f"`{names(item)}`", getattr(item, "help", None) or "") for item in command.params if item.name != "help"
        ]
        lines += [table(("argument or option", "meaning"), rows)] if rows else []
    return "\n\n".join(lines) + "\n"


def codes() -> list[str]:
    """Return the codes of all failures, as `--json` writes them."""
    from dptext_etl import errors

    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    found = [kind.code for kind in kinds if issubclass(kind, errors.DPTextError)]
    return [f"`{code}`" for code in dict.fromkeys([*found, "interrupted"])]


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
