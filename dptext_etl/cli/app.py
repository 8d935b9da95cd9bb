"""Collect the commands by name into one application, and run it in `main()`."""

from __future__ import annotations

from typing import Annotated

import click
import typer

from dptext_etl import extensions
from dptext_etl.cli import failures
from dptext_etl.cli.command import Command, epilog
from dptext_etl.cli.commands import (
    check,
    clean,
    corpus,
    demo,
    explain,
    forget,
    gx_suite,
    init,
    key,
    ledger_caps,
    mechanisms,
    plan,
    preview,
    run,
    run_table,
    schema,
    statement,
)
from dptext_etl.errors import EXIT_CODES, PolicyError


class Commands(failures.Boundary):
    """The commands of this package, then those that installed packages bring (`dptext_etl.commands`)."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        return list(dict.fromkeys([*super().list_commands(ctx), *extensions.names("commands")]))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; entry points are read only if no command of this package has the name."""
        own = super().get_command(ctx, cmd_name)
        if own is not None or not (extensions.known("commands", cmd_name) or cmd_name in extensions.ELSEWHERE):
            return own
        try:
            module = extensions.module("commands", cmd_name)
        except PolicyError as failed:
            return _failing(cmd_name, failed)
        if hasattr(module, "app"):
            return typer.main.get_command(module.app)
        made = typer.Typer(add_completion=False)
        made.command(cls=Command, epilog=epilog(module.EXAMPLE, module.KEYS))(getattr(module, cmd_name))
        return typer.main.get_command(made)


def _failing(name: str, failed: PolicyError) -> click.Command:
    """Return a command that says why it cannot run, so that the help of all others still works."""

    def fail() -> None:
        raise failed

    made = typer.Typer(add_completion=False)
    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    made.command(name, help=f"Unavailable: {failed.message}.", context_settings=anything)(fail)
    return typer.main.get_command(made)


app = typer.Typer(
    name="dptext",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: " + ", ".join(f"{code} {said.partition(':')[0]}" for code, said in EXIT_CODES.items()) + ".",
)


def _version(asked: bool) -> None:
    if asked:
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


for module in (
    init,
    plan,
    run,
    run_table,
    check,
    gx_suite,
    clean,
    forget,
    statement,
    mechanisms,
    explain,
    preview,
    schema,
    demo,
):
    name = module.__name__.rpartition(".")[2]
    app.command(cls=Command, epilog=epilog(module.EXAMPLE, module.KEYS))(getattr(module, name))
app.add_typer(ledger_caps.commands, name="ledger")
app.add_typer(key.app, name="key")
app.add_typer(corpus.app, name="corpus")


def main() -> None:
    """Run the command line; a failure outside a command prints only its type."""
    failures.install()
    typer.main.get_command(app)()
