"""Collect the commands by name into one application, and run it in `main()`."""

from __future__ import annotations

import atexit
import gc
import os
import signal
from inspect import getdoc
from typing import Annotated, Any

import typer
import typer.core
import typer.main

from dptext_etl import extensions
from dptext_etl.cli import failures
from dptext_etl.cli.commands import (
    corpus_commands,
    demo,
    explain,
    init,
    ledger_admin,  # noqa: F401  (adds commands to `dptext ledger`)
    ledger_commands,
    published_commands,
    run,
)
from dptext_etl.cli.options import command
from dptext_etl.errors import EXIT_NAMES, PolicyError

COMMANDS: dict[str, typer.Typer] = {}
"""The commands of this package, each an application that is not built yet."""
for module in (init, run, published_commands, explain, demo):
    for entry in module.app.registered_commands:
        single = typer.Typer(add_completion=False)
        single.registered_commands.append(entry)
        COMMANDS[entry.name or typer.main.get_command_name(entry.callback.__name__)] = single
COMMANDS |= {"ledger": ledger_commands.app, "key": init.keys, "corpus": corpus_commands.app}


class Commands(failures.Boundary):
    """The commands of this package, then those that installed packages bring (`dptext_etl.commands`).

    Only the command that runs is built: reading all signatures is slower than most commands.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: dict[str, Any] = dict.fromkeys(COMMANDS)  # names that Typer suggests for a wrong name

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(dict.fromkeys([*COMMANDS, *extensions.names("commands")]))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        single = _app(cmd_name)
        if single is None:
            return None
        built = typer.main.get_command(single)
        built.name = cmd_name
        return built

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows = []
        for name in self.list_commands(ctx):  # the first paragraph of its help, without building the command
            single = _app(name)
            text: object = single.info.help if single else ""  # of a group; else a placeholder
            if single is not None and not isinstance(text, str):
                entry = single.registered_commands[0]
                text = entry.help or getdoc(entry.callback)
            rows.append((name, " ".join(str(text or "").partition("\n\n")[0].split())))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _app(name: str) -> typer.Typer | None:
    """Return a command as an application; entry points are read only if no command of this package has the name."""
    if name in COMMANDS:
        return COMMANDS[name]
    if not (extensions.exists("commands", name) or ("commands", name) in extensions.ELSEWHERE):
        return None
    single = typer.Typer(add_completion=False)
    try:
        module = extensions.module("commands", name)
    except PolicyError as exc:  # a command that says why it cannot run, so that the help of all others works
        refusal = exc

        def fail() -> None:
            raise refusal

        anything = {"ignore_unknown_options": True, "allow_extra_args": True}
        single.command(name, help=f"Unavailable: {refusal.message}.", context_settings=anything)(fail)
        return single
    if not hasattr(module, "app"):
        command(single, module.EXAMPLE, module.KEYS)(getattr(module, name))
    return getattr(module, "app", single)


typer.core.HAS_RICH = False  # rich, Markdown, and Pygments are slower to import than all else that help needs
app = typer.Typer(
    name="dptext",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog=f"Exit codes: {EXIT_NAMES}.",
)


def _version(wanted: bool) -> None:
    if wanted:
        from dptext_etl import __version__

        typer.echo(f"dptext {__version__}")
        raise typer.Exit


@app.callback()
def dptext(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Rewrite text columns under differential privacy, with a ledger and publication gates."""


def main() -> None:
    """Run the command line; a failure outside a command prints only its type.

    SIGTERM, which Kubernetes and Airflow send, stops a run as Ctrl-C does: leases are released, and reservations for
    which nothing was computed are given back.
    """
    failures.outlive_readers()
    failures.install()
    gc.set_threshold(200_000, 20, 100)  # a start makes many objects that stay, in which collections find nothing
    atexit.register(gc.freeze)  # nor would those at the end find any: they are slower than a small run
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # finding them reads all packages
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    typer.main.get_command(app)()
