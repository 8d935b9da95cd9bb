"""Collect the commands by name into one application, and run it in `main()`."""

from __future__ import annotations

import signal
from typing import Annotated

import click
import typer

from dptext_etl import extensions
from dptext_etl.cli import failures
from dptext_etl.cli.commands import (
    corpus_commands,
    demo,
    explain,
    export_commands,
    init,
    ledger_admin,  # noqa: F401  (adds commands to `dptext ledger`)
    ledger_commands,
    plan_command,
    preview,
    published_commands,
    run,
)
from dptext_etl.cli.options import Command, epilog
from dptext_etl.errors import EXIT_CODES, PolicyError


class Commands(failures.Boundary):
    """The commands of this package, then those that installed packages bring (`dptext_etl.commands`)."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(dict.fromkeys([*super().list_commands(ctx), *extensions.names("commands")]))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; entry points are read only if no command of this package has the name."""
        own = super().get_command(ctx, cmd_name)
        if own is not None or not (extensions.known("commands", cmd_name) or cmd_name in extensions.ELSEWHERE):
            return own
        single = typer.Typer(add_completion=False)
        try:
            module = extensions.module("commands", cmd_name)
        except PolicyError as exc:  # a command that says why it cannot run, so that the help of all others works
            refusal = exc

            def fail() -> None:
                raise refusal

            anything = {"ignore_unknown_options": True, "allow_extra_args": True}
            single.command(cmd_name, help=f"Unavailable: {refusal.message}.", context_settings=anything)(fail)
            return typer.main.get_command(single)
        if not hasattr(module, "app"):
            single.command(cls=Command, epilog=epilog(module.EXAMPLE, module.KEYS))(getattr(module, cmd_name))
        command = typer.main.get_command(getattr(module, "app", single))
        command.name = cmd_name
        return command


app = typer.Typer(
    name="dptext",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    suggest_commands=False,  # click suggests a name, too
    pretty_exceptions_enable=False,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: " + ", ".join(f"{code} {text.partition(':')[0]}" for code, text in EXIT_CODES.items()) + ".",
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


for module in (init, plan_command, run, published_commands, export_commands, explain, preview, demo):
    app.registered_commands += module.app.registered_commands
app.add_typer(ledger_commands.app, name="ledger")
app.add_typer(init.keys, name="key")
app.add_typer(corpus_commands.app, name="corpus")


def main() -> None:
    """Run the command line; a failure outside a command prints only its type.

    SIGTERM, which Kubernetes and Airflow send, stops a run as Ctrl-C does: leases are released, and reservations for
    which nothing was computed are given back.
    """
    failures.install()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    typer.main.get_command(app)()
