"""Define `dptext schema`, which prints the JSON Schema of the policy file."""

from __future__ import annotations

import typer

from dptext_etl.cli import terminal
from dptext_etl.cli.options import Command, epilog

app = typer.Typer()


@app.command(cls=Command, epilog=epilog("dptext schema > policy.schema.json"))
def schema() -> None:
    """Print the JSON Schema of the policy file, for editors and other tools."""
    from dptext_etl.policy import Policy

    facts = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Policy.model_json_schema(by_alias=True)}
    terminal.emit(facts)
