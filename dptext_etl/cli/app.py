"""Collect the commands by name into one application, and run it in `main()`."""

from __future__ import annotations

from typing import Annotated

import typer

from dptext_etl.cli import failures
from dptext_etl.cli.command import Command, epilog
from dptext_etl.cli.commands import (
    audit,
    calibrate,
    check,
    clean,
    corpus,
    demo,
    evaluate,
    explain,
    forget,
    gx_suite,
    init,
    key,
    ledger_caps,
    mechanisms,
    plan,
    preview,
    privatize,
    run,
    schema,
    statement,
    train,
)

app = typer.Typer(
    name="dptext",
    cls=failures.Boundary,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 fine, 2 usage or policy, 3 budget, 4 gate, 1 anything unexpected.",
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
    privatize,
    check,
    gx_suite,
    clean,
    forget,
    audit,
    evaluate,
    statement,
    calibrate,
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
app.add_typer(train.app, name="train")
app.add_typer(corpus.app, name="corpus")


def main() -> None:
    """Run the command line; a failure outside a command prints only its type."""
    failures.install()
    typer.main.get_command(app)()
